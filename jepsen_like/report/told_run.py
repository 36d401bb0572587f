"""What a report tells of a run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from jepsen_like.checkers.report import Report
from jepsen_like.history.operation import Operation


class RunExit(IntEnum):
    """How a run ended: the exit statuses of `jepsen-like run`."""

    NOTHING_FOUND = 0
    VIOLATION = 1
    UNDECIDED = 2
    HARNESS_FAILED = 3


class Fault(NamedTuple):
    """One fault: what was done, to whom, and when it began and ended.

    Attributes:
        name: the nemesis, as it is named on the command line.
        target: the members or links that it was done to, in words.
        begin_ns: when it began, on the clock of the history.
        end_ns: when it was over; None if it was not over when the run ended.
    """

    name: str
    target: str
    begin_ns: int
    end_ns: int | None


class Death(NamedTuple):
    """A process that ended although nobody ended it, or that was killed.

    Attributes:
        process: the member or client.
        time_ns: when, on the clock of the history.
        last_line: the last line of its log.
        done: what the supervisor did about it.
        expected: whether a nemesis had killed it.
    """

    process: str
    time_ns: int
    last_line: str
    done: str
    expected: bool


class GapRow(NamedTuple):
    """How long something was not available, by fault; times are nanoseconds."""

    fault: str
    what: str
    times: int
    median_ns: int
    p95_ns: int
    longest_ns: int


class Checked(NamedTuple):
    """A checker and what it says of the history."""

    model: str
    report: Report


class Link(NamedTuple):
    """A file beside the page."""

    name: str
    path: str


@dataclass(frozen=True)
class ToldRun:
    """A run, as a report tells of it.

    Attributes:
        title: workload, nemeses and nodes in a line.
        outcome: how it ended.
        reason: the same in a sentence.
        command: the command that runs it again.
        facts: settings and versions, by name.
        operations: the history, in the order of the calls.
        checks: what the checkers say.
        faults: what was broken, in the order of the beginnings.
        deaths: processes that ended.
        gaps: availability by fault.
        left_out: what could not be done on this machine, a line each.
        links: the files of the run.
        deliveries: functions of operations that consumers are told of and do not call: they are
            noted when they are there, and have no latency.
    """

    title: str
    outcome: RunExit
    reason: str
    command: str
    facts: Sequence[tuple[str, str]]
    operations: Sequence[Operation]
    checks: Sequence[Checked]
    faults: Sequence[Fault]
    deaths: Sequence[Death]
    gaps: Sequence[GapRow]
    left_out: Sequence[str]
    links: Sequence[Link]
    deliveries: Collection[str] = ()
