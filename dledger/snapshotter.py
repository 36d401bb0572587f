"""Writes snapshots beside the appends, and drops the log that they stand for."""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from dledger.core.configuration_codec import encode_configuration
from dledger.core.replica import Replica
from dledger.errors import DiskFailed, DLedgerError, NodeClosing, SnapshotUnavailable
from dledger.restoring import Opened
from dledger.snapshot_policy import SnapshotPolicy
from dledger.state_machine import SnapshottingMachine, StateMachine, snapshot_format
from dledger.store.snapshot_folder import Snapshot
from dledger.store.snapshot_format import SnapshotHeader

logger = logging.getLogger(__name__)

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
    """

    def __init__(
        self,
        group: str,
        policy: SnapshotPolicy,
        machine: StateMachine,
        opened: Opened,
        replica: Replica,
        log_cut: Callable[[], None],
    ) -> None:
        self._group = group
        self._policy = policy
        self._machine = machine if isinstance(machine, SnapshottingMachine) else None
        self._store, self._folder, self._last = opened
        self._replica = replica
        self._log_cut = log_cut
        self._cut = False  # whether the log's beginning was dropped, so that files may have to go
        self._wanted = trio.Event()
        self._waiting: list[_Waiter] = []
        self._retry_at = 0.0
        self._closed = False

    async def take(self) -> Snapshot:
        """Write a snapshot of what is applied now, or a little later; what was written.

        If the newest one is of the last applied entry already, nothing is written. Cancelling
        gives up the wait only. Raises SnapshotUnavailable, NodeClosing.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._closed:
            raise NodeClosing
        if self._machine is None:
            raise SnapshotUnavailable("the state machine has no methods snapshot() and restore()")
        waiter = _Waiter()
        self._waiting.append(waiter)
        self._wanted.set()
        await waiter.answered.wait()
        if isinstance(waiter.answer, Snapshot):
            return waiter.answer
        raise waiter.answer

    async def run(self) -> None:
        """Write what is due or asked for, for ever."""
        while self._machine is not None:
            with trio.move_on_after(LOOK_INTERVAL_S):
                await self._wanted.wait()
            self._wanted = trio.Event()
            waiting, self._waiting = self._waiting, []
            if waiting or self._is_due():
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
        last = self._last.header if self._last else None
        since = applied - (last.index if last else -1)
        if not policy.is_on or since <= 0 or trio.current_time() < self._retry_at:
            return False
        if policy.every_entries and since >= policy.every_entries:
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
        self._last = snapshot
        self._replica.state.membership.forget_before(snapshot.header.index)
        await self._drop_what_is_covered()
        return snapshot

    async def _write(self, machine: SnapshottingMachine) -> Snapshot | None:
        applied = self._replica.state.applied
        if self._last is not None and self._last.header.index == applied:
            return self._last
        if applied < self._store.first_index:
            raise SnapshotUnavailable("nothing is applied yet")
        header = self._header(applied, snapshot_format(machine))
        try:
            # Between two applies, as this is one turn of the loop: the state is of `applied`.
            chunks = iter(machine.snapshot())
            return await trio.to_thread.run_sync(
                self._folder.write, header, chunks, lambda: self._closed
            )
        except OSError as error:
            reason = f"{error.filename or self._folder.path}: {error.strerror or error}"
            raise SnapshotUnavailable(reason) from error
        except Exception as error:
            raise SnapshotUnavailable(f"the state machine raised {error!r}") from error

    def _header(self, applied: int, machine_format: str) -> SnapshotHeader:
        entry = self._store.header_at(applied)
        return SnapshotHeader(
            applied,
            entry.term,
            entry.pos,
            entry.size,
            entry.chain_crc,
            self._group,
            machine_format,
            self._configuration(applied),
        )

    def _configuration(self, applied: int) -> bytes:
        """Who belongs to the group; nothing where this member was not told yet."""
        numbered = self._replica.state.membership.at(applied)
        return encode_configuration(*numbered) if numbered.configuration.voters else b""

    # --- dropping -----------------------------------------------------------------------------

    async def _drop_what_is_covered(self) -> None:
        """Remove old snapshots, then the log that the oldest one left stands for.

        The log is kept from the oldest snapshot on, so that each of them can be begun with.
        """
        kept, folder = self._policy.kept, self._folder

        def tidy() -> list[int]:
            folder.keep_newest(kept)
            return folder.indexes()

        try:
            indexes = await trio.to_thread.run_sync(tidy)
        except OSError as error:
            logger.warning("old snapshots stay: %s", error)
            return
        if len(indexes) < kept:
            return
        applied = self._replica.state.applied
        before = min(indexes[-1] + 1, applied - self._policy.trailing_entries + 1, applied)
        if before <= self._store.first_index:
            return
        self._store.note_committed(self._replica.appliable)
        self._store.discard_before(before)
        self._cut = True
        self._replica.view.discard_before(self._store.first_index)
        self._log_cut()

    async def _remove_discarded(self) -> None:
        if not self._cut or (files := self._store.take_discarded()) is None:
            return  # nothing to remove, or its record is not durable yet
        try:
            await trio.to_thread.run_sync(files.remove)
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
