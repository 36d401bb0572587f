"""The log lines of a server: one event a line, as text or as JSON, limited in length and number.

A line that begins with a time is one of this program: texts from outside begin none and move no
cursor. This is the last guard: where events are logged, texts of clients are quoted one by one.
"""

from __future__ import annotations

import datetime
import json
import logging
import sys
from collections.abc import Callable
from typing import TextIO

import click

from dledger.command_line.options import Decorated, option, options
from dledger.shown_output import escaped

TEXT, JSON = "text", "json"
_FORMATS = (TEXT, JSON)
_LEVELS = ("debug", "info", "warning", "error")

# The longest event. Texts from clients are quoted where they are inserted, and much shorter.
MAX_EVENT_CHARACTERS = 2000

# The longest line of a traceback: an error's text may contain all that a client has sent.
_MAX_TRACEBACK_CHARACTERS = 500
_MAX_TRACEBACK_LINES = 200

# The logger for standard output of a server: when it listens, and changes of the leader.
PROGRESS = "dledger.progress"

# Lines of one kind that may be written within this time; further ones are only counted.
BURST_LINES = 5
BURST_WINDOW_S = 10.0
# Counted kinds of lines: far more than the program has.
_MAX_KINDS = 500

# The event of a line that does not name its own, by the module that logs it. docs/operations.md has
# the list: programs rely on these names.
_EVENTS = {
    PROGRESS: "progress",
    "dledger.node.admission_log": "member_in_doubt",
    "dledger.snapshots.awaited_snapshot": "snapshot_installed",
    "dledger.serving.identity_guard": "generation",
    "dledger.network.host_connection": "peer_connection",
    "dledger.node.housekeeping": "disk",
    "dledger.store.disk_room": "disk_room",
    "dledger.refused_threads": "threads",
    "dledger.sockets": "connection_refused",
    "dledger.waits.leadership_watch": "members",
    "dledger.serving.listener": "connection_refused",
    "dledger.serving.peer_conversation": "peer_refused",
    "dledger.snapshots.restoring": "recovery",
    "dledger.store.folder_birth": "recovery",
    "dledger.snapshots.snapshot_transfer": "snapshot_transfer",
    "dledger.snapshots.snapshotter": "snapshot",
}

# The fields of a line beside its text, in this order.
FIELDS = (
    "role",
    "term",
    "leader",
    "ready",
    "index",
    "first_index",
    "last_index",
    "members",
    "peer",
    "seconds",
    "count",
    "settings",
)

_COLOURS = {
    logging.DEBUG: "\x1b[2m",
    logging.WARNING: "\x1b[33m",
    logging.ERROR: "\x1b[31m",
    logging.CRITICAL: "\x1b[31;1m",
}
_PLAIN = "\x1b[0m"


def _time(record: logging.LogRecord) -> str:
    when = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _on_one_line(text: str, most_characters: int = MAX_EVENT_CHARACTERS) -> str:
    """Escape and shorten text from callers, so that it begins no line of its own and moves no
    cursor.
    """
    shown = escaped(text[:most_characters])
    return shown if len(text) <= most_characters else f"{shown}..."


