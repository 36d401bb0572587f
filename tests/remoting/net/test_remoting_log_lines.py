"""A client writes no line of a server's log, and no long one."""

import logging
import sys

import pytest

from dledger.commands.log_lines import TextLines
from remoting.net.log_lines import MAX_EVENT_CHARACTERS, LogLines
from remoting.wire.quoted import quoted

FORGED = "a\n2026-11-27 00:00:00,000 CRITICAL the disk is broken: delete its folder"


def record_of(text: object, error: BaseException | None = None) -> logging.LogRecord:
    info = None if error is None else (type(error), error, error.__traceback__)
    return logging.LogRecord("here", logging.WARNING, __file__, 1, "%s", (text,), info)


@pytest.mark.parametrize("formatter", [LogLines(), TextLines("n1", coloured=False)])
@pytest.mark.parametrize("text", [FORGED, "a\r\nb", "\x1b[2J", "\u202egpj", "a\0b", "a\u2028b"])
def test_an_event_is_one_line_that_can_be_printed(formatter: logging.Formatter, text: str) -> None:
    line = formatter.format(record_of(text))
    assert line.isprintable()
    assert text.encode("unicode_escape").decode() in line


@pytest.mark.parametrize("formatter", [LogLines(), TextLines("n1", coloured=False)])
def test_an_event_has_some_length(formatter: logging.Formatter) -> None:
    assert len(formatter.format(record_of("x" * 300_000))) < 2 * MAX_EVENT_CHARACTERS + 200


@pytest.mark.parametrize("formatter", [LogLines(), TextLines("n1", coloured=False)])
def test_a_traceback_stands_indented_behind_its_event(formatter: logging.Formatter) -> None:
    try:
        raise KeyError(FORGED + "\x1b[2J") from ValueError(FORGED)
    except KeyError as error:
        lines = formatter.format(record_of("x", error)).split("\n")
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
