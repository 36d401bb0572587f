"""Tasks that wait for a linearizable read to be confirmed, and for its index to be applied."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import outcome
import trio

from dledger.core.reads.read_index import ReadReady
from dledger.errors import DLedgerError, NodeClosing, ReadUnavailable

# Reads that may wait at a time. Each is a task of the application; more of them only wait longer.
MAX_WAITING_READS = 10_000


class WaitingReads:
    """One ticket for each waiting task."""

    def __init__(self, begin: Callable[[int], None], wait_s: float) -> None:
        self._begin = begin
        self._wait_s = wait_s
        self._tasks: dict[int, trio.lowlevel.Task] = {}
        self._confirmed: dict[int, int] = {}
        self._last_ticket = 0

    async def wait(self) -> int:
        """The index that a read begun now must see, once it is applied here.

        Raises ReadUnavailable, NodeClosing.
        """
        if len(self._tasks) >= MAX_WAITING_READS:
            raise ReadUnavailable(f"{len(self._tasks)} reads wait already")
        self._last_ticket += 1
        ticket = self._last_ticket
        self._tasks[ticket] = trio.lowlevel.current_task()

        def abandon(_: object) -> trio.lowlevel.Abort:
            self._tasks.pop(ticket, None)
            self._confirmed.pop(ticket, None)
            return trio.lowlevel.Abort.SUCCEEDED

        self._begin(ticket)
        result: int | DLedgerError = await trio.lowlevel.wait_task_rescheduled(abandon)
        if isinstance(result, DLedgerError):
            raise result
        return result

    def after_turn(self, ready: Sequence[ReadReady], lost: Sequence[int]) -> None:
        """What the protocol says about reads."""
        for ticket, index, _ in ready:
            if ticket in self._tasks:
                self._confirmed[ticket] = index
        for ticket in lost:
            self._confirmed.pop(ticket, None)
            if ticket in self._tasks:
                reason = f"leadership changed, or {self._wait_s:g} s passed without a leader's word"
                self._finish(ticket, ReadUnavailable(reason))

    def applied_to(self, index: int) -> None:
        """The state machine has everything up to `index`."""
        if not self._confirmed:
            return
        for ticket in [t for t, wanted in self._confirmed.items() if wanted <= index]:
            self._finish(ticket, self._confirmed.pop(ticket))

    def close(self) -> None:
        """The node stops: nobody would answer these."""
        self._confirmed.clear()
        for ticket in list(self._tasks):
            self._finish(ticket, NodeClosing())

    def _finish(self, ticket: int, result: int | DLedgerError) -> None:
        trio.lowlevel.reschedule(self._tasks.pop(ticket), outcome.Value(result))
