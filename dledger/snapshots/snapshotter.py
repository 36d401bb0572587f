"""Writes snapshots beside the appends, and drops the log that they stand for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import trio

from dledger.core.entry_dispatcher import needed_snapshots
from dledger.core.replica import Replica
from dledger.core.snapshot.snapshot_offer import SnapshotOffer
from dledger.errors import (
    ConfigInvalid,
    DiskFailed,
    DLedgerError,
    MachineFailed,
    NodeClosing,
    SnapshotUnavailable,
)
from dledger.snapshots.log_retention import first_kept, kept_with_new_snapshots, log_kept_from
from dledger.snapshots.restoring import Opened
from dledger.snapshots.snapshot_header import snapshot_header
from dledger.snapshots.snapshot_policy import SnapshotPolicy
from dledger.snapshots.snapshot_source import NodeSnapshots
from dledger.state_machine import SnapshottingMachine, StateMachine, snapshot_format
from dledger.store.snapshot_folder import Snapshot
from dledger.store.snapshot_format import SnapshotHeader
from dledger.waits.blocking_work import IN_A_THREAD, RunBlocking

logger = logging.getLogger(__name__)

NO_METHODS = "the state machine has no methods snapshot() and restore()"

# How often it is looked whether a snapshot is due. The log grows by a few segments meanwhile.
LOOK_INTERVAL_S = 0.25

# After a snapshot that failed (a full disk, as a rule) the next one is not tried at once.
RETRY_S = 30.0


class Snapshotter:
    """One node's snapshots: by policy, and when asked for. One is written at a time.

    Args:
        group: the name in the files.
        policy: when, and how many.
        machine: what is to be saved; one without `snapshot` and `restore` never is.
        opened: the store and the folder.
        replica: knows what is applied, and is told where the log begins.
        log_cut: called when the log has a new beginning, which a sync must record.
        snapshots: is told which there are.
        run_blocking: writes and removes files.
    """

    def __init__(
        self,
        group: str,
        policy: SnapshotPolicy,
        machine: StateMachine,
        opened: Opened,
        replica: Replica,
        log_cut: Callable[[], None],
        snapshots: NodeSnapshots,
        run_blocking: RunBlocking = IN_A_THREAD,
    ) -> None:
        self._run_blocking = run_blocking
        self._group = group
        self._policy = policy
        self._machine = machine if isinstance(machine, SnapshottingMachine) else None
        self._store, self._folder = opened.store, opened.folder
        self._snapshots = snapshots
        if opened.restored is not None:
            snapshots.add(opened.restored)
        self._replica = replica
        self._log_cut = log_cut
        self._retention = log_kept_from(machine)
        self._indexes: list[int] | None = None  # of the snapshots, once they were looked at
        self._cut = False  # whether the log's beginning was dropped, so that files may have to go
        self._wanted = trio.Event()
        self._waiting: list[_Waiter] = []
        self._retry_at = 0.0
        self._closed = False

    def go_by(self, policy: SnapshotPolicy) -> None:
        """Another policy from the next look on. Raises ConfigInvalid for a machine without any."""
        if policy.is_on and self._machine is None:
            raise ConfigInvalid("snapshots", NO_METHODS)
        self._policy = policy

    async def take(self) -> Snapshot:
        """Write a snapshot of what is applied now, or a little later; what was written.

        If the newest one is of the last applied entry already, nothing is written. Cancelling
        gives up the wait only. Raises SnapshotUnavailable, NodeClosing.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._closed:
            raise NodeClosing
        if self._machine is None:
            raise SnapshotUnavailable(NO_METHODS)
        waiter = _Waiter()
        self._waiting.append(waiter)
        self._wanted.set()
        await waiter.answered.wait()
        if isinstance(waiter.answer, Snapshot):
            return waiter.answer
        raise waiter.answer

    async def run(self) -> None:
        """Write what is due or asked for, for ever."""
        if self._retention is not None and self._machine is not None:
            await self._find_snapshots()
        while self._machine is not None or self._retention is not None:
            with trio.move_on_after(LOOK_INTERVAL_S):
                await self._wanted.wait()
            self._wanted = trio.Event()
            waiting, self._waiting = self._waiting, []
            if self._retention is not None:
                self._drop()
            if self._machine is not None and (waiting or self._is_due()):
                answer: Snapshot | DLedgerError = NodeClosing()
                try:
                    answer = await self._attempt(self._machine)
                finally:
                    for waiter in waiting:
                        waiter.give(answer)
            await self._remove_discarded()

    def close(self) -> None:
        """Have a snapshot that is being written given up; answer everybody who waits for one."""
        self._closed = True
        for waiter in self._waiting:
            waiter.give(NodeClosing())
        self._waiting.clear()

    # --- writing ------------------------------------------------------------------------------

    def _is_due(self) -> bool:
        policy, applied = self._policy, self._replica.state.applied
        last = self._snapshots.last.header if self._snapshots.last else None
        since = applied - (last.index if last else -1)
        if since <= 0 or trio.current_time() < self._retry_at:
            return False
        if applied < self._store.first_index:
            return False  # the state is older than the log, which has to reach a snapshot first
        if any(d.lacks_snapshot for d in self._replica.dispatchers.values()):
            return True  # somebody needs one, and there is none that would serve
        if not policy.is_on:
            return False
        if policy.every_entries and since >= policy.every_entries:
            return True
        if self._holds_up_retention():
            return True
        if not policy.every_bytes:
            return False
        header = self._store.header_at(applied)
        last_pos = last.end_pos if last else self._store.begin_pos
        return header.pos + header.size - last_pos >= policy.every_bytes

    async def _attempt(self, machine: SnapshottingMachine) -> Snapshot | DLedgerError:
        """Write one, and drop what it allows to drop; the snapshot, or why there is none."""
        try:
            snapshot = await self._write(machine)
        except SnapshotUnavailable as error:
            self._retry_at = trio.current_time() + RETRY_S
            logger.warning("%s", error)
            return error
        if snapshot is None:
            return NodeClosing()
        self._snapshots.add(snapshot)
        self._replica.state.membership.forget_before(snapshot.header.index)
        await self._drop_what_is_covered()
        return snapshot

    def installed(self, snapshot: Snapshot) -> None:
        """The state machine was given a leader's snapshot, for whose sake the log was dropped."""
        self._snapshots.add(snapshot)

    def log_replaced(self) -> None:
        """The log was begun anew: the files of the old one have to go."""
        self._cut = True
        self._wanted.set()

    async def _write(self, machine: SnapshottingMachine) -> Snapshot | None:
        applied = self._replica.state.applied
        last = self._snapshots.last
        if last is not None and last.header.index == applied:
            return last
        if applied < self._store.first_index:
            raise SnapshotUnavailable("nothing is applied of the log that there is")
        header = self._header(applied, snapshot_format(machine))
        try:
            # Between two applies, as this is one turn of the loop: the state is of `applied`.
            chunks = iter(machine.snapshot())
            return await self._run_blocking(
                self._folder.write, header, chunks, lambda: self._closed
            )
        except OSError as error:
            reason = f"{error.filename or self._folder.path}: {error.strerror or error}"
            raise SnapshotUnavailable(reason) from error
        except Exception as error:
            raise SnapshotUnavailable(f"the state machine raised {error!r}") from error

    def _header(self, applied: int, machine_format: str) -> SnapshotHeader:
        membership = self._replica.state.membership
        return snapshot_header(self._store, membership, applied, self._group, machine_format)

    # --- dropping -----------------------------------------------------------------------------

    async def _drop_what_is_covered(self) -> None:
        """Remove old snapshots, then the log that the oldest one left stands for.

        The log is kept from the oldest snapshot on, so that each of them can be begun with.
        """
        kept, folder = self._policy.kept, self._folder
        needed = self._needed()

        def tidy() -> list[int]:
            folder.keep_newest(kept, [offer.index for offer in needed])
            return folder.indexes()

        try:
            indexes = await self._run_blocking(tidy)
        except OSError as error:
            logger.warning("old snapshots stay: %s", error)
            return
        self._snapshots.keep(indexes)
        self._indexes = indexes
        self._drop()

    def _needed(self) -> Sequence[SnapshotOffer]:
        """What members that are behind are being sent."""
        return needed_snapshots(self._replica.dispatchers.values(), trio.current_time())

    async def _find_snapshots(self) -> None:
        """See which there are, as retention may go on with them before a new one is written."""
        try:
            self._indexes = await self._run_blocking(self._folder.indexes)
        except OSError as error:
            logger.warning("the log is kept until the next snapshot: %s", error)

    def _drop(self) -> None:
        """Drop what policy, snapshots, state machine and members that are behind leave."""
        applied, kept_from = self._replica.state.applied, self._kept_from()
        snapshots = None if self._machine is None else self._indexes or ()
        before = first_kept(self._policy, applied, snapshots, kept_from)
        before = min([before, *(offer.begin.before_index + 1 for offer in self._needed())])
        before = min(before, self._store.synced_index)
        first = self._store.first_index
        if not first < before <= self._store.last_index:
            return
        if self._store.segment_begin(before).first_index == first:
            return  # only whole segments go
        self._store.note_committed(self._replica.appliable)
        self._store.discard_before(before)
        self._cut = True
        self._replica.view.discard_before(self._store.first_index)
        self._log_cut()

    def _kept_from(self) -> int | None:
        """What the state machine says. Raises MachineFailed."""
        if self._retention is None:
            return None
        try:
            return self._retention()
        except Exception as error:
            applied = self._replica.state.applied
            raise MachineFailed(applied, applied) from error

    def _holds_up_retention(self) -> bool:
        """Whether the state machine lets go of entries that only newer snapshots could replace."""
        kept_from, applied = self._kept_from(), self._replica.state.applied
        if not kept_from or self._indexes is None:
            return False
        wanted = kept_with_new_snapshots(self._policy, applied, kept_from)
        if wanted <= first_kept(self._policy, applied, self._indexes, kept_from):
            return False
        first = self._store.first_index
        return wanted > first and self._store.segment_begin(wanted).first_index > first

    async def _remove_discarded(self) -> None:
        if not self._cut or (files := self._store.take_discarded()) is None:
            return  # nothing to remove, or its record is not durable yet
        try:
            await self._run_blocking(files.remove)
        except DiskFailed as error:
            logger.warning("files of the log's beginning stay until the next start: %s", error)


class _Waiter:
    """Somebody who asked for a snapshot."""

    def __init__(self) -> None:
        self.answered = trio.Event()
        self.answer: Snapshot | DLedgerError = NodeClosing()

    def give(self, answer: Snapshot | DLedgerError) -> None:
        self.answer = answer
        self.answered.set()
