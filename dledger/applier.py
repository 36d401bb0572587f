"""Feeds committed entries to the state machine, in order, and wakes who waited for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from dledger.core.replica import Replica
from dledger.entry import Entry, Magic, decode_entries
from dledger.errors import InvariantBroken, MachineFailed
from dledger.pending import PendingAppends
from dledger.state_machine import StateMachine
from dledger.store.log_store import LogStore

# Applied in one go; between two such runs the node's other tasks have their turn.
APPLY_BYTES = 256 * 1024


class Applier:
    """Applies what is committed and durable here, and no more."""

    def __init__(
        self,
        replica: Replica,
        store: LogStore,
        machine: StateMachine,
        pending: PendingAppends,
        applied: Callable[[], None],
    ) -> None:
        self._replica = replica
        self._store = store
        self._machine = machine
        self._pending = pending
        self._applied = applied
        self._wake = trio.lowlevel.ParkingLot()

    def wake(self) -> None:
        """There may be something to apply."""
        self._wake.unpark()

    async def run(self) -> None:
        """Apply whatever becomes appliable, for ever."""
        while True:
            while self.apply_some():
                await trio.lowlevel.checkpoint()
            await self._wake.park()

    def apply_some(self) -> bool:
        """Apply one run of entries; whether there was one. Raises MachineFailed."""
        replica = self._replica
        first = replica.state.applied + 1
        first = max(first, replica.view.before_begin + 1)
        last = replica.appliable
        if first > last:
            return False
        entries = decode_entries(self._store.read(first, last, APPLY_BYTES))
        results = self._apply(entries)
        replica.applied_to(entries[-1].index)
        self._pending.applied(entries, results)
        self._applied()
        return True

    def _apply(self, entries: Sequence[Entry]) -> Sequence[object]:
        """One result an entry; no-ops and configurations are not the application's."""
        normal = [entry for entry in entries if entry.magic == Magic.NORMAL]
        try:
            results = self._machine.apply(normal) if normal else ()
        except Exception as error:
            raise MachineFailed(entries[0].index, entries[-1].index) from error
        if len(results) != len(normal):
            raise InvariantBroken(
                f"the state machine gave {len(results)} results for {len(normal)} entries"
            )
        if len(normal) == len(entries):
            return results
        remaining = iter(results)
        return [next(remaining) if e.magic == Magic.NORMAL else None for e in entries]
