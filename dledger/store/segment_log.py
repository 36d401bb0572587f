"""The entries of a log in segment files: placing, writing, reading, cutting. Without hard state.

`log_beginning.LogWithBeginning` adds to it how a log loses its beginning, and
`segment_store.SegmentStore` what concerns durability.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import NoReturn

from dledger.core.ledger_view import LedgerView, TermRun
from dledger.entry import BEFORE_FIRST_INDEX, BLANK_BYTES, HEADER_BYTES, Body, Header, decode_header
from dledger.errors import BatchInvalid, DiskFailed, Fatal, InvariantBroken, LogCorrupt, OutsideLog
from dledger.store.batch import BatchFacts, check_run
from dledger.store.index_file import read_unit
from dledger.store.index_unit import UNIT_BYTES, IndexUnit, magics
from dledger.store.log_store import Written
from dledger.store.placement import LogEnd, filler, place, segment_end
from dledger.store.recovery import CONFIGURATION, Recovered
from dledger.store.segment import SegmentFiles
from dledger.store.walk_begins import WalkBegin, WalkBegins


class SegmentLog:
    """The log between its first kept entry and its end.

    Any error of the disk is terminal: DiskFailed now and from every later call.
    """

    def __init__(
        self,
        data: SegmentFiles,
        index: SegmentFiles,
        recovered: Recovered,
        body_limit: int,
        checkpoint_bytes: int,
    ) -> None:
        self._data = data
        self._index = index
        self._body_limit = body_limit
        self._view = LedgerView(
            recovered.runs,
            last_index=recovered.last_index,
            before_begin=recovered.first_index - 1,
            before_begin_term=recovered.before_begin_term,
        )
        self._before_begin_chain = recovered.before_begin_chain
        self._begin_pos = recovered.begin_pos
        self._end_pos = recovered.end_pos
        self._last_chain = recovered.last_chain
        # From where the next recovery may begin.
        self._begins = WalkBegins(data.segment_bytes, checkpoint_bytes, recovered.begins)
        # Entries of magic 3, from the last one before these places on.
        self._configurations = list(recovered.configuration_indexes)
        self._epoch = 0
        self._committed = BEFORE_FIRST_INDEX
        self._unchecked_through = BEFORE_FIRST_INDEX
        # The last entry that was read back, and its chain: what is read next rests on it.
        self._checked = (BEFORE_FIRST_INDEX, 0)
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
        """Grows by one with every truncation and restart."""
        return self._epoch

    @property
    def segment_bytes(self) -> int:
        """Length of the data files: what the files say, whatever was configured."""
        return self._data.segment_bytes

    @property
    def configuration_indexes(self) -> list[int]:
        """Entries of magic 3 in ascending order: the last one that was not looked for, and all
        behind it.
        """
        return list(self._configurations)

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

    def append(self, term: int, magic: int, bodies: Sequence[Body]) -> Written:
        """Encode and write entries.

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
                self._data.write(run, pos)
            self._index.write(placed.index_units, first * UNIT_BYTES)
        self._begins.note(placed.index_units, first, len(bodies), placed.end_pos)
        if magic == CONFIGURATION:
            self._configurations += range(first, first + len(bodies))
        self._view.extend(term, len(bodies))
        self._end_pos = placed.end_pos
        self._last_chain = placed.last_chain
        raw = placed.runs[0][1] if len(placed.runs) == 1 else None
        return Written(first, self.last_index, placed.entries, raw)

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
        self._begins.note(facts.index_units, facts.first_index, count, facts.end_pos)
        if CONFIGURATION in (kinds := magics(facts.index_units)):
            self._configurations += [
                facts.first_index + at for at in range(count) if kinds[at] == CONFIGURATION
            ]
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
            self._begins.restart(WalkBegin(pos, self.last_index + 1))
            return
        if pos != segment_end(self._end_pos, segment_bytes):
            raise InvariantBroken(f"batch at position {pos} behind the log's end {self._end_pos}")
        self._data.write(filler(self._end_pos, segment_bytes), self._end_pos)

    def note_committed(self, index: int) -> None:
        """Remember how far the log is committed. Also: nothing up to there is ever truncated."""
        self._committed = max(self._committed, index)

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
        if index < self.first_index:
            end_pos, chain = self._begin_pos, self._before_begin_chain
        else:
            end_pos, chain = self._unit(index).end, self.chain_at(index)
        with self._disk_work("truncate"):
            self._data.cut_at(end_pos, self._end_pos)
            self._truncate_index(index)
        self._checked = (BEFORE_FIRST_INDEX, 0)
        self._view.truncate_after(index)
        self._end_pos = end_pos
        self._last_chain = chain
        self._begins.cut_after(index)
        while self._configurations and self._configurations[-1] > index:
            self._configurations.pop()
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
            return self._before_begin_chain
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

        At least one entry, then as many as fit into `max_bytes`. Every sum is checked: what the
        disk gives back is neither applied, nor sent, nor handed out unless it is what was written.

        Raises:
            OutsideLog: there is no entry `first`.
            LogCorrupt: terminal: the disk gave back something else.
            DiskFailed: terminal.
        """
        return self.read_run(first, last, max_bytes)[1]

    def read_run(self, first: int, last: int, max_bytes: int) -> tuple[int, bytes]:
        """What `read` reads, and the index of the last entry in it."""
        last, raw = self.read_unchecked(first, last, max_bytes)
        before, chain = self._checked
        if before != first - 1:
            chain = self.chain_at(first - 1)
        unknown = not chain and first == self.first_index > 0
        try:
            self._checked = (
                last,
                check_run(raw, first, None if unknown else chain, self._unchecked_through),
            )
        except BatchInvalid as error:
            pos = self._unit(first).pos
            offset = pos % self._data.segment_bytes
            self._fail(LogCorrupt(self._data.path(pos), offset, f"read back: {error.problem}"))
        return last, raw

    def read_unchecked(self, first: int, last: int, max_bytes: int) -> tuple[int, bytes]:
        """As `read_run`, but the bytes are as the disk gives them: for who checks them itself."""
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
            return low, self._data.read(end - unit.pos, unit.pos)

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

    # --- failure ------------------------------------------------------------------------------

    def _check_usable(self) -> None:
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
