"""What `dledger serve` says: one event a line, and no floods."""

from __future__ import annotations

import json
import logging

from dledger.command_line.log_lines import (
    BURST_LINES,
    BURST_WINDOW_S,
    FloodGate,
    JsonLines,
    TextLines,
    set_up_logging,
)


def record(text: str, *arguments: object, at: float = 0.0, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("dledger.x", logging.WARNING, "x.py", 1, text, arguments, None)
    made.created = at
    made.__dict__.update(fields)
    return made


def test_a_json_line_has_stable_names_and_the_text() -> None:
    line = json.loads(
        JsonLines("g", "n0").format(
            record("peer %s lost it", "n1", at=1.5, event="doubt", peer="n1", term=3)
        )
    )
    assert line == {
        "ts": "1970-01-01T00:00:01.500Z",
        "level": "warning",
        "event": "doubt",
        "group": "g",
        "node": "n0",
        "term": 3,
        "peer": "n1",
        "message": "peer n1 lost it",
    }


def test_a_line_that_names_no_event_has_that_of_its_module() -> None:
    made = record("refused")
    made.name = "dledger.serving.listener"
    assert json.loads(JsonLines("g", "n0").format(made))["event"] == "connection_refused"


def test_text_is_coloured_only_where_it_is_read_at_once() -> None:
    assert "\x1b[33mWARNING" in TextLines("n0", coloured=True).format(record("a"))
    plain = TextLines("n0", coloured=False).format(record("a"))
    assert plain == "1970-01-01T00:00:00.000Z n0 WARNING a"


def test_a_flood_is_counted_and_told_with_the_next_line() -> None:
    gate = FloodGate()
    passed = [gate.filter(record("slow %d", n, at=n * 0.001)) for n in range(100)]
    assert passed.count(True) == BURST_LINES
    assert gate.filter(record("another", at=0.2))
    late = record("slow %d", 100, at=BURST_WINDOW_S)
    assert gate.filter(late)
    text = TextLines("n0", coloured=False).format(late)
    assert text.endswith(f"slow 100 (and {100 - BURST_LINES} more like it)")
    again = record("slow %d", 101, at=BURST_WINDOW_S + 0.1)
    assert gate.filter(again)
    assert "more like it" not in TextLines("n0", coloured=False).format(again)


def test_the_gate_remembers_a_bounded_number_of_kinds() -> None:
    gate = FloodGate()
    assert all(gate.filter(record(f"kind {n}")) for n in range(5_000))


def test_logging_set_up_again_says_everything_once(capfd: object) -> None:
    before = logging.getLogger().handlers[:]
    level = logging.getLogger().level
    try:
        set_up_logging("g", "n0", "text", "info")
        set_up_logging("g", "n0", "json", "warning")
        assert len(logging.getLogger().handlers) == 1
        assert len(logging.getLogger("dledger.progress").handlers) == 1
        assert logging.getLogger().level == logging.WARNING
    finally:
        logging.getLogger("dledger.progress").handlers = []
        logging.getLogger("dledger.progress").propagate = True
        logging.basicConfig(level=level, handlers=before, force=True)
