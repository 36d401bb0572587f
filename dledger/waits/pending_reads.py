"""Linearizable reads that wait for a confirmation, and for their index to be applied."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dledger.core.reads.read_index import ReadLost, ReadReady
from dledger.errors import DLedgerError, ReadUnavailable
from dledger.node_end import NodeEnd
from dledger.waits.read_problem import ReadFacts, not_applied, stopped_leading, unconfirmed

# Limit on waiting reads. Each is a task of the application; more would only wait longer.
MAX_WAITING_READS = 10_000

# The outcome of a read: the index that the state includes, or why it cannot be served.
ReadOutcome = int | DLedgerError


class PendingReads:
    """The open reads of one member, by ticket.

    Args:
        begin: asks the protocol to confirm a ticket.
        facts: returns what the member knows, for the reason of a read that fails.
        wait_s: how long the protocol waits for a leader's answer.
    """

    def __init__(
        self, begin: Callable[[int], None], facts: Callable[[], ReadFacts], wait_s: float
    ) -> None:
        self._begin = begin
        self._facts = facts
        self._wait_s = wait_s
        self._open: dict[int, Callable[[ReadOutcome], None]] = {}
        self._confirmed: dict[int, int] = {}
        self._last_ticket = 0

    def begin(self, done: Callable[[ReadOutcome], None]) -> int:
        """Begin a read; return its ticket. `done` is called once, unless the read is given up.

        Raises ReadUnavailable.
        """
        if len(self._open) >= MAX_WAITING_READS:
            raise ReadUnavailable(f"{len(self._open)} reads wait already")
        self._last_ticket += 1
        ticket = self._last_ticket
        self._open[ticket] = done
        self._begin(ticket)
        return ticket

    def give_up(self, ticket: int) -> None:
        self._open.pop(ticket, None)
        self._confirmed.pop(ticket, None)

    def take(self, ready: Sequence[ReadReady], lost: Sequence[ReadLost]) -> None:
        """Take over the confirmed and the lost reads of the protocol."""
        for ticket, index, _ in ready:
            if ticket in self._open:
                self._confirmed[ticket] = index
        for each in lost:
            wanted = self._confirmed.pop(each.ticket, None)
            if each.ticket in self._open:
                done = self._open.pop(each.ticket)
                done(ReadUnavailable(self._reason(wanted, each.stopped_leading)))

    def _reason(self, index: int | None, deposed: bool) -> str:
        """Say why a read is not served. `index`, once confirmed, is the entry that it needs."""
        if index is not None:
            return not_applied(self._facts(), index)
        if deposed:
            return stopped_leading(self._facts())
        return unconfirmed(self._facts(), self._wait_s)

    def applied_to(self, index: int) -> None:
        """Answer the reads that need only entries up to `index`, the last applied one."""
        if not self._confirmed:
            return
        for ticket in [t for t, wanted in self._confirmed.items() if wanted <= index]:
            self._open.pop(ticket)(self._confirmed.pop(ticket))

    def close(self, end: NodeEnd) -> None:
        """Answer every read with NodeClosing: the node stops."""
        self._confirmed.clear()
        for ticket in list(self._open):
            self._open.pop(ticket)(end.closing())
