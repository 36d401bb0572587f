"""Reads entries of a log back from its files, and checks them."""

from __future__ import annotations

from dledger.core.snapshot.snapshot_offer import LogBegin
from dledger.entry import BEFORE_FIRST_INDEX, HEADER_BYTES, Header, decode_header
from dledger.errors import BatchInvalid, LogCorrupt, OutsideLog
from dledger.store.batch import check_run
from dledger.store.index_file import LogIndex
from dledger.store.index_unit import UNIT_BYTES, IndexUnit
from dledger.store.log_extent import LogExtent
from dledger.store.placement import segment_end
from dledger.store.recovered import SegmentBegin
from dledger.store.segment import SegmentFiles
from dledger.store.store_health import StoreHealth


class LogReader:
    """The entries of one store, by index and by position.

    Args:
        data: the files of the entries.
        index: says where each entry lies.
        extent: where the log begins and ends.
        health: ended by an error of the disk, and by bytes other than those that were written.
        unchecked_through: the sums of entries up to here are not checked.
    """

    __slots__ = ("_checked", "_data", "_extent", "_health", "_index", "_unchecked_through")

    def __init__(
        self,
        data: SegmentFiles,
        index: LogIndex,
        extent: LogExtent,
        health: StoreHealth,
        unchecked_through: int,
    ) -> None:
        self._data = data
        self._index = index
        self._extent = extent
        self._health = health
        self._unchecked_through = unchecked_through
        # The last entry that was read back, and its chain: the check of the next one starts here.
        self._checked = (BEFORE_FIRST_INDEX, 0)

    def forget(self) -> None:
        """Forget the last entry that was read back: the log was cut."""
        self._checked = (BEFORE_FIRST_INDEX, 0)

    # --- one entry ----------------------------------------------------------------------------

    def unit(self, index: int) -> IndexUnit:
        """Read the index unit of an entry. Raises OutsideLog, LogCorrupt, DiskFailed."""
        extent = self._extent
        if not extent.first_index <= index <= extent.last_index:
            raise OutsideLog("entry", index, extent.first_index, extent.last_index)
        with self._health.disk_work("read"):
            unit = self._index.unit(index)
        if unit is None or not extent.begin_pos <= unit.pos < unit.end <= extent.end_pos:
            problem = f"the index unit of entry {index} is broken"
            self._health.fail(
                LogCorrupt(self._index.files.path(index * UNIT_BYTES), index * UNIT_BYTES, problem)
            )
        return unit

    def chain_at(self, index: int) -> int:
        """Return the chainCrc of an entry; of the entry before the first one, 0 if unknown."""
        extent = self._extent
        if index == extent.first_index - 1:
            return extent.before_begin_chain
        if index == extent.last_index:
            return extent.last_chain
        return self.header_at(index).chain_crc

    def header_at(self, index: int) -> Header:
        self._health.check()
        unit = self.unit(index)
        with self._health.disk_work("read"):
            header = decode_header(self._data.read(HEADER_BYTES, unit.pos))
        if header.index != index or header.pos != unit.pos:
            at = unit.pos % self._data.segment_bytes
            problem = f"no header of entry {index} at the position in its index unit"
            self._health.fail(LogCorrupt(self._data.path(unit.pos), at, problem))
        return header

    # --- runs of entries ----------------------------------------------------------------------

    def read_run(self, first: int, last: int, max_bytes: int) -> tuple[int, bytes]:
        """Read whole adjacent entries of one segment: `first`, and more up to `last`.

        Reads at least one entry, then as many as fit into `max_bytes`; returns the index of the
        last one, and the bytes. Checks every sum, so that no damaged entry is applied or sent.

        Raises:
            OutsideLog: there is no entry `first`.
            LogCorrupt: terminal: the disk returned other bytes than were written.
            DiskFailed: terminal.
        """
        last, raw = self.read_unchecked(first, last, max_bytes)
        before, chain = self._checked
        if before != first - 1:
            chain = self.chain_at(first - 1)
        unknown = not chain and first == self._extent.first_index > 0
        try:
            self._checked = (
                last,
                check_run(raw, first, None if unknown else chain, self._unchecked_through),
            )
        except BatchInvalid as error:
            pos = self.unit(first).pos
            offset = pos % self._data.segment_bytes
            self._health.fail(
                LogCorrupt(self._data.path(pos), offset, f"read back: {error.problem}")
            )
        return last, raw

    def read_unchecked(self, first: int, last: int, max_bytes: int) -> tuple[int, bytes]:
        """Read entries like `read_run`, without checking the sums, for callers that check them."""
        self._health.check()
        unit = self.unit(first)
        last = min(last, self._extent.last_index)
        limit = min(unit.pos + max_bytes, segment_end(unit.pos, self._data.segment_bytes))
        end = unit.end
        low, high = first, last + 1
        if last > first:
            final = self.unit(last)
            if final.end <= limit:
                low, end = last, final.end
        while high - low > 1:
            middle = (low + high) // 2
            probe = self.unit(middle)
            if probe.end <= limit:
                low, end = middle, probe.end
            else:
                high = middle
        with self._health.disk_work("read"):
            return low, self._data.read(end - unit.pos, unit.pos)

    def read_bytes(self, pos: int, size: int) -> bytes:
        """Read `size` bytes of the log at `pos`, within one segment and before the log's end.

        Raises:
            OutsideLog: some of them are not in the log, or in another segment.
        """
        self._health.check()
        extent, end = self._extent, pos + size
        last = min(extent.end_pos, segment_end(pos, self._data.segment_bytes)) - 1
        if pos < extent.begin_pos or end - 1 > last or size < 0:
            raise OutsideLog("byte", max(pos, end - 1), extent.begin_pos, last)
        try:  # a `with` takes half as long as the read
            return self._data.read(size, pos)
        except OSError as cause:
            self._health.disk_failed("read", cause)

    def check_at(self, pos: int) -> None:
        """Check the sums of the entry that holds the byte at `pos`, as `read_run` does.

        Raises OutsideLog, LogCorrupt, DiskFailed.
        """
        extent = self._extent
        if not extent.begin_pos <= pos < extent.end_pos:
            raise OutsideLog("byte", pos, extent.begin_pos, extent.end_pos - 1)
        index = self.last_before(pos, extent.last_index) + 1
        self.read_run(index, index, 0)

    # --- segments -----------------------------------------------------------------------------

    def segment_begin(self, index: int) -> SegmentBegin:
        """Return the position and the first entry of the segment that holds an entry.

        Raises OutsideLog, DiskFailed.
        """
        self._health.check()
        extent, pos = self._extent, self.unit(index).pos
        pos -= pos % self._data.segment_bytes
        if pos <= extent.begin_pos:
            return SegmentBegin(extent.begin_pos, extent.first_index)
        return SegmentBegin(pos, self.last_before(pos, index) + 1)

    def last_before(self, pos: int, index: int) -> int:
        """Find the last entry that ends at `pos` or before; entry `index` ends later."""
        low, high = self._extent.first_index - 1, index
        while high - low > 1:
            middle = (low + high) // 2
            if self.unit(middle).end <= pos:
                low = middle
            else:
                high = middle
        return low

    def begin_for(self, index: int) -> LogBegin:
        """Return where the log of a member begins that installs the state after entry `index`."""
        extent = self._extent
        pos, first = extent.begin_pos, extent.first_index
        if index != first - 1:
            pos, first = self.segment_begin(index)
        return LogBegin(first - 1, extent.view.term_at(first - 1), self.chain_at(first - 1), pos)
