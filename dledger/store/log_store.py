"""The contract of a node's log store.

One thread drives a store. Only `SyncWork.run` runs in another one.
Errors: DiskFailed is terminal, every later call raises it again; OutsideLog for reads beyond the
log; InvariantBroken for calls that contradict the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from dledger.core.admission.standing import Standing
from dledger.core.hard_state import HardState
from dledger.core.ledger_view import LedgerView, TermRun
from dledger.core.orphans import Orphans
from dledger.core.snapshot.snapshot_offer import LogBegin
from dledger.entry import Body, Header
from dledger.entry_run import EntryRun
from dledger.store.batch import BatchFacts


class Written(NamedTuple):
    """A leader's new entries, so that they need not be read back."""

    first: int
    last: int
    entries: EntryRun
    raw: bytes | None  # as written to the log; None if they touch two segments


class SyncWork(Protocol):
    """The sync of everything that was dirty at `begin_sync`: durable when `run` returns."""

    @property
    def index(self) -> int:
        """The last entry that is durable after `run`."""

    @property
    def epoch(self) -> int:
        """The store's epoch at `begin_sync`: if it has grown since, `index` may be outdated."""

    @property
    def hard_state(self) -> HardState | None:
        """The hard state that is durable after `run`; None when none was given."""

    def run(self) -> None:
        """Sync, in any thread, once. After DiskFailed nothing of it counts as durable."""


class LogStore(Protocol):
    """One node's log and its hard state."""

    @property
    def first_index(self) -> int:
        """The first entry that is kept; 0 in a new log."""

    @property
    def last_index(self) -> int:
        """The last entry, durable or not; `first_index - 1` (-1 in a new log) if there is none."""

    @property
    def last_term(self) -> int:
        """The term of the last entry; NO_TERM in an empty log."""

    @property
    def end_pos(self) -> int: ...

    @property
    def epoch(self) -> int:
        """The number of truncations and restarts."""

    @property
    def hard_state(self) -> HardState: ...

    @property
    def standing(self) -> Standing:
        """Whether the store is known to hold every entry and vote that its member promised."""

    def set_standing(self, standing: Standing) -> None:
        """Record the standing; durable on return."""

    @property
    def orphans(self) -> Orphans | None:
        """The committed entries here that the group is known to have lost; None for none."""

    def set_orphans(self, orphans: Orphans | None) -> None:
        """Record the orphans; durable on return."""

    @property
    def configuration_indexes(self) -> list[int]:
        """Entries of magic 3, ascending: the last one before the place where recovery began to
        walk, and all after it. Each names the configuration it was made for, which may be earlier.
        """

    def term_runs(self) -> list[TermRun]:
        """Return the runs of equal terms, the first one from `first_index`."""

    def view(self) -> LedgerView:
        """Return a new view of indexes and terms. The core keeps it up to date itself."""

    def append(self, term: int, magic: int, bodies: Sequence[Body]) -> Written:
        """Leader: encode and write entries. After EntryTooLarge none is written."""

    def write_batch(self, raw: bytes, facts: BatchFacts) -> None:
        """Follower: write entries that `verify_batch` accepted, at the positions they carry."""

    def chain_at(self, index: int) -> int:
        """Return the chainCrc stored in an entry; 0 before the first one."""

    def header_at(self, index: int) -> Header: ...

    def term_at(self, index: int) -> int:
        """Return the term of an entry; NO_TERM outside the log."""

    def read(self, first: int, last: int, max_bytes: int) -> bytes:
        """Read whole adjacent entries of one segment: `first`, and more up to `last`.

        Reads at least one entry, then as many as fit into `max_bytes`. Raises LogCorrupt, which is
        terminal, if the disk returns other bytes than were written.
        """

    def read_run(self, first: int, last: int, max_bytes: int) -> tuple[int, bytes]:
        """Read entries like `read`, but also return the index of the last entry read."""

    def read_unchecked(self, first: int, last: int, max_bytes: int) -> tuple[int, bytes]:
        """Read entries like `read_run`, without checking the sums."""

    def read_bytes(self, pos: int, size: int) -> bytes:
        """Read `size` bytes of the log at `pos`, within one segment and before `end_pos`."""

    def check_at(self, pos: int) -> None:
        """Check the sums of the entry that holds the byte at `pos`."""

    def truncate_after(self, index: int) -> None:
        """Drop every entry after `index`; durable on return."""

    def discard_before(self, index: int) -> None:
        """Drop whole segments at the log's beginning that hold only entries before `index`.

        `index` must be committed. Reads of dropped entries raise OutsideLog from now on; the kept
        entries keep their positions. Durable with the next record that is synced, see
        `record_due`; until then a crash may bring the dropped entries back.
        """

    def begin_for(self, index: int) -> LogBegin:
        """Return where the log of a member begins that installs the state after entry `index`.

        That is the beginning of the segment with that entry, or of this log if the log begins with
        the next entry: so equal entries stay at equal positions. Raises OutsideLog unless `index`
        or the next entry is in this log.
        """

    def restart(self, begin: LogBegin) -> None:
        """Drop the whole log and begin an empty one at `begin`; durable on return.

        A snapshot replaces the dropped entries. The log must not hold the entry before `begin`
        (else nothing has to be dropped), and no sync may be in flight. A crash leaves either the
        old log, perhaps without the entries that contradict the new one, or the new log.
        """

    @property
    def record_due(self) -> bool:
        """Whether a sync is needed only to record the log's new beginning."""

    def begin_sync(self, hard_state: HardState | None) -> SyncWork:
        """Begin a sync of everything dirty and of this hard state. One at a time."""

    def note_committed(self, index: int) -> None:
        """Note the commit index. The next record has it, and no entry up to it is truncated."""

    def save_committed(self, *, in_next_sync: bool = True) -> bool:
        """Write the record with the noted commit index, without waiting for a sync.

        `in_next_sync`: the next sync makes it durable. Returns whether it is written yet.
        """

    def close(self) -> None:
        """Sync everything dirty, record the commit index, and release the folder."""
