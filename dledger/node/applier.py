"""Feeds committed entries to the state machine, in order, and wakes who waited for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from dledger.core.replica import Replica
from dledger.entry import Magic
from dledger.entry_run import EntryRun
from dledger.machine_check import applied
from dledger.node.entry_cache import EntryCache
from dledger.snapshots.awaited_snapshot import AwaitedSnapshot
from dledger.state_machine import StateMachine
from dledger.waits.pending_appends import PendingAppends

NORMAL = int(Magic.NORMAL)  # looking up a member of an enum takes longer than comparing it


class Applier:
    """Applies what is committed and durable here, and no more."""

    def __init__(
        self,
        replica: Replica,
        entries: EntryCache,
        machine: StateMachine,
        pending: PendingAppends,
        applied: Callable[[], None],
        awaited: AwaitedSnapshot,
    ) -> None:
        self._replica = replica
        self._entries = entries
        self._machine = machine
        self._pending = pending
        self._applied = applied
        self._awaited = awaited
        self._wake = trio.lowlevel.ParkingLot()

    def wake(self) -> None:
        """There may be something to apply."""
        self._wake.unpark()

    async def run(self) -> None:
        """Apply whatever becomes appliable, for ever."""
        while True:
            while self.apply_some():
                await trio.lowlevel.checkpoint()
            if await self._awaited.restore_if_due():
                self._applied()
            else:
                await self._wake.park()

    def begin(self) -> None:
        """Apply the first run of what is there at once, and leave the rest to the task: to wait for
        that one would cost every append a wake-up. Raises MachineFailed.
        """
        replica = self._replica
        if replica.appliable > replica.state.applied:
            self.apply_some()
            if replica.appliable > replica.state.applied:
                self.wake()

    def apply_some(self) -> bool:
        """Apply one run of entries; whether there was one. Raises MachineFailed."""
        replica = self._replica
        first = replica.state.applied + 1
        first = max(first, replica.view.before_begin + 1)
        last = replica.appliable
        if first > last or self._awaited.snapshot is not None:
            return False
        run = self._entries.take(first, last)
        results = self._apply(run)
        replica.applied_to(run.last)
        self._pending.applied(run, results)
        self._applied()
        return True

    def _apply(self, run: EntryRun) -> Sequence[object]:
        """One result an entry; no-ops and configurations are not the application's."""
        if run.magic != NORMAL:
            return [None] * len(run)
        return applied(self._machine.apply, run, run.first, run.last)
