"""What a query reads of a range if it may go on without lost and damaged entries.

A damaged entry costs as little as possible: itself if the index file says where the next one
begins, else the entries up to the end of its file. Finding damage takes reading the range once
more than without this.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from dledger_spark.errors import LogDamaged
from dledger_spark.log.entry_batches import BATCH_BYTES, entry_batches
from dledger_spark.log.log_folder import LogFolder
from dledger_spark.log.log_range import gaps_in

# A file with more damaged entries is left out from there on: each costs a search of its own.
MAX_DAMAGED = 1000


class LeftOut(NamedTuple):
    """Entries that are left out, both ends included, and why."""

    first: int
    last: int
    problem: str


def missing(log: LogFolder, entries: range) -> list[LeftOut]:
    """Return what of a range is in no file, in order. This reads no entries."""
    return [
        LeftOut(max(gap.first, entries.start), min(gap.last + 1, entries.stop) - 1, gap.problem)
        for gap in gaps_in(log, entries)
    ]


def unreadable(log: LogFolder, entries: range) -> list[LeftOut]:
    """Return what cannot be read of a range, in order. Raises SegmentGone."""
    found = missing(log, entries)
    damaged = [each for part in without(entries, found) for each in _damaged(log, part)]
    return joined([*found, *damaged])


def without(entries: range, left_out: Sequence[LeftOut]) -> list[range]:
    """Return the parts of a range that are not left out."""
    parts, at = [], entries.start
    for each in left_out:
        parts.append(range(at, min(each.first, entries.stop)))
        at = max(at, each.last + 1)
    parts.append(range(at, entries.stop))
    return [part for part in parts if part]


def split_at(left_out: Sequence[LeftOut], index: int) -> tuple[list[LeftOut], list[LeftOut]]:
    """Return what is left out before an entry, and the rest."""
    before = [each for each in left_out if each.first < index]
    return before, list(left_out[len(before) :])


def _damaged(log: LogFolder, part: range) -> Iterator[LeftOut]:
    at, count = part.start, 0
    while at < part.stop:
        try:
            for batch in entry_batches(
                log, range(at, part.stop), batch_bytes=BATCH_BYTES, checksums=True
            ):
                at += len(batch)
        except LogDamaged as damage:
            behind = _next_file(log, at, part.stop)
            # Without its place in the index, an entry is found only through those before it.
            if damage.entry is not None and damage.entry >= at and count < MAX_DAMAGED:
                behind = damage.entry + 1
            count = count + 1 if behind < _next_file(log, at, part.stop) else 0
            yield LeftOut(at, behind - 1, str(damage.problem))
            at = behind


def _next_file(log: LogFolder, index: int, stop: int) -> int:
    """Return the first entry of the file behind that of an entry; `stop` if it is not before."""
    later = (one.first_index for one in log.segments if one.first_index > index)
    return min(next(later, stop), stop)


def joined(found: Iterable[LeftOut]) -> list[LeftOut]:
    """Return ranges in order, adjacent ones as one with the problem of the first."""
    whole: list[LeftOut] = []
    for each in sorted(found):
        if whole and whole[-1].last + 1 >= each.first:
            whole[-1] = whole[-1]._replace(last=max(whole[-1].last, each.last))
        else:
            whole.append(each)
    return whole
