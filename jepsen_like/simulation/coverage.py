"""Counts of what runs reached: a simulation that never truncates tests no truncation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

# The counts that a few hundred seeds together must reach, each at least once.
EXPECTED = (
    "acknowledged appends",
    "appends refused for lack of room",
    "changes in force",
    "disks that others filled",
    "duplicated messages",
    "early elections",
    "elections",
    "failed folder syncs",
    "failed renames",
    "failed syncs",
    "follower reads",
    "groups noted as grown",
    "joint phases",
    "kills",
    "kills inside disk calls",
    "late flushes",
    "leaders deposed by a higher term",
    "leaders deposed by silence",
    "leaders deposed by their disks",
    "leaders forgotten",
    "leaders removed",
    "leaders taken for gone",
    "lease reads",
    "logs begun anew",
    "logs cut at the beginning",
    "lost messages",
    "members proven after a loss",
    "members told to stand",
    "mislaid disks",
    "nodes closed in order",
    "one-way cuts",
    "partitions",
    "pauses",
    "power cuts",
    "power cuts inside disk calls",
    "power cuts during recovery",
    "quick syncs",
    "reads",
    "reads given up",
    "refused changes",
    "refused probes",
    "resent pushes cut",
    "restored folders",
    "segment rolls",
    "session appends applied",
    "session appends forgotten",
    "session appends repeated",
    "sessions ended by time",
    "sessions that clients lost",
    "snapshots awaited after a crash",
    "snapshots installed",
    "snapshots restored at the start",
    "snapshots that another one replaced",
    "spare files made",
    "stalls of all members",
    "stalls of some members",
    "transfers",
    "truncations",
    "unknown appends",
    "whole scrubs of a log",
    "wiped disks",
    "wiped disks in groups that change",
    "wiped disks of first members of grown groups",
    "writes without room",
    "wrong signs of an end",
)


class Coverage:
    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def count(self, what: str, number: int = 1) -> None:
        self._counts[what] += number

    def add(self, counts: Mapping[str, int]) -> None:
        self._counts.update(counts)

    def counts(self) -> dict[str, int]:
        return {name: self._counts[name] for name in sorted(self._counts)}

    def missing(self, expected: Iterable[str] = EXPECTED) -> list[str]:
        return [name for name in expected if not self._counts[name]]
