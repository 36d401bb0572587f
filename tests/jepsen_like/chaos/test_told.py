"""What a report is told of a run: faults, deaths, and what was left out."""

from __future__ import annotations

from jepsen_like.chaos.told import deaths_of, faults_of, skipped_of
from jepsen_like.report.told_run import Death, Fault

EVENTS: list[dict[str, object]] = [
    {"event": "begin", "fault": 1, "kind": "halves", "targets": ["n0", "n1"], "time_ns": 50},
    {"event": "begin", "fault": 0, "kind": "kill-leader", "targets": ["n2"], "time_ns": 10},
    {"event": "down", "member": "n2", "exit_code": -9, "expected": True, "time_ns": 11},
    {"event": "end", "fault": 0, "kind": "kill-leader", "time_ns": 40},
    {
        "event": "down",
        "member": "n0",
        "exit_code": 1,
        "expected": False,
        "last_words": "LogCorrupt: broken",
        "done": "dledger rejoin",
        "time_ns": 60,
    },
    {
        "event": "skipped",
        "fault": 2,
        "kind": "transfer",
        "reason": "no leader",
        "time_ns": 70,
    },
    {
        "event": "skipped",
        "fault": 3,
        "kind": "transfer",
        "reason": "no leader",
        "time_ns": 80,
    },
]


def test_faults_stand_in_the_order_in_which_they_began() -> None:
    assert list(faults_of(EVENTS)) == [
        Fault("kill-leader", "n2", 10, 40),
        Fault("halves", "n0, n1", 50, None),
    ]


def test_deaths_have_the_last_words_and_what_was_done() -> None:
    assert list(deaths_of(EVENTS)) == [
        Death("n2", 11, "exit code -9", "started again", True),
        Death("n0", 60, "LogCorrupt: broken", "dledger rejoin", False),
    ]


def test_a_reason_to_leave_faults_out_is_told_once() -> None:
    assert skipped_of(EVENTS) == ["transfer: no leader"]
