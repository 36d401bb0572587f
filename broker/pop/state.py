"""Popped messages: until when consumers have them, and how often they were given.

RocketMQ stores a check-point message for each pop, and a copy of each message that was not
acknowledged. Here a message that is given again stays at its place, and the state has a row for it
while it is in flight. So a new leader knows all that the old one has given, and what was
acknowledged.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from broker.log.belongings import Belongings
from broker.log.state import Deletion, Rows, StatePart

# A group, a topic, and the id of a queue.
QueueKey: TypeAlias = tuple[str, str, int]


class InFlight(NamedTuple):
    """A message that was given and is not acknowledged. Times are milliseconds since 1970.

    Attributes:
        popped_ms: when it was given. It names the delivery, and is part of its handles: the next
            delivery has a later one. Entries before version 8 set it anew when they hid it.
        visible_ms: when it is given again. 0 if it was acknowledged in order, but an earlier
            message was not: it is given again with that one.
        times: how often it was given.
        is_ordered: whether it was given in order.
        behind: how often it was given again behind another message, in order. No consumer
            can have processed it then, so it does not count towards dead letters.
        is_suspended: whether the next delivery is not counted, because this one was suspended.
    """

    popped_ms: int
    visible_ms: int
    times: int
    is_ordered: bool = False
    behind: int = 0
    is_suspended: bool = False

    @property
    def attempts(self) -> int:
        """How many deliveries count."""
        return self.times - self.is_suspended

    @property
    def is_settled(self) -> bool:
        """Whether it only waits for the acknowledgement of an earlier message."""
        return not self.visible_ms


class PopStep(NamedTuple):
    """A step in the life of a popped message.

    Attributes:
        event: "given", "acknowledged", "hidden" or "buried".
        popped_ms: when it was given.
        visible_ms: when it is given again; None if it is not.
    """

    key: QueueKey
    offset: int
    event: str
    popped_ms: int
    visible_ms: int | None = None


@dataclass(slots=True)
class PopQueue:
    """A queue from which a group pops.

    Attributes:
        next_offset: the first message that was never given.
        in_flight: messages in flight by offset, ascending.
        attempt_id: of the last pop in order; a client that repeats it lost the answer.
    """

    next_offset: int
    in_flight: dict[int, InFlight] = field(default_factory=dict)
    attempt_id: str = ""

    def __copy__(self) -> "PopQueue":
        return PopQueue(self.next_offset, self.in_flight.copy(), self.attempt_id)

    def has(self, offset: int, popped_ms: int) -> bool:
        """Return whether a message is in flight, and was last given at `popped_ms`."""
        flight = self.in_flight.get(offset)
        return flight is not None and flight.popped_ms == popped_ms

    def land(self, offset: int) -> int:
        """Acknowledge a message in flight; return how many are so no more.

        A message given in order is done when all earlier ones are.
        """
        flight = self.in_flight[offset]
        if flight.is_ordered and offset != self.done_offset:
            self.in_flight[offset] = flight._replace(visible_ms=0)
            return 0
        return self.end(offset)

    def end(self, offset: int) -> int:
        """Remove a message, and later ones that waited for it; return how many."""
        in_flight = self.in_flight
        before = len(in_flight)
        del in_flight[offset]
        while in_flight and in_flight[first := next(iter(in_flight))].is_settled:
            del in_flight[first]
        return before - len(in_flight)

    @property
    def done_offset(self) -> int:
        """The offset before which all messages are acknowledged."""
        return next(iter(self.in_flight), self.next_offset)


@dataclass(slots=True)
class Pops:
    """All queues from which groups pop. Only the fold changes it.

    Attributes:
        queues: by group, topic and queue.
        in_flight_count: messages in flight of all queues.
    """

    queues: Belongings[QueueKey, PopQueue] = field(default_factory=Belongings)
    in_flight_count: int = 0

    def land(self, key: QueueKey, offset: int, popped_ms: int) -> bool:
        """Acknowledge a message, if it was last given at `popped_ms`."""
        queue = self._given(key, offset, popped_ms)
        if queue is None:
            return False
        self.in_flight_count -= queue.land(offset)
        return True

    def bury(self, key: QueueKey, offset: int, popped_ms: int) -> bool:
        """Remove a message from those in flight, if it was last given at `popped_ms`."""
        queue = self._given(key, offset, popped_ms)
        if queue is None:
            return False
        self.in_flight_count -= queue.end(offset)
        return True

    def hide(
        self, key: QueueKey, offset: int, popped_ms: int, hidden: tuple[int, int, bool]
    ) -> bool:
        """Change when a message is given again, if it was last given at `popped_ms`. `hidden` has
        the new `popped_ms`, `visible_ms` and `is_suspended`.
        """
        queue = self._given(key, offset, popped_ms)
        if queue is None or queue.in_flight[offset].is_settled:
            return False
        new_popped_ms, visible_ms, is_suspended = hidden
        queue.in_flight[offset] = queue.in_flight[offset]._replace(
            popped_ms=new_popped_ms, visible_ms=visible_ms, is_suspended=is_suspended
        )
        return True

    def flight(self, key: QueueKey, offset: int) -> InFlight | None:
        queue = self.queues.get(key)
        return None if queue is None else queue.in_flight.get(offset)

    def _given(self, key: QueueKey, offset: int, popped_ms: int) -> PopQueue | None:
        """Return the queue of a message, to be changed, if the message was last given at
        `popped_ms`.
        """
        flight = self.flight(key, offset)
        if flight is None or flight.popped_ms != popped_ms:
            return None
        return self.queues.changing(key)

    def drop(self, key: QueueKey) -> None:
        queue = self.queues.pop(key, None)
        if queue is not None:
            self.in_flight_count -= len(queue.in_flight)


def _topic_deleted(pops: Pops, deletion: Deletion) -> None:
    _left(pops, pops.queues.values_of_topic(deletion.name))
    pops.queues.drop_topic(deletion.name)


def _group_deleted(pops: Pops, deletion: Deletion) -> None:
    _left(pops, pops.queues.values_of_group(deletion.name))
    pops.queues.drop_group(deletion.name)


def _left(pops: Pops, queues: list[PopQueue]) -> None:
    """Subtract the messages in flight of dropped queues."""
    pops.in_flight_count -= sum([len(queue.in_flight) for queue in queues])


def _captured(pops: Pops) -> Iterator[object]:
    return (
        [*key, queue.next_offset, queue.attempt_id, captured_flights(queue)]
        for key, queue in pops.queues.captured()
    )


def captured_flights(queue: PopQueue) -> dict[int, object]:
    """Return the messages in flight as a snapshot holds them."""
    # Members of an earlier version, which are never told of suspended messages, read five values.
    return {at: one if one[5] else one[:5] for at, one in queue.in_flight.items()}


def _flight(
    popped_ms: int,
    visible_ms: int,
    times: int,
    is_ordered: bool = False,
    behind: int = 0,
    is_suspended: bool = False,
) -> InFlight:
    return InFlight(
        int(popped_ms),
        int(visible_ms),
        int(times),
        bool(is_ordered),
        int(behind),
        bool(is_suspended),
    )


def read_flights(values: dict[Any, Any]) -> dict[int, InFlight]:
    """Read messages in flight from a snapshot. Raises ValueError, TypeError."""
    return {int(at): _flight(*one) for at, one in values.items()}


def _take(pops: Pops, rows: list[Any]) -> None:
    for group, topic, queue_id, next_offset, attempt_id, in_flight in rows:
        queue = PopQueue(int(next_offset), read_flights(in_flight), str(attempt_id))
        pops.queues[group, topic, queue_id] = queue
        pops.in_flight_count += len(queue.in_flight)


POPS: Final = StatePart(
    "pops",
    Pops,
    rows=(Rows("pops", _captured, _take),),
    topic_deleted=_topic_deleted,
    group_deleted=_group_deleted,
)
