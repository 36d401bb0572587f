"""A client writes no line of a server's log, and no long one."""

import json
import logging
import sys

import pytest

from dledger.command_line.log_lines import MAX_EVENT_CHARACTERS, JsonLines, TextLines
from remoting.wire.quoted import quoted

FORGED = "a\n2026-11-27 00:00:00,000 CRITICAL the disk is broken: delete its folder"


def record_of(text: object, error: BaseException | None = None) -> logging.LogRecord:
    info = None if error is None else (type(error), error, error.__traceback__)
    return logging.LogRecord("here", logging.WARNING, __file__, 1, "%s", (text,), info)


FORMATS: list[logging.Formatter] = [JsonLines("g", "n1"), TextLines("n1", coloured=False)]


@pytest.mark.parametrize("formatter", FORMATS)
@pytest.mark.parametrize("text", [FORGED, "a\r\nb", "\x1b[2J", "\u202egpj", "a\0b", "a\u2028b"])
def test_an_event_is_one_line_that_can_be_printed(formatter: logging.Formatter, text: str) -> None:
    line = formatter.format(record_of(text))
    assert line.isprintable()
    if isinstance(formatter, JsonLines):
        line = json.loads(line)["message"]
        assert line.isprintable()
    assert text.encode("unicode_escape").decode() in line


@pytest.mark.parametrize("formatter", FORMATS)
def test_an_event_has_some_length(formatter: logging.Formatter) -> None:
    assert len(formatter.format(record_of("x" * 300_000))) < 2 * MAX_EVENT_CHARACTERS + 200


def test_a_traceback_stands_indented_behind_its_event() -> None:
    try:
        raise KeyError(FORGED + "\x1b[2J" + "z" * 10_000) from ValueError(FORGED)
    except KeyError as error:
        lines = FORMATS[1].format(record_of("x", error)).split("\n")
        told = json.loads(FORMATS[0].format(record_of("x", error)))["traceback"].split("\n")
    assert told == [line.removeprefix("    ") for line in lines[1:]]
    assert all(len(line) < 600 for line in lines)
    assert sys.exc_info() == (None, None, None)
    assert len(lines) > 3
    assert all(line.startswith("    ") for line in lines[1:])
    assert all(line.isprintable() for line in lines)


def test_a_text_is_quoted_as_it_reads_and_shortened() -> None:
    assert quoted("plain") == "plain"
    assert quoted("ä € \U0001f600") == "ä € \U0001f600"
    assert quoted("a\nb\ud800") == "a\\nb\\ud800"
    assert quoted("x" * 300) == "x" * 120 + "... (180 characters more)"
    assert quoted(ValueError("a\tb")) == "a\\tb"
