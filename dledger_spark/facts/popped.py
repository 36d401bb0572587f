"""What groups have popped and not acknowledged, as brokers know it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

QueueKey = tuple[str, str, int]  # consumer group, topic, queue


class Flight(NamedTuple):
    """A message that was given. Times are milliseconds since 1970.

    Attributes:
        popped_ms: when it was given last, or hidden; an acknowledgement must name it.
        visible_ms: when it is given again; 0 if it was acknowledged in order and waits for one
            before it.
        is_ordered: whether it was given in order.
    """

    popped_ms: int
    visible_ms: int
    is_ordered: bool


@dataclass
class PoppedQueue:
    """A queue, as a group pops from it: the first message never given, and what is out."""

    next_offset: int
    flights: dict[int, Flight] = field(default_factory=dict)
    attempt_id: str = ""

    @property
    def done_offset(self) -> int:
        """All messages before it are acknowledged."""
        return next(iter(self.flights), self.next_offset)


class Popped:
    """All queues that groups pop from. Source of the rules: the broker's own fold (docs/pop.md)."""

    def __init__(self) -> None:
        self.queues: dict[QueueKey, PoppedQueue] = {}

    def give(
        self,
        key: QueueKey,
        popped_ms: int,
        visible_ms: int,
        first: int,
        next_offset: int,
        offsets: Sequence[int],
        attempt_id: str | None,
        *,
        begins: bool,
    ) -> list[int] | None:
        """Give messages. Returns those that are given; None if the pop does not go on here."""
        queue = self.queues.get(key)
        if begins:
            queue = self.queues[key] = PoppedQueue(first)
        if queue is None or queue.next_offset != first:
            return None
        is_repeated = bool(attempt_id) and attempt_id == queue.attempt_id
        new = Flight(popped_ms, visible_ms, attempt_id is not None)
        given = []
        for offset in offsets:
            if offset < first:
                flight = queue.flights.get(offset)
                if flight is None or not (flight.visible_ms <= popped_ms or is_repeated):
                    continue
            queue.flights[offset] = new
            given.append(offset)
        queue.next_offset = next_offset
        queue.attempt_id = attempt_id or ""
        return given

    def land(self, key: QueueKey, offset: int, popped_ms: int) -> bool:
        """Acknowledge a message. False if it is not out, or was given again since."""
        flight = self._flight(key, offset, popped_ms)
        if flight is None:
            return False
        queue = self.queues[key]
        if flight.is_ordered and offset != next(iter(queue.flights)):
            queue.flights[offset] = flight._replace(visible_ms=0)
        else:
            _end(queue, offset)
        return True

    def bury(self, key: QueueKey, offset: int, popped_ms: int) -> bool:
        """Give a message no more. False as for `land`."""
        if self._flight(key, offset, popped_ms) is None:
            return False
        _end(self.queues[key], offset)
        return True

    def hide(
        self, key: QueueKey, offset: int, popped_ms: int, hidden_ms: int, visible_ms: int
    ) -> bool:
        """Give a message again at another time. False as for `land`, or if it only waits."""
        flight = self._flight(key, offset, popped_ms)
        if flight is None or not flight.visible_ms:
            return False
        hidden = flight._replace(popped_ms=hidden_ms, visible_ms=visible_ms)
        self.queues[key].flights[offset] = hidden
        return True

    def drop_topic(self, topic: str) -> None:
        """Forget its queues."""
        self._drop(key for key in list(self.queues) if key[1] == topic)

    def drop_group(self, group: str) -> None:
        """Forget its queues."""
        self._drop(key for key in list(self.queues) if key[0] == group)

    def _drop(self, keys: Iterator[QueueKey]) -> None:
        for key in keys:
            del self.queues[key]

    def _flight(self, key: QueueKey, offset: int, popped_ms: int) -> Flight | None:
        queue = self.queues.get(key)
        flight = None if queue is None else queue.flights.get(offset)
        return flight if flight is not None and flight.popped_ms == popped_ms else None

    def as_json(self) -> list[Any]:
        """All of it, for `take`."""
        return [
            [*key, queue.next_offset, queue.attempt_id]
            + [[offset, *flight] for offset, flight in queue.flights.items()]
            for key, queue in self.queues.items()
        ]

    def take(self, content: list[Any]) -> None:
        """Go on from what `as_json` gave. Raises ValueError, TypeError."""
        for group, topic, queue_id, next_offset, attempt_id, *flights in content:
            queue = PoppedQueue(int(next_offset), attempt_id=str(attempt_id))
            queue.flights = {
                int(offset): Flight(int(popped), int(visible), bool(ordered))
                for offset, popped, visible, ordered in flights
            }
            self.queues[group, topic, int(queue_id)] = queue


def _end(queue: PoppedQueue, offset: int) -> None:
    """A message is done, and with it those behind that waited for it."""
    del queue.flights[offset]
    while queue.flights:
        first = next(iter(queue.flights))
        if queue.flights[first].visible_ms:
            return
        del queue.flights[first]
