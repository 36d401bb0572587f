"""The log in memory: the same positions and the same bytes as on disk, gone with the process."""

from __future__ import annotations

from collections.abc import Sequence

from dledger.core.admission.standing import Standing
from dledger.core.hard_state import HardState
from dledger.core.ledger_view import LedgerView, TermRun
from dledger.core.orphans import Orphans
from dledger.core.snapshot.snapshot_offer import LogBegin
from dledger.entry import BLANK_BYTES, Body, Header, Magic, decode_header
from dledger.errors import InvariantBroken, OutsideLog
from dledger.store.batch import BatchFacts
from dledger.store.index_unit import UNIT, IndexUnit
from dledger.store.log_store import Written
from dledger.store.placement import LogEnd, place, segment_end
from dledger.store.store_config import StoreConfig


class MemorySyncWork:
    """The `SyncWork` of a MemoryStore: nothing can fail."""

    def __init__(self, store: MemoryStore, hard_state: HardState | None) -> None:
        self.index = store.last_index
        self.epoch = store.epoch
        self.hard_state = hard_state
        self.done = False
        self._store = store

    def run(self) -> None:
        """Take the hard state over; runs once."""
        if self.done:
            raise InvariantBroken("a sync ran twice")
        self.done = True
        if self.hard_state is not None:
            self._store.hard_state = self.hard_state


