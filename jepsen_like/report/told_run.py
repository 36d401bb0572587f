"""The content of a report of a run."""

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
    """One fault, with times of the clock of the history; `end_ns` is None if it lasted to the
    end.
    """

    name: str
    target: str
    begin_ns: int
    end_ns: int | None


class Death(NamedTuple):
    """A process that ended although no part of the run ended it, or that a nemesis killed."""

    process: str
    time_ns: int
    last_line: str
    done: str
    expected: bool


class GapRow(NamedTuple):
    """The gaps of one kind of fault, for clients of one sort.

    A gap is the longest time in a window without an ok of one client. One that the window cut off
    is `unended`: it may have been longer.
    """

    kind: str
    who: str
    windows: int
    gaps: int
    unended: int
    median_s: float
    p95_s: float
    max_s: float


class Checked(NamedTuple):
    """A checker and its report on the history."""

    model: str
    report: Report


class Link(NamedTuple):
    """A file beside the page."""

    name: str
    path: str


@dataclass(frozen=True)
class ToldRun:
    """A run, as a report describes it.

    `left_out` are faults that could not be made on this machine. `deliveries` are functions of
    deliveries to consumers, which are noted when they happen and have no latency.
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
