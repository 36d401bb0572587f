"""The messages that consumers received, and whether they had received all there were."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from jepsen_like.checkers.report import Findings
from jepsen_like.history.errors import HistoryUnreadable
from jepsen_like.history.history import History
from jepsen_like.history.operation import Operation
from jepsen_like.history.value import Value, shown

SENDS = frozenset({"send", "enqueue"})
DRAINS = frozenset({"drain"})
RECEIVES = frozenset({"receive", "dequeue"}) | DRAINS


class Delivery(NamedTuple):
    """One message in one answer to a consumer."""

    message: Value
    receive: Operation

    @property
    def line(self) -> int:
        """The line of the answer."""
        return self.receive.ended_line or self.receive.invoked_line


class Deliveries:
    """The answers to the consumers of one queue, in the order in which they came.

    A `receive` returns null, a message, or a list of messages; so does a `drain`, and when it ends
    the queue is empty.
    """

    def __init__(self) -> None:
        self.by_message: dict[Value, list[Delivery]] = {}
        self._receives: list[Operation] = []
        self._last_drain = 0
        self.has_unknown = False

    def take(self, receive: Operation) -> None:
        """Take the next operation of a consumer, in the order of calls."""
        if receive.ok:
            self._receives.append(receive)
            if receive.function in DRAINS:
                self._last_drain = receive.invoked_line
        elif not receive.failed:
            self.has_unknown = True

    def close(self) -> None:
        """Sort the answers; none is taken afterwards."""
        self._receives.sort(key=lambda one: one.ended_line or 0)
        for delivery in self:
            self.by_message.setdefault(delivery.message, []).append(delivery)

    def __iter__(self) -> Iterator[Delivery]:
        for receive in self._receives:
            messages = receive.result
            if messages is None:
                continue
            if not isinstance(messages, (tuple, frozenset)):
                messages = (messages,)
            for message in messages:
                yield Delivery(message, receive)

    def drained_after(self, line: float) -> bool:
        """Return whether a drain that began after a line found everything."""
        return self._last_drain > line

    def tell_duplicates(self, findings: Findings) -> int:
        """Note messages that were received more than once; return how many."""
        duplicated = 0
        for message, deliveries in self.by_message.items():
            if len(deliveries) > 1:
                duplicated += 1
                lines = [one.line for one in deliveries]
                where = ", ".join(map(str, lines[:8]))
                how = f"{shown(message, 40)} was received {len(lines)} times: lines {where}"
                findings.add("duplicated", how, *lines[:8])
        return duplicated


def deliveries_by_key(operations: Iterable[Operation]) -> dict[Value, Deliveries]:
    """Return what the consumers of each queue received, of operations of any function."""
    found: dict[Value, Deliveries] = {}
    for operation in operations:
        deliveries = found.setdefault(operation.key, Deliveries())
        if operation.function in RECEIVES:
            deliveries.take(operation)
    for deliveries in found.values():
        deliveries.close()
    return found


def sent_again(
    history: History, message: Value, before: Operation, operation: Operation
) -> HistoryUnreadable:
    """Return the error for a message that two operations send: their deliveries look alike."""
    return history.unreadable(
        operation.invoked_line,
        f"{shown(message, 40)} is sent again (first in line {before.invoked_line}): give "
        "each message a value of its own, and record attempts of one send as one operation",
    )


class Missing:
    """Messages that should have been received and were not."""

    def __init__(self) -> None:
        self.lost = 0
        self.unseen = 0
        self.maybe_taken = 0

    def add(
        self, findings: Findings, deliveries: Deliveries, what: str, message: Value, line: int
    ) -> None:
        """Note a message that is certainly in the queue since a line, and was not received."""
        if not deliveries.drained_after(line):
            self.unseen += 1
        elif deliveries.has_unknown:
            self.maybe_taken += 1
        else:
            self.lost += 1
            how = f"{shown(message, 40)}, {what} in line {line}, was never received"
            findings.add("lost", how, line)

    def unknown(self) -> str | None:
        """Return why the verdict is unknown, if it is."""
        if self.maybe_taken:
            return f"{self.maybe_taken} messages may have gone to a receive of unknown outcome"
        if self.unseen:
            return f"{self.unseen} messages were not received, and no drain came after them"
        return None
