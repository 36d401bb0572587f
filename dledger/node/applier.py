"""Feeds committed entries to the state machine, in order, and answers the appends among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from dledger.core.replica import Replica
from dledger.entry import Magic
from dledger.entry_run import EntryRun
from dledger.machine_check import applied
from dledger.node.entry_cache import MAX_RUN_ENTRIES
from dledger.snapshots.awaited_snapshot import AwaitedSnapshot
from dledger.state_machine import StateMachine
from dledger.waits.pending_appends import PendingAppends

NORMAL = int(Magic.NORMAL)  # looking up a member of an enum takes longer than comparing it


class Entries(Protocol):
    """Where entries are read from: an EntryCache."""

    def take(self, first: int, last: int) -> EntryRun:
        """At least one of the entries first..last, from `first`; those before are not kept on."""
        ...


class Applier:
    """Applies what is committed and durable here, and no more.

    Args:
        replica: knows how far that is.
        entries: the entries.
        machine: the state machine.
        pending: appends to be answered.
        awaited: the snapshot that the machine waits for instead, if it does.
        applied: told after each run of entries.
        wake: has `apply_some` called again soon.
        run_entries: what is applied at once, at most.
    """

    def __init__(
        self,
        replica: Replica,
        entries: Entries,
        machine: StateMachine,
        pending: PendingAppends,
        awaited: AwaitedSnapshot,
        applied: Callable[[], None],
        wake: Callable[[], None],
        run_entries: int = MAX_RUN_ENTRIES,
    ) -> None:
        self._replica = replica
        self._entries = entries
        self._machine = machine
        self._pending = pending
        self._awaited = awaited
        self._applied = applied
        self._wake = wake
        self._run_entries = run_entries

    def begin(self) -> None:
        """Apply the first run of what is there at once, and leave the rest for later: to wait for
        that one would cost every append a wake-up. Raises MachineFailed, RestoreFailed.
        """
        replica = self._replica
        if replica.appliable > replica.state.applied:
            if self._awaited.snapshot is not None:
                self._awaited.restore_if_due()
            elif self.apply_some() and replica.appliable > replica.state.applied:
                self._wake()

    def apply_some(self) -> bool:
        """Apply one run of entries; whether there was one. Raises MachineFailed."""
        replica = self._replica
        first = max(replica.state.applied, replica.view.before_begin) + 1
        last = min(replica.appliable, first + self._run_entries - 1)
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
