"""A run tells each failure at once, that of a test which runs again included."""

from __future__ import annotations

from typing import cast

import pytest

from tests.run_report import FailuresAtOnce


class Terminal:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def write_line(self, line: str) -> None:
        self.lines.append(line)


def told(outcome: str) -> str:
    terminal = Terminal()
    report = pytest.TestReport(
        nodeid="tests/a.py::test_a",
        location=("tests/a.py", 1, "test_a"),
        keywords={},
        outcome=outcome,  # type: ignore[arg-type]  # "rerun" is of pytest-rerunfailures
        longrepr=None if outcome == "passed" else "line 7\nassert 1 == 2",
        when="call",
        sections=[("Captured log call", "WARNING the disk is full")],
        duration=1.25,
    )
    FailuresAtOnce(cast(pytest.TerminalReporter, terminal)).pytest_runtest_logreport(report)
    return "\n".join(terminal.lines)


def test_the_first_failure_of_a_test_that_runs_again_is_told_whole() -> None:
    text = told("rerun")
    assert "tests/a.py::test_a failed after 1.2 s" in text
    assert "and runs again:\nline 7\nassert 1 == 2\nWARNING the disk is full" in text


def test_a_failure_is_told_in_a_line_when_it_happens() -> None:
    text = told("failed")
    assert "call of tests/a.py::test_a failed after 1.2 s" in text
    assert text.endswith(": line 7")


def test_a_test_that_passed_is_not_told() -> None:
    assert told("passed") == ""
