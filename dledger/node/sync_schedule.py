"""Decides when a node's writes are synced, and whether its event loop waits for the sync."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from dledger.core.hard_state import HardState
from dledger.errors import DLedgerError
from dledger.store.log_store import SyncWork

_NEVER = float("inf")

Written = tuple[int, int]  # the last entry, and the store's epoch


class FlushDelay:
    """Delayed flushes: an entry counts on a member once it is written, and is synced later.

    The same as `ASYNC_FLUSH` in Java DLedger and RocketMQ. A killed process loses nothing, because
    the operating system has the written bytes. A machine that loses power loses the entries since
    its last sync, though they were acknowledged: docs/library.md says when the other members still
    have them. Votes and terms are always synced before a message carries them. Times in seconds.

    Args:
        interval_s: entries wait for a sync for so long at most.
        patience_s: a sync that takes longer than this shows that the disk is stuck. Then no new
            write counts until the sync ends: an unbounded number could be lost.
        written: how far the log goes at the start.
    """

    def __init__(self, interval_s: float, patience_s: float, written: Written) -> None:
        self._interval_s = interval_s
        self._patience_s = patience_s
        self._counted = written
        self._began_at: float | None = None
        self._promises = False
        self.due_at = _NEVER

    def counts(self, written: Written, now: float) -> bool:
        """Return whether everything up to `written` counts now, and did not before.

        False while a term or vote is being synced: entries must not overtake it.
        """
        if written == self._counted or self._promises:
            return False
        if self._began_at is not None and now - self._began_at > self._patience_s:
            return False
        self._counted = written
        self.due_at = min(self.due_at, now + self._interval_s)
        return True

    def began(self, now: float, promises: bool) -> None:
        """Note that a sync of everything began; `promises`: it includes a term or vote."""
        self._began_at = now
        self._promises = promises
        self.due_at = _NEVER

    def ended(self) -> None:
        self._began_at = None
        self._promises = False


class Ended(NamedTuple):
    """A finished sync."""

    work: SyncWork
    error: DLedgerError | None  # why it failed, if it did


class RunsSyncs(Protocol):
    """Carries out the syncs of one store, one at a time: see Syncer."""

    @property
    def busy(self) -> bool:
        """Whether a sync runs beside the loop."""

    @property
    def is_quick(self) -> bool:
        """Whether recent syncs were so quick that `run` costs less than `start`."""

    def run(self, work: SyncWork, *, leads: bool) -> Ended | None:
        """Do a sync and wait for its end; None if it does not end soon, and goes on beside the
        loop.

        `leads`: whether this member leads, so that another one has to take over if its disk hangs.
        """

    def start(self, work: SyncWork) -> None:
        """Begin a sync beside the loop; `Turn.sync_ended` is called when it has ended."""


class Syncable(Protocol):
    """The store to sync: a LogStore."""

    @property
    def last_index(self) -> int: ...

    @property
    def epoch(self) -> int: ...

    @property
    def record_due(self) -> bool:
        """Whether a sync is due though no entry was written."""

    def begin_sync(self, hard_state: HardState | None) -> SyncWork: ...


class SyncSchedule:
    """The syncs of one store, one at a time.

    Args:
        store: the store to sync.
        syncer: runs the syncs.
        flush_interval_s: how long a sync may wait; None if it may not wait.
        patience_s: see FlushDelay.

    Attributes:
        hard_state_due: the term and vote to be recorded with the next sync.
        may_wait: whether syncs may wait for the flush interval, so that one can be due by time
            alone.
    """

    def __init__(
        self,
        store: Syncable,
        syncer: RunsSyncs,
        flush_interval_s: float | None,
        patience_s: float,
    ) -> None:
        self._store = store
        self._syncer = syncer
        self._synced = self._written
        self._delay: FlushDelay | None = None
        self.may_wait = flush_interval_s is not None
        if flush_interval_s is not None:
            self._delay = FlushDelay(flush_interval_s, patience_s, self._synced)
        self.hard_state_due: HardState | None = None

    @property
    def busy(self) -> bool:
        return self._syncer.busy

    @property
    def loop_waits(self) -> bool:
        """Whether the loop waits for syncs: the disk is quick, and syncs may not be delayed."""
        return self._syncer.is_quick and self._delay is None

    @property
    def next_deadline(self) -> float:
        """When a delayed sync is due.

        Infinity while a sync runs, since its end causes a turn, and if everything is synced.
        """
        if self._delay is None or self._syncer.busy or self._written == self._synced:
            return _NEVER
        return self._delay.due_at

    @property
    def _written(self) -> Written:
        """How far the log goes, durable or not."""
        return self._store.last_index, self._store.epoch

    def is_due(self, now: float) -> bool:
        if self._syncer.busy:
            return False
        store = self._store
        if (store.last_index, store.epoch) != self._synced and (
            self._delay is None or now >= self._delay.due_at
        ):
            return True
        return self.hard_state_due is not None or self._store.record_due

    def start(self, now: float) -> None:
        self._syncer.start(self._begin(now))

    def run(self, now: float, *, leads: bool) -> Ended | None:
        return self._syncer.run(self._begin(now), leads=leads)

    def _begin(self, now: float) -> SyncWork:
        hard_state, self.hard_state_due = self.hard_state_due, None
        if self._delay is not None:
            self._delay.began(now, promises=hard_state is not None)
        return self._store.begin_sync(hard_state)

    def ended(self, work: SyncWork) -> None:
        """Note that a sync has ended, and all of it is durable."""
        if self._delay is not None:
            self._delay.ended()
        self._synced = (work.index, work.epoch)

    def written_that_counts(self, now: float) -> Written | None:
        """Return how far the log counts before its sync; None if no further than before."""
        if self._delay is None or self.hard_state_due is not None:
            return None
        written = self._written
        return written if self._delay.counts(written, now) else None
