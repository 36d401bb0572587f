"""The fates of the packets of a link, in one direction. Pure."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any


@dataclass
class LinkCounts:
    """Numbers of packets from one host to another.

    Args:
        passed: those that the target took, copies among them.
        lost: those that the condition of the link lost or cut.
        held: those that were held up, copies among them.
        copied: those that came twice.
        overflowed: those that were lost because the switch held up as many as it may, or because
            the target took none. No condition asks for this: such a run was overloaded.
    """

    passed: int = 0
    lost: int = 0
    held: int = 0
    copied: int = 0
    overflowed: int = 0


Counts = dict[tuple[str, str], LinkCounts]


def counts_rows(counts: Counts) -> list[list[object]]:
    return [[source, target, *astuple(one)] for (source, target), one in counts.items()]


def parse_counts(rows: list[list[Any]]) -> Counts:
    return {(source, target): LinkCounts(*numbers) for source, target, *numbers in rows}