def _traceback(formatted: str) -> list[str]:
    """Return the lines of a traceback: bounded, and each fit for one line of a log."""
    lines = formatted.split("\n")
    if len(lines) > _MAX_TRACEBACK_LINES:
        lines[_MAX_TRACEBACK_LINES // 2 : -_MAX_TRACEBACK_LINES // 2] = ["..."]
    return [_on_one_line(one, _MAX_TRACEBACK_CHARACTERS) for one in lines]


def _left_out(record: logging.LogRecord) -> int:
    count = getattr(record, "left_out", 0)
    return count if isinstance(count, int) else 0


class JsonLines(logging.Formatter):
    """Formats a record as an object. `group`: without one the lines name none."""

    def __init__(self, group: str, node_id: str) -> None:
        super().__init__()
        self._group = {"group": group} if group else {}
        self._node_id = node_id

    def format(self, record: logging.LogRecord) -> str:
        """Format time, level, event, group and node; then the fields; then the text."""
        line: dict[str, object] = {
            "ts": _time(record),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", None) or _EVENTS.get(record.name, record.name),
            **self._group,
            "node": self._node_id,
        }
        for field in FIELDS:
            if (value := getattr(record, field, None)) is not None:
                line[field] = value
        line["message"] = _on_one_line(record.getMessage())
        if count := _left_out(record):
            line["left_out"] = count
        if record.exc_info:
            line["traceback"] = "\n".join(_traceback(self.formatException(record.exc_info)))
        return json.dumps(line, default=str)


class TextLines(logging.Formatter):
    def __init__(self, node_id: str, *, coloured: bool) -> None:
        super().__init__()
        self._node_id = node_id
        self._coloured = coloured

    def format(self, record: logging.LogRecord) -> str:
        level = record.levelname
        if self._coloured and record.levelno in _COLOURS:
            level = f"{_COLOURS[record.levelno]}{level}{_PLAIN}"
        message = _on_one_line(record.getMessage())
        text = f"{_time(record)} {self._node_id} {level} {message}"
        if count := _left_out(record):
            text += f" (and {count} more like it)"
        if record.exc_info:
            lines = _traceback(self.formatException(record.exc_info))
            text = "\n".join([text, *(f"    {one}" for one in lines)])
        return text


class FloodGate(logging.Filter):
    """Passes a few lines of one kind, then only counts them; the next one says how many.

    The kind of a line is its place in the program and its format, not its arguments.
    """

    def __init__(self) -> None:
        super().__init__()
        self._kinds: dict[tuple[str, str], list[float]] = {}  # begin of the window, lines, left out

    def filter(self, record: logging.LogRecord) -> bool:
        key = (record.name, str(record.msg))
        if len(self._kinds) >= _MAX_KINDS and key not in self._kinds:
            self._kinds.clear()
        kind = self._kinds.setdefault(key, [record.created, 0, 0])
        began, lines, _ = kind
        if record.created - began >= BURST_WINDOW_S:
            kind[0], lines = record.created, 0
        if lines >= BURST_LINES:
            kind[1] = lines
            kind[2] += 1
            return False
        kind[1] = lines + 1
        if kind[2]:
            record.left_out = int(kind[2])
            kind[2] = 0
        return True


def log_options(level: str | None, form: str | None = TEXT) -> Callable[[Decorated], Decorated]:
    """Declare --log-format and --log-level, with these defaults; None: not given."""
    return options(
        option(
            "--log-format",
            "Form of the log lines: text, or one JSON object a line.",
            type=click.Choice(_FORMATS),
            default=form,
        ),
        option("--log-level", "From where.", type=click.Choice(_LEVELS), default=level),
    )


def set_up_logging(
    group: str, node_id: str, form: str, level: str, limit: logging.Filter | None = None
) -> None:
    """Log in this form, from this level on. May be called repeatedly.

    `limit`: bounds the number of lines; a FloodGate if None.
    """
    said, progress = _handler(sys.stderr), _handler(sys.stdout)
    if form == JSON:
        said.setFormatter(JsonLines(group, node_id))
        progress.setFormatter(JsonLines(group, node_id))
    else:
        said.setFormatter(TextLines(node_id, coloured=sys.stderr.isatty()))
        progress.setFormatter(logging.Formatter("%(message)s"))
    said.addFilter(limit or FloodGate())
    logging.basicConfig(level=level.upper(), handlers=[said], force=True)
    logger = logging.getLogger(PROGRESS)
    logger.handlers = [progress]
    logger.propagate = False
    logger.setLevel(logging.INFO)


def _handler(stream: TextIO) -> logging.Handler:
    return logging.StreamHandler(stream)
