"""Feeds committed entries to the state machine, in order, and answers the appends among them."""

from __future__ import annotations

import logging
import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol

from dledger.core.replica import Replica
from dledger.entry import Magic
from dledger.entry_run import EntryRun
from dledger.errors import MachineTooOld
from dledger.machine_check import applied
from dledger.node.log_writer import MAX_RUN_ENTRIES
from dledger.snapshots.awaited_snapshot import AwaitedSnapshot
from dledger.state_machine import StateMachine
from dledger.waits.change_history import ChangeHistory
from dledger.waits.pending_appends import PendingAppends

NORMAL = int(Magic.NORMAL)  # looking up a member of an enum takes longer than comparing it

# The entries that the machine gets in one call, and how long further calls follow without a pause.
# The cost of an entry grows at most with its bytes, so the costliest hold the loop for some ten
# milliseconds. Smaller parts would cost machines that do something once per call.
PART_ENTRIES: Final = 128
PART_BYTES: Final = 128 * 1024
TURN_S: Final = 0.005

# A gap in the machine's changes is logged this often at most, because each entry may make one.
TELL_GAPS_S: Final = 60.0

logger = logging.getLogger(__name__)


class Entries(Protocol):
    """Holds the entries to apply: an EntryCache."""

    def take(self, first: int, last: int) -> EntryRun: ...


class Applier:
    """Applies the entries that are committed and durable here.

    Args:
        replica: knows the last of these entries.
        entries: the source of the entries.
        machine: the state machine.
        pending: appends to be answered.
        awaited: the snapshot that the machine waits for, if any; no entry is applied until then.
        applied: called after each run of entries.
        wake: requests another call of `apply_some` soon.
        clock: seconds on the monotonic clock.
        run_entries: the most entries that one call applies.
        pass_over: entries that are not applied to the machine.
        history: keeps the changes that the machine reports, if it reports any.

    Attributes:
        stopped: the error of the entry that the machine cannot read; no entry from there on is
            applied.
    """

    stopped: MachineTooOld | None

    def __init__(
        self,
        replica: Replica,
        entries: Entries,
        machine: StateMachine,
        pending: PendingAppends,
        awaited: AwaitedSnapshot,
        applied: Callable[[], None],
        wake: Callable[[], None],
        clock: Callable[[], float],
        run_entries: int = MAX_RUN_ENTRIES,
        pass_over: Collection[int] = (),
        history: ChangeHistory | None = None,
    ) -> None:
        self.stopped = None
        self._history = history
        self._told_gap_at = -math.inf
        self._pass_over = sorted(pass_over)
        self._replica = replica
        self._entries = entries
        self._machine = machine
        self._pending = pending
        self._awaited = awaited
        self._applied = applied
        self._wake = wake
        self._clock = clock
        self._run_entries = run_entries

    def begin(self) -> None:
        """Apply the first run now, and have `wake` called for the rest.

        Leaving the first run to a task would cost every append a wake-up. Raises MachineFailed,
        RestoreFailed.
        """
        replica = self._replica
        if self._awaited.snapshot is not None:
            self._awaited.restore_if_due()
        elif self.apply_some() and replica.appliable > replica.state.applied:
            self._wake()

    def apply_some(self) -> bool:
        """Apply one run of entries, or a part of it; return False if there was none. Raises
        MachineFailed.
        """
        replica = self._replica
        first = max(replica.state.applied, replica.view.before_begin) + 1
        last = min(replica.appliable, first + self._run_entries - 1)
        if first > last or self._awaited.snapshot is not None or self.stopped is not None:
            return False
        if self._pass_over:
            last = self._cut(first, last)
        run = self._entries.take(first, last)
        begin, end, count = 0, _part_end(run, 0), len(run.bodies)
        until = self._clock() + TURN_S if end < count else math.inf
        while True:
            part = run.part(begin, end)
            try:
                results = self._apply(part)
            except MachineTooOld as error:
                self.stopped = error
                self._applied()
                return False
            part_last = part.last
            replica.applied_to(part_last)
            if self._history is not None and (gap := self._history.applied(part_last)) is not None:
                self._tell_gap(gap, part_last)
            self._pending.applied(part, results)
            self._applied()
            # A caller that waited for these entries may have applied further ones already.
            is_next = replica.state.applied == part_last and self._awaited.snapshot is None
            if end == count or not is_next or self._clock() >= until:
                return True
            begin, end = end, _part_end(run, end)

    def _tell_gap(self, problem: str, index: int) -> None:
        now = self._clock()
        if now - self._told_gap_at >= TELL_GAPS_S:
            self._told_gap_at = now
            logger.warning(
                "the state machine tells what no watch can carry, up to entry %d: %s; watches "
                "begin anew behind it",
                index,
                problem,
            )

    def _cut(self, first: int, last: int) -> int:
        """Return the end of a run in which each entry to pass over stands alone."""
        for index in self._pass_over:
            if index == first:
                return first
            if first < index <= last:
                return index - 1
        return last

    def _apply(self, run: EntryRun) -> Sequence[object]:
        """Apply a run; return a result for each entry. No-ops and configurations only get None."""
        if run.magic != NORMAL or run.first in self._pass_over:
            return [None] * len(run.bodies)
        return applied(self._machine.apply, run, run.first, run.last)


def _part_end(run: EntryRun, begin: int) -> int:
    """Return where the part of a run ends that begins at `begin`; it has one entry at least."""
    positions = run.positions
    most = min(len(run.bodies), begin + PART_ENTRIES)
    return bisect_left(positions, positions[begin] + PART_BYTES, begin + 1, most)
