"""Reads a history from a file, in any of the formats."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path

from jepsen_like.history.edn_wrapping import unwrapped
from jepsen_like.history.errors import BadLine, HistoryUnreadable
from jepsen_like.history.header import Header
from jepsen_like.history.history import History
from jepsen_like.history.jepsen import LOGGED_EVENT, parse_edn_event, parse_logged_event
from jepsen_like.history.json_lines import VERSION_FIELD, parse_event, parse_header
from jepsen_like.history.operation import Event
from jepsen_like.history.pairing import OPERATIONS_MAX, Pairing

# A read of a set of a million small numbers fits; a file without line ends is noticed early.
LINE_BYTES_MAX = 16 * 1024 * 1024


class HistoryFormat(StrEnum):
    """The formats, by the names that `--format` takes."""

    JSON_LINES = "json-lines"
    EDN = "edn"
    JEPSEN_LOG = "jepsen-log"


Line = tuple[int, str]


def read_history(
    path: Path,
    format: HistoryFormat | None = None,
    *,
    keyed: bool = False,
    line_bytes_max: int = LINE_BYTES_MAX,
    operations_max: int = OPERATIONS_MAX,
) -> History:
    """Read a history, line by line.

    Args:
        path: the file.
        format: its format; recognized by the first line unless given.
        keyed: values of Jepsen's formats are pairs of a key and a value.
        line_bytes_max: a longer line is refused.
        operations_max: more operations are refused.

    Raises HistoryUnreadable, which names the file and the line.
    """
    name = str(path)
    lines = _lines(path, line_bytes_max)
    number = 0
    try:
        first = next(lines, None)
        if first is None:
            raise HistoryUnreadable(name, None, "nothing is in the file: no history was recorded")
        number, text = first
        format = format or recognized(text)
        if format is HistoryFormat.JSON_LINES:
            header, events = parse_header(text), lines
        else:
            header, events = Header(), _put_back(first, lines)
        if format is HistoryFormat.EDN:
            events = unwrapped(events, line_bytes_max)
        pairing = Pairing(timed=format is HistoryFormat.JSON_LINES, operations_max=operations_max)
        parse = _parser(format, keyed=keyed)
        timed = False
        for number, text in events:
            event = parse(number, text)
            if event is not None:
                pairing.add(event)
                timed = timed or event.time_ns > 0
    except BadLine as error:
        raise HistoryUnreadable(name, error.line or number, error.problem) from None
    return History(pairing.operations, header, name, timed)


def _parser(format: HistoryFormat, *, keyed: bool) -> Callable[[int, str], Event | None]:
    match format:
        case HistoryFormat.JSON_LINES:
            return parse_event
        case HistoryFormat.EDN:
            return lambda line, text: parse_edn_event(line, text, keyed=keyed)
        case HistoryFormat.JEPSEN_LOG:
            return lambda line, text: parse_logged_event(line, text, keyed=keyed)


def recognized(text: str) -> HistoryFormat:
    """Return the format of a history, by its first line. Raises BadLine."""
    start = text.lstrip("\ufeff, \t")
    if re.match(r'\{\s*("|\})', start):
        return HistoryFormat.JSON_LINES
    if re.match(r"[\[(\s,]*(\{\s*:|#[a-z:_]|;|$)|[\[(][\[(\s]*[:\d]", start):
        return HistoryFormat.EDN
    if LOGGED_EVENT.search(text) or re.match(r"(INFO|WARN|\d{4}-\d\d-\d\d)\b", start):
        return HistoryFormat.JEPSEN_LOG
    raise BadLine(
        f'not a history: the first line is neither a header {{"{VERSION_FIELD}": 1}}, nor a map of '
        "EDN, nor a line of Jepsen's log; --format forces one of them"
    )


def _put_back(first: Line, lines: Iterator[Line]) -> Iterator[Line]:
    yield first
    yield from lines


def _lines(path: Path, line_bytes_max: int) -> Iterator[Line]:
    """Yield the lines of a file that are not empty, with their numbers."""
    name = str(path)
    number = 0
    try:
        with path.open("rb") as file:
            while line := file.readline(line_bytes_max + 1):
                number += 1
                if len(line) > line_bytes_max:
                    raise HistoryUnreadable(
                        name, number, f"the line is longer than {line_bytes_max} bytes"
                    )
                if b"\0" in line:
                    raise HistoryUnreadable(name, number, "not text: there is a zero byte")
                # Editors of some systems put a mark of the byte order before the text.
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                if text.strip():
                    yield number, text
    except UnicodeDecodeError:
        raise HistoryUnreadable(name, number, "not text in UTF-8") from None
    except OSError as error:
        problem = error.strerror or type(error).__name__
        raise HistoryUnreadable(name, None, f"cannot be read: {problem}") from None
