"""What a node needs of its log's storage: the contract of the two stores.

A store is driven by one thread. Only `SyncWork.run` runs in another one.
Errors: DiskFailed is terminal, every later call raises it again; OutsideLog for reads beyond the
log; InvariantBroken for calls that contradict the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from dledger.core.admission.standing import Standing
from dledger.core.hard_state import HardState
from dledger.core.ledger_view import LedgerView, TermRun
from dledger.core.snapshot.snapshot_offer import LogBegin
from dledger.entry import Body, Header
from dledger.entry_run import EntryRun
from dledger.store.batch import BatchFacts


class Written(NamedTuple):
    """A leader's new entries, for those who would read them back otherwise."""

    first: int
    last: int
    entries: EntryRun
    raw: bytes | None  # as they lie in the log; None where they touch two segments


class SyncWork(Protocol):
    """What was dirty at `begin_sync`. When `run` returns, it is durable."""

    @property
    def index(self) -> int:
        """The last entry that is durable after `run`."""
        ...

    @property
    def epoch(self) -> int:
        """The store's epoch at `begin_sync`: if it has grown, `index` may not hold any more."""
        ...

    @property
    def hard_state(self) -> HardState | None:
        """The hard state that is durable after `run`; None when none was given."""
        ...

    def run(self) -> None:
        """Sync, in any thread, once. Raises DiskFailed: then nothing of it counts."""
        ...


class LogStore(Protocol):
    """One node's log and its hard state."""

    @property
    def first_index(self) -> int:
        """The first entry that is kept; 0 in a new log."""
        ...

    @property
    def last_index(self) -> int:
        """The last entry, durable or not; `first_index - 1` (-1 in a new log) if there is none."""
        ...

    @property
    def last_term(self) -> int:
        """Term of the last entry; NO_TERM in an empty log."""
        ...

    @property
    def end_pos(self) -> int:
        """Position of the byte behind the last entry."""
        ...

    @property
    def epoch(self) -> int:
        """Grows by one with every truncation and restart."""
        ...

    @property
    def hard_state(self) -> HardState:
        """The hard state that is durable now."""
        ...

    @property
    def standing(self) -> Standing:
        """Whether the store is known to hold all that was promised from it."""
        ...

    def set_standing(self, standing: Standing) -> None:
        """Record that; durable when it returns."""
        ...

    @property
    def configuration_indexes(self) -> list[int]:
        """Entries of magic 3, ascending: the last one before what an open walks through, and all
        behind it. Each names the one it was made for, which may lie before them.
        """
        ...

    def term_runs(self) -> list[TermRun]:
        """The runs of equal terms, the first one from `first_index`."""
        ...

    def view(self) -> LedgerView:
        """A new view of indexes and terms for the core, which keeps it up to date itself."""
        ...

    def append(self, term: int, magic: int, bodies: Sequence[Body]) -> Written:
        """Leader: encode and write entries. EntryTooLarge: none written."""
        ...

    def write_batch(self, raw: bytes, facts: BatchFacts) -> None:
        """Follower: write entries that `verify_batch` accepted, at the positions in them."""
        ...

    def chain_at(self, index: int) -> int:
        """ChainCrc stored in an entry; 0 before the first one."""
        ...

    def header_at(self, index: int) -> Header:
        """The header of an entry."""
        ...

    def term_at(self, index: int) -> int:
        """The term of an entry; NO_TERM outside of the log."""
        ...

    def read(self, first: int, last: int, max_bytes: int) -> bytes:
        """Whole adjacent entries from `first`, not beyond `last`, of one segment.

        At least one entry, then as many as fit into `max_bytes`. LogCorrupt, and terminal, if the
        disk gives back something else than was written.
        """
        ...

    def read_run(self, first: int, last: int, max_bytes: int) -> tuple[int, bytes]:
        """What `read` reads, and the index of the last entry in it."""
        ...

    def read_unchecked(self, first: int, last: int, max_bytes: int) -> tuple[int, bytes]:
        """As `read_run`, without a look at the sums."""
        ...

    def read_bytes(self, pos: int, size: int) -> bytes:
        """`size` bytes of the log at `pos`, within one segment and before `end_pos`."""
        ...

    def truncate_after(self, index: int) -> None:
        """Drop every entry behind `index`, for good: durable when it returns."""
        ...

    def discard_before(self, index: int) -> None:
        """Drop whole segments at the log's beginning, none with `index` or a later entry in it.

        `index` must be committed. Reads of what was dropped raise OutsideLog from now on; the
        first entry kept stays where it is. Durable with the next record that is synced, see
        `record_due`; until then a crash may bring the dropped entries back.
        """
        ...

    def begin_for(self, index: int) -> LogBegin:
        """Where the log of a member begins that is given the state after entry `index`.

        Where the segment with that entry begins, or else this log: so equal entries stay at equal
        positions. OutsideLog unless `index` or the entry behind it is in this log.
        """
        ...

    def restart(self, begin: LogBegin) -> None:
        """Drop the whole log and begin an empty one there, for good: durable when it returns.

        For a snapshot that stands for everything before. The log must not hold the entry that the
        new one begins behind (else there is nothing to drop), and no sync may run. At every moment
        of a crash there is the old log, maybe without what contradicts the new one, or the new.
        """
        ...

    @property
    def record_due(self) -> bool:
        """Whether a sync is wanted though nothing was written: the log's new beginning."""
        ...

    def begin_sync(self, hard_state: HardState | None) -> SyncWork:
        """What is dirty now, and the hard state to record. One at a time."""
        ...

    def note_committed(self, index: int) -> None:
        """Remember how far the log is committed, for the next time the record is written."""
        ...

    def save_committed(self) -> None:
        """Write the record with what was noted, without waiting for a sync."""
        ...

    def close(self) -> None:
        """Sync what is dirty, record what is committed, and release the folder."""
        ...
