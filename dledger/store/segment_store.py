"""The log over segment files.

Order of durability. A sync makes the data files durable first, the record of term and vote
second, so that the record's `committed` may count what the same sync made durable. Neither is
acknowledged before both are there. A crash between them leaves entries of a term that the record
does not know yet: `open_store` then raises the term and leaves the vote empty, which is safe,
for a vote in that term would have been in the record.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import NoReturn

from dledger.core.hard_state import HardState
from dledger.core.ledger_view import LedgerView, TermRun
from dledger.entry import (
    BLANK_BYTES,
    HEADER_BYTES,
    Body,
    Header,
    decode_header,
)
from dledger.errors import DiskFailed, Fatal, InvariantBroken, LogCorrupt, OutsideLog
from dledger.store.batch import BatchFacts
from dledger.store.hard_state_file import HardStateFile, StoreRecord
from dledger.store.index_file import read_unit
from dledger.store.index_unit import UNIT_BYTES, IndexUnit
from dledger.store.placement import LogEnd, filler, place, segment_end
from dledger.store.recovery import Recovered, SegmentBegin
from dledger.store.segment import SegmentFiles
from dledger.store.spare_segments import SpareSegments
from dledger.store.store_files import StoreFiles
from dledger.store.sync_work import SegmentSyncWork


class SegmentStore:
    """A `LogStore` over files; made by `open_store`.

    Attributes:
        recovered: what was found when the store was opened.
    """

    def __init__(
        self, files: StoreFiles, record: StoreRecord, recovered: Recovered, body_limit: int
    ) -> None:
        self._files = files
        self._data: SegmentFiles = files.data
        self._index: SegmentFiles = files.index
        self._hard_state_file: HardStateFile = files.hard_state
        self._spares: SpareSegments = files.spares
        self.recovered = recovered
        self._body_limit = body_limit
        self._record = record  # the last one that is durable
        self._view = LedgerView(
            recovered.runs,
            last_index=recovered.last_index,
            before_begin=recovered.first_index - 1,
            before_begin_term=recovered.before_begin_term,
        )
        self._begin_pos = recovered.begin_pos
        self._end_pos = recovered.end_pos
        self._last_chain = recovered.last_chain
        self._segments = list(recovered.segments)
        self._epoch = 0
        self._synced_index = recovered.last_index
        self._index_synced_through = recovered.last_index
        self._committed = record.committed
        self._record_wanted = False
        self._work: SegmentSyncWork | None = None
        self._failure: Fatal | None = None
        self._closed = False

    # --- what is there ------------------------------------------------------------------------

    @property
    def first_index(self) -> int:
        """The first entry kept."""
        return self._view.before_begin + 1

    @property
    def last_index(self) -> int:
        """The last entry, durable or not."""
        return self._view.last_index

    @property
    def last_term(self) -> int:
        """Term of the last entry."""
        return self._view.last_term

    @property
    def begin_pos(self) -> int:
        """Position of the first entry kept."""
        return self._begin_pos

    @property
    def end_pos(self) -> int:
        """Position of the byte behind the last entry."""
        return self._end_pos

    @property
    def epoch(self) -> int:
        """Grows by one with every truncation."""
        return self._epoch

    @property
    def segment_bytes(self) -> int:
        """Length of the data files: what the files say, whatever was configured."""
        return self._data.segment_bytes

    @property
    def unchecked_through(self) -> int:
        """Entries up to here were written by Java: their CRC fields mean nothing. -1: none."""
        return self._record.unchecked_through

    @property
    def hard_state(self) -> HardState:
        """The hard state that is durable now."""
        self._settle()
        return self._record.hard_state

    def term_runs(self) -> list[TermRun]:
        """The runs of equal terms."""
        return list(self._view.runs(self.first_index, self.last_index))

    def view(self) -> LedgerView:
        """A new view for the core."""
        return LedgerView(
            self.term_runs(),
            last_index=self.last_index,
            before_begin=self._view.before_begin,
            before_begin_term=self._view.before_begin_term,
        )

    def term_at(self, index: int) -> int:
        """The term of an entry; NO_TERM outside of the log."""
        return self._view.term_at(index)

    # --- writing ------------------------------------------------------------------------------

    def append(self, term: int, magic: int, bodies: Sequence[Body]) -> tuple[int, int]:
        """Encode and write entries; first and last index.

        Raises:
            EntryTooLarge: one body is too large; none was written.
            InvariantBroken: no bodies, or a term below the last one.
            DiskFailed: terminal.
        """
        self._check_usable()
        if not bodies:
            raise InvariantBroken("append of no entries")
        if term < self.last_term:
            raise InvariantBroken(f"append in term {term} behind an entry of {self.last_term}")
        first = self.last_index + 1
        end = LogEnd(first, self._end_pos, self._last_chain)
        placed = place(term, magic, bodies, end, self._data.segment_bytes, self._body_limit)
        with self._disk_work("append to"):
            for pos, run in placed.runs:
                if run:
                    self._data.write(run, pos)
            self._index.write(placed.index_units, first * UNIT_BYTES)
        self._note_segments(placed.index_units, first, len(bodies), placed.end_pos)
        self._view.extend(term, len(bodies))
        self._end_pos = placed.end_pos
        self._last_chain = placed.last_chain
        return first, self.last_index

    def write_batch(self, raw: bytes, facts: BatchFacts) -> None:
        """Write verified entries at the positions in them.

        Raises:
            InvariantBroken: they do not follow the log, or the leader's segments have another
                length than ours.
            DiskFailed: terminal.
        """
        self._check_usable()
        segment_bytes = self._data.segment_bytes
        pos = facts.first_pos
        if facts.first_index != self.last_index + 1:
            raise InvariantBroken(
                f"batch from entry {facts.first_index} behind entry {self.last_index}"
            )
        if facts.term_runs[0].term < self.last_term:
            raise InvariantBroken(
                f"batch of term {facts.term_runs[0].term} behind an entry of {self.last_term}"
            )
        if facts.end_pos + BLANK_BYTES > segment_end(pos, segment_bytes):
            raise InvariantBroken(
                f"batch at {pos}..{facts.end_pos} crosses a segment of {segment_bytes} bytes: "
                "set the same segment_bytes on all nodes"
            )
        with self._disk_work("write a batch to"):
            if pos != self._end_pos:
                self._open_segment_for(pos)
            self._data.write(raw, pos)
            self._index.write(facts.index_units, facts.first_index * UNIT_BYTES)
        count = facts.last_index - facts.first_index + 1
        self._note_segments(facts.index_units, facts.first_index, count, facts.end_pos)
        runs = facts.term_runs
        for at, run in enumerate(runs):
            end = runs[at + 1].first_index if at + 1 < len(runs) else facts.last_index + 1
            self._view.extend(run.term, end - run.first_index)
        self._end_pos = facts.end_pos
        self._last_chain = facts.last_chain

    def _open_segment_for(self, pos: int) -> None:
        """Close the last segment with a blank, for a batch that begins the next one."""
        segment_bytes = self._data.segment_bytes
        if self.last_index < self.first_index and pos % segment_bytes == 0:
            # Nothing is kept yet: the log may begin at any segment (it does behind old files of
            # a Java broker that was migrated).
            self._data.drop_from(self._data.begin)
            self._data.create(pos)
            self._begin_pos = self._end_pos = pos
            self._segments = [SegmentBegin(pos, self.last_index + 1)]
            return
        if pos != segment_end(self._end_pos, segment_bytes):
            raise InvariantBroken(f"batch at position {pos} behind the log's end {self._end_pos}")
        self._data.write(filler(self._end_pos, segment_bytes), self._end_pos)

    def _note_segments(self, units: bytes, first: int, count: int, end_pos: int) -> None:
        """Remember which entry begins each segment that the new entries opened."""
        newest = self._segments[-1]
        segment_bytes = self._data.segment_bytes
        if self.last_index < newest.first_index:
            self._segments[-1] = newest = SegmentBegin(newest.pos, first)
        if end_pos <= newest.pos + segment_bytes:
            return
        begin = newest.pos
        for at in range(count):
            pos = int.from_bytes(units[at * UNIT_BYTES + 4 : at * UNIT_BYTES + 12], "big")
            if pos >= begin + segment_bytes:
                begin = pos - pos % segment_bytes
                self._segments.append(SegmentBegin(begin, first + at))

    def truncate_after(self, index: int) -> None:
        """Drop every entry behind `index`; durable when it returns.

        What is cut away is zeroed and synced before anything is written in its place. So a crash
        can bring back old entries only as long as nobody was told that they are gone, and new
        bytes never mix with old ones.

        Raises:
            InvariantBroken: the cut would reach committed entries, or before the log's begin.
            DiskFailed: terminal.
        """
        self._check_usable()
        if index >= self.last_index:
            return
        if index < self._committed:
            raise InvariantBroken(f"cut behind {index}, but {self._committed} is committed")
        if index < self.first_index - 1:
            raise InvariantBroken(f"cut behind {index}, before the begin {self.first_index}")
        segment_bytes = self._data.segment_bytes
        if index < self.first_index:
            end_pos, chain = self._begin_pos, self._record.before_begin_chain
        else:
            end_pos, chain = self._unit(index).end, self.chain_at(index)
        with self._disk_work("truncate"):
            self._data.drop_from(segment_end(end_pos, segment_bytes))
            if self._data.starts:
                self._data.zero(end_pos, min(self._data.end, segment_end(end_pos, segment_bytes)))
                self._data.sync_now(end_pos)
            self._truncate_index(index)
        self._view.truncate_after(index)
        self._end_pos = end_pos
        self._last_chain = chain
        while len(self._segments) > 1 and self._segments[-1].first_index > index:
            self._segments.pop()
        self._synced_index = min(self._synced_index, index)
        self._index_synced_through = min(self._index_synced_through, index)
        self._epoch += 1

    def _truncate_index(self, index: int) -> None:
        """Zero the units behind `index`. No sync: recovery compares them with the data."""
        unit_end = (index + 1) * UNIT_BYTES
        size = self._index.segment_bytes
        self._index.drop_from(max(-(-unit_end // size) * size, self._index.begin + size))
        self._index.zero(unit_end, min((self.last_index + 1) * UNIT_BYTES, self._index.end))

    # --- reading ------------------------------------------------------------------------------

    def _unit(self, index: int) -> IndexUnit:
        if not self.first_index <= index <= self.last_index:
            raise OutsideLog("entry", index, self.first_index, self.last_index)
        with self._disk_work("read"):
            unit = read_unit(self._index, index)
        if unit is None:
            problem = f"the index unit of entry {index} is broken"
            self._fail(
                LogCorrupt(self._index.path(index * UNIT_BYTES), index * UNIT_BYTES, problem)
            )
        return unit

    def chain_at(self, index: int) -> int:
        """ChainCrc stored in an entry; of the entry before the first one, what is known of it."""
        if index == self.first_index - 1:
            return self._record.before_begin_chain
        if index == self.last_index:
            return self._last_chain
        return self.header_at(index).chain_crc

    def header_at(self, index: int) -> Header:
        """The header of an entry."""
        self._check_usable()
        unit = self._unit(index)
        with self._disk_work("read"):
            header = decode_header(self._data.read(HEADER_BYTES, unit.pos))
        if header.index != index or header.pos != unit.pos:
            at = unit.pos % self._data.segment_bytes
            problem = f"no header of entry {index} where the index says"
            self._fail(LogCorrupt(self._data.path(unit.pos), at, problem))
        return header

    def read(self, first: int, last: int, max_bytes: int) -> bytes:
        """Whole adjacent entries from `first`, not beyond `last`, of one segment.

        At least one entry, then as many as fit into `max_bytes`. The bytes are as the disk gives
        them: whoever takes them from another node checks their sums.
        """
        self._check_usable()
        unit = self._unit(first)
        last = min(last, self.last_index)
        limit = min(unit.pos + max_bytes, segment_end(unit.pos, self._data.segment_bytes))
        end = unit.end
        low, high = first, last + 1
        if last > first:
            final = self._unit(last)
            if final.end <= limit:
                low, end = last, final.end
        while high - low > 1:
            middle = (low + high) // 2
            probe = self._unit(middle)
            if probe.end <= limit:
                low, end = middle, probe.end
            else:
                high = middle
        with self._disk_work("read"):
            return self._data.read(end - unit.pos, unit.pos)

    def read_bytes(self, pos: int, size: int) -> bytes:
        """`size` bytes of the log at `pos`, within one segment and before `end_pos`.

        Raises:
            OutsideLog: some of them are not in the log, or in another segment.
        """
        self._check_usable()
        end = pos + size
        last = min(self._end_pos, segment_end(pos, self._data.segment_bytes)) - 1
        if pos < self._begin_pos or end - 1 > last or size < 0:
            raise OutsideLog("byte", max(pos, end - 1), self._begin_pos, last)
        with self._disk_work("read"):
            return self._data.read(size, pos)

    # --- durability ---------------------------------------------------------------------------

    def begin_sync(self, hard_state: HardState | None) -> SegmentSyncWork:
        """What is dirty now; see `SyncWork`.

        Raises:
            InvariantBroken: the work before this one has not run yet.
        """
        self._check_usable()
        self._settle()
        if self._work is not None:
            raise InvariantBroken("a second sync was begun before the first one ended")
        dirty = self._data.take_dirty()
        covers_index = bool(dirty) and dirty[0].path != self._data.path(self._end_pos)
        if covers_index:  # a segment is full: recovery may then begin behind it
            dirty += self._index.take_dirty()
        record = None
        if hard_state is not None or self._record_wanted:
            record = self._next_record(hard_state, self.last_index, covers_index)
            self._record_wanted = False
        self._work = SegmentSyncWork(
            self.last_index,
            self._epoch,
            hard_state,
            dirty,
            covers_index,
            record,
            self._hard_state_file,
        )
        return self._work

    def note_committed(self, index: int) -> None:
        """Remember how far the log is committed. Also: nothing up to there is ever truncated."""
        self._committed = max(self._committed, index)

    def save_committed(self) -> None:
        """Write the record with what was noted, without a sync.

        While a sync is under way the next one takes the record with it.
        """
        self._check_usable()
        self._settle()
        if self._work is not None:
            self._record_wanted = True
            return
        record = self._next_record(None, self._synced_index, False)
        if record != self._record:
            with self._disk_work("write the hard state of"):
                self._hard_state_file.write(record, durable=False)

    def prepare_spare(self) -> None:
        """Write a data file ahead, in any thread; see SpareSegments.

        Raises DiskFailed when that fails. The store goes on: no entry was concerned.
        """
        try:
            self._spares.prepare()
        except OSError as cause:
            path = cause.filename if isinstance(cause.filename, str) else self._data.folder
            raise DiskFailed("prepare a spare file for", path, cause) from cause

    @property
    def spare_wanted(self) -> bool:
        """Whether `prepare_spare` has something to do."""
        return self._spares.wanted

    def close(self) -> None:
        """Sync everything, record what is committed, release the folder. Again: nothing.

        After a failure files are only closed. The lock is released in any case.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if self._work is not None and self._work.running:
                raise InvariantBroken("the store was closed while a sync runs")
            if self._failure is None:
                self._settle()
                self._sync_all()
        finally:
            self._files.close()

    def _sync_all(self) -> None:
        with self._disk_work("sync"):
            if self._work is not None:
                self._work.run()  # begun, and never run
                self._settle()
            for file in [*self._data.take_dirty(), *self._index.take_dirty()]:
                file.sync()
            self._index_synced_through = self.last_index
            record = self._next_record(None, self.last_index, True)
            self._hard_state_file.write(record, durable=True)

    def _next_record(
        self, hard_state: HardState | None, synced_index: int, index_synced: bool
    ) -> StoreRecord:
        """The record as it may be written once everything up to `synced_index` is durable."""
        if hard_state is not None:
            self._committed = max(self._committed, hard_state.committed)
        committed = max(self._record.committed, min(self._committed, synced_index))
        index_through = synced_index if index_synced else self._index_synced_through
        # Segments whose first entry is committed and whose index before it is durable are fixed.
        segments = self._segments
        while len(segments) > 1 and segments[1].first_index <= min(committed, index_through + 1):
            segments.pop(0)
        term, vote = self._record.term, self._record.voted_for
        if hard_state is not None:
            term, vote = hard_state.term, hard_state.voted_for
        return self._record._replace(
            term=term,
            voted_for=vote,
            committed=committed,
            unchecked_through=min(self._record.unchecked_through, self.last_index),
            begin_pos=self._begin_pos,
            scan_pos=segments[0].pos,
            scan_index=segments[0].first_index,
        )

    def _settle(self) -> None:
        """Take over the results of a sync that has run."""
        work = self._work
        if work is None or not work.done:
            return
        self._work = None
        self._data.settle()
        self._index.settle()
        if work.failure is not None:
            self._fail(work.failure)
        if work.record is not None:
            self._record = work.record
        if work.epoch == self._epoch:
            self._synced_index = work.index
            if work.covers_index:
                self._index_synced_through = work.index

    # --- failure ------------------------------------------------------------------------------

    def _check_usable(self) -> None:
        work = self._work
        if work is not None and work.failure is not None:
            self._failure = work.failure
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise InvariantBroken("the store is closed")

    def _fail(self, failure: Fatal) -> NoReturn:
        self._failure = failure
        raise failure

    @contextlib.contextmanager
    def _disk_work(self, operation: str) -> Iterator[None]:
        """An error of the disk ends the store: DiskFailed now and from every later call."""
        try:
            yield
        except OSError as cause:
            path = cause.filename if isinstance(cause.filename, str) else self._data.folder
            self._failure = DiskFailed(operation, path, cause)
            raise self._failure from cause
