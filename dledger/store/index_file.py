"""The index units of a log: where an entry lies, and where the runs of equal terms begin.

The units of the newest entries are in memory only: each can be made again from its entry. They are
written many at a time, and at the latest before

* a checkpoint counts on them (a start does not look at the entries before it);
* a record names their entries as committed: other processes read the files up to there;
* the store is closed.
"""

from __future__ import annotations

from collections.abc import Callable

from dledger.core.ledger_view import TermRun
from dledger.store.disk import SyncFailed
from dledger.store.index_unit import UNIT, UNIT_BYTES, IndexUnit
from dledger.store.segment import SegmentFiles
from dledger.system_refusals import Kind, is_of

# Units are written once so many bytes of them are in memory: 1024 entries. One write for each of
# them would cost as much as the write of its entry. More would not save much.
MAX_UNWRITTEN_BYTES = 32 * 1024


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


class LogIndex:
    """The units of an open log. Errors of the disk pass through as OSError.

    Args:
        files: the index files; they hold the units of all entries before `next_index`.
        next_index: the entry whose unit is added next.
    """

    __slots__ = ("_first", "_unwritten", "files")

    def __init__(self, files: SegmentFiles, next_index: int) -> None:
        self.files = files
        self._first = next_index
        self._unwritten = bytearray()  # the units from entry `_first` on

    @property
    def is_due(self) -> bool:
        """Whether so many units are in memory that they should be written."""
        return len(self._unwritten) >= MAX_UNWRITTEN_BYTES

    def add(self, units: bytes) -> None:
        """Keep the units of the log's next entries."""
        self._unwritten += units

    def write(self) -> None:
        """Write all units; not durable. After an error they are still in memory."""
        units = bytes(self._unwritten)
        if units:
            self.files.write(units, self._first * UNIT_BYTES)
            self._first += len(units) // UNIT_BYTES
            self._unwritten.clear()

    def write_if_room(self) -> bool:
        """Write all units; return False if there is no room for them."""
        try:
            self.write()
        except OSError as error:
            if isinstance(error, SyncFailed) or not is_of(Kind.ROOM, error):
                raise
            return False
        return True

    def unit(self, index: int) -> IndexUnit | None:
        """Return the unit of an entry; None if the files do not hold it."""
        at = (index - self._first) * UNIT_BYTES
        if at < 0:
            return read_unit(self.files, index)
        return IndexUnit._make(UNIT.unpack_from(self._unwritten, at))

    def cut_after(self, index: int, last: int) -> None:
        """Drop the units after `index`, up to that of `last`.

        No sync: recovery compares them with the data.
        """
        files, unit_end = self.files, (index + 1) * UNIT_BYTES
        size = files.segment_bytes
        files.drop_from(max(-(-unit_end // size) * size, files.begin + size))
        files.zero(unit_end, min((last + 1) * UNIT_BYTES, files.end))
        del self._unwritten[max(0, index + 1 - self._first) * UNIT_BYTES :]
        self._first = min(self._first, index + 1)

    def forget_before(self, index: int) -> list[str]:
        """Drop the units before `index`; return the files that hold no others, to be removed."""
        if index > self._first:
            del self._unwritten[: (index - self._first) * UNIT_BYTES]
            self._first = index
        return self.files.forget_before(index * UNIT_BYTES)


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