class MemoryStore:
    """A `LogStore` without files. Grows until it is closed: for tests and trials."""

    def __init__(self, config: StoreConfig | None = None) -> None:
        self._config = config or StoreConfig()
        self.hard_state = HardState()
        self.standing = Standing.PROVEN
        self.orphans: Orphans | None = None
        self.epoch = 0
        self._view = LedgerView()
        self._units: list[IndexUnit] = []
        self._entries: list[bytes] = []
        self._begin_pos = 0
        self._before_begin_chain = 0
        self._end_pos = 0
        self._last_chain = 0
        self._committed = -1
        self._work: MemorySyncWork | None = None
        self._closed = False

    def set_standing(self, standing: Standing) -> None:
        """Note whether the store holds all that was promised from it."""
        self.standing = standing

    def set_orphans(self, orphans: Orphans | None) -> None:
        """Note the committed entries that the group lost."""
        self.orphans = orphans

    @property
    def first_index(self) -> int:
        """The first entry kept."""
        return self._view.before_begin + 1

    @property
    def last_index(self) -> int:
        """The last entry; `first_index - 1` if there is none."""
        return self._view.last_index

    @property
    def last_term(self) -> int:
        """Term of the last entry."""
        return self._view.last_term

    @property
    def end_pos(self) -> int:
        """Position of the byte behind the last entry."""
        return self._end_pos

    @property
    def configuration_indexes(self) -> list[int]:
        """Entries of magic 3: all that are kept."""
        return [unit.index for unit in self._units if unit.magic == Magic.CONFIGURATION]

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

    def append(self, term: int, magic: int, bodies: Sequence[Body]) -> Written:
        """Encode and keep entries. EntryTooLarge: none kept."""
        self._check_usable()
        if not bodies:
            raise InvariantBroken("append of no entries")
        if term < self.last_term:
            raise InvariantBroken(f"append in term {term} after an entry of term {self.last_term}")
        first = self.last_index + 1
        end = LogEnd(first, self._end_pos, self._last_chain)
        config = self._config
        placed = place(term, magic, bodies, end, config.segment_bytes, config.max_body_bytes)
        for pos, run in placed.runs:
            self._keep(run, pos, placed.index_units)
        self._view.extend(term, len(bodies))
        self._end_pos = placed.end_pos
        self._last_chain = placed.last_chain
        raw = placed.runs[0][1] if len(placed.runs) == 1 else None
        return Written(first, self.last_index, placed.entries, raw)

    def write_batch(self, raw: bytes, facts: BatchFacts) -> None:
        """Keep verified entries at the positions in them; InvariantBroken if they do not follow."""
        self._check_usable()
        segment_bytes = self._config.segment_bytes
        pos = facts.first_pos
        if facts.first_index != self.last_index + 1 or facts.term_runs[0].term < self.last_term:
            raise InvariantBroken(
                f"batch from entry {facts.first_index} after entry {self.last_index}"
            )
        if facts.end_pos + BLANK_BYTES > segment_end(pos, segment_bytes):
            raise InvariantBroken(
                f"batch at {pos}..{facts.end_pos} crosses a segment of {segment_bytes} bytes: "
                "set the same segment_bytes on all nodes"
            )
        begins_log = not self._units and pos % segment_bytes == 0
        follows = pos in (self._end_pos, segment_end(self._end_pos, segment_bytes))
        if not follows and not begins_log:
            raise InvariantBroken(f"batch at position {pos} beyond the log's end {self._end_pos}")
        if begins_log:
            self._begin_pos = pos
        self._keep(raw, pos, facts.index_units)
        runs = facts.term_runs
        for at, run in enumerate(runs):
            end = runs[at + 1].first_index if at + 1 < len(runs) else facts.last_index + 1
            self._view.extend(run.term, end - run.first_index)
        self._end_pos = facts.end_pos
        self._last_chain = facts.last_chain

    def _keep(self, run: bytes, run_pos: int, units: bytes) -> None:
        """Keep those entries of `units` that lie in `run`."""
        for raw_unit in UNIT.iter_unpack(units):
            unit = IndexUnit._make(raw_unit)
            if run_pos <= unit.pos < run_pos + len(run):
                self._units.append(unit)
                self._entries.append(run[unit.pos - run_pos : unit.end - run_pos])

    def _unit(self, index: int) -> IndexUnit:
        self._check_usable()
        if not self.first_index <= index <= self.last_index:
            raise OutsideLog("entry", index, self.first_index, self.last_index)
        return self._units[index - self.first_index]

    def chain_at(self, index: int) -> int:
        """ChainCrc of an entry; of the entry before the first one too, 0 in a whole log."""
        if index == self.first_index - 1:
            return self._before_begin_chain
        return self.header_at(index).chain_crc

    def header_at(self, index: int) -> Header:
        """The header of an entry."""
        self._unit(index)
        return decode_header(self._entries[index - self.first_index])

    def read(self, first: int, last: int, max_bytes: int) -> bytes:
        """Whole adjacent entries of one segment; at least one, then what fits `max_bytes`."""
        return self.read_run(first, last, max_bytes)[1]

    def read_unchecked(self, first: int, last: int, max_bytes: int) -> tuple[int, bytes]:
        """As `read_run`: memory does not rot."""
        return self.read_run(first, last, max_bytes)

    def read_run(self, first: int, last: int, max_bytes: int) -> tuple[int, bytes]:
        """What `read` reads, and the index of the last entry in it."""
        unit = self._unit(first)
        limit = min(unit.pos + max_bytes, segment_end(unit.pos, self._config.segment_bytes))
        count = 1
        for following in range(first + 1, min(last, self.last_index) + 1):
            if self._unit(following).end > limit:
                break
            count += 1
        at = first - self.first_index
        return first + count - 1, b"".join(self._entries[at : at + count])

    def read_bytes(self, pos: int, size: int) -> bytes:
        """`size` bytes of the log at `pos`, within one segment and before `end_pos`."""
        self._check_usable()
        begin = pos - pos % self._config.segment_bytes
        last = min(self._end_pos, begin + self._config.segment_bytes) - 1
        if pos < self._begin_pos or pos + size - 1 > last or size < 0:
            raise OutsideLog("byte", max(pos, pos + size - 1), self._begin_pos, last)
        content = bytearray(self._config.segment_bytes)
        for unit, entry in zip(self._units, self._entries, strict=True):
            if begin <= unit.pos < begin + self._config.segment_bytes:
                content[unit.pos - begin : unit.end - begin] = entry
        return bytes(content[pos - begin : pos - begin + size])

    def check_at(self, pos: int) -> None:
        """Memory does not rot."""
        self.read_bytes(pos, 1)

    def truncate_after(self, index: int) -> None:
        """Drop every entry behind `index`; InvariantBroken if it is committed."""
        self._check_usable()
        if index >= self.last_index:
            return
        if index < max(self._committed, -1):
            raise InvariantBroken(f"cut after {index}, but {self._committed} is committed")
        if index < self.first_index - 1:
            raise InvariantBroken(f"cut after {index}, before the begin {self.first_index}")
        whole = index >= self.first_index
        self._end_pos = self._unit(index).end if whole else self._begin_pos
        self._last_chain = self.chain_at(index)
        self._view.truncate_after(index)
        del self._units[index + 1 - self.first_index :]
        del self._entries[index + 1 - self.first_index :]
        self.epoch += 1

    def discard_before(self, index: int) -> None:
        """Drop whole segments at the begin; InvariantBroken if `index` is not committed."""
        self._check_usable()
        if index <= self.first_index:
            return
        if index > self._committed or index > self.last_index:
            raise InvariantBroken(f"discard before {index}, but {self._committed} is committed")
        segment_bytes = self._config.segment_bytes
        pos = self._unit(index).pos // segment_bytes * segment_bytes
        passed = sum(unit.pos < pos for unit in self._units)
        if passed == 0:
            return
        first = self.first_index + passed
        self._before_begin_chain = self.chain_at(first - 1)
        self._view.discard_before(first)
        self._begin_pos = pos
        del self._units[:passed], self._entries[:passed]

    def begin_for(self, index: int) -> LogBegin:
        """Where the log of a member begins that is given the state after entry `index`."""
        before, pos = self.first_index - 1, self._begin_pos
        if index != before:
            segment_pos = self._unit(index).pos // self._config.segment_bytes
            segment_pos *= self._config.segment_bytes
            if segment_pos > pos:
                before += sum(unit.pos < segment_pos for unit in self._units)
                pos = segment_pos
        return LogBegin(before, self.term_at(before), self.chain_at(before), pos)

    def restart(self, begin: LogBegin) -> None:
        """Drop everything and begin an empty log; InvariantBroken if that is not needed."""
        self._check_usable()
        before = begin.before_index
        if before <= self._committed or self.term_at(before) == begin.before_term:
            raise InvariantBroken(f"restart after entry {before}, committed is {self._committed}")
        if self._work is not None and not self._work.done:
            raise InvariantBroken("the log is restarted while a sync runs")
        self._view.restart(before, begin.before_term)
        self._units.clear()
        self._entries.clear()
        self._before_begin_chain = self._last_chain = begin.before_chain
        self._begin_pos = self._end_pos = begin.pos
        self._committed = before
        self.epoch += 1

    @property
    def record_due(self) -> bool:
        """Never: there is no record."""
        return False

    def begin_sync(self, hard_state: HardState | None) -> MemorySyncWork:
        """What would be synced; InvariantBroken while the work before has not run."""
        self._check_usable()
        if self._work is not None and not self._work.done:
            raise InvariantBroken("a second sync was begun before the first one ended")
        self._work = MemorySyncWork(self, hard_state)
        return self._work

    def note_committed(self, index: int) -> None:
        """Remember it: nothing up to there is ever truncated."""
        self._committed = max(self._committed, index)

    def save_committed(self, *, in_next_sync: bool = True) -> bool:
        """Show what was noted in `hard_state`."""
        del in_next_sync  # nothing outlives this store
        self._check_usable()
        self.hard_state = self.hard_state._replace(
            committed=max(self.hard_state.committed, min(self._committed, self.last_index))
        )
        return True

    def close(self) -> None:
        """Nothing can be read or written afterwards."""
        self._closed = True

    def _check_usable(self) -> None:
        if self._closed:
            raise InvariantBroken("the store is closed")
