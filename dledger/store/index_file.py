"""Reads index units: where an entry lies, and where the runs of equal terms begin."""

from __future__ import annotations

from collections.abc import Callable

from dledger.core.ledger_view import TermRun
from dledger.store.index_unit import UNIT, UNIT_BYTES, IndexUnit
from dledger.store.segment import SegmentFiles


def read_unit(index_files: SegmentFiles, index: int) -> IndexUnit | None:
    """Read the unit of an entry; None if the files hold none for it."""
    pos = index * UNIT_BYTES
    if not index_files.begin <= pos < index_files.end:
        return None
    raw = index_files.read(UNIT_BYTES, pos)
    if len(raw) < UNIT_BYTES:
        return None
    unit = IndexUnit._make(UNIT.unpack(raw))
    return unit if unit.index == index and unit.pos >= 0 and unit.size > 0 else None


def term_runs(
    unit_at: Callable[[int], IndexUnit | None], first: int, last: int
) -> list[TermRun] | None:
    """Find the term runs of first..last by binary search: terms never decrease along a log.

    Reads about log2(last - first) units for each run. None if a unit is missing.
    """
    runs: list[TermRun] = []
    start = first
    while start <= last:
        unit = unit_at(start)
        if unit is None:
            return None
        runs.append(TermRun(unit.term, start))
        low, high = start, last + 1  # low has the term; high does not
        step = 1
        while low + step < high:  # gallop: runs at the end are short
            probe = unit_at(low + step)
            if probe is None:
                return None
            if probe.term != unit.term:
                high = low + step
                break
            low += step
            step *= 2
        while high - low > 1:
            middle = (low + high) // 2
            probe = unit_at(middle)
            if probe is None:
                return None
            if probe.term == unit.term:
                low = middle
            else:
                high = middle
        start = high
    return runs
