"""What groups have popped: which messages are with consumers, until when, and how often they were.

RocketMQ stores a check-point message for each pop, and a copy of each message that was not
acknowledged. Here a message that is given again is the same one, at its old place, and that it is
out is a row of the state. So a new leader knows all that the old one has given and taken back.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from broker.log.belongings import Belongings
from broker.log.state import Deletion, Rows, StatePart

# A group, a topic, and the id of a queue.
QueueKey: TypeAlias = tuple[str, str, int]


class InFlight(NamedTuple):
    """A message that was given out and is not acknowledged. Times are milliseconds since 1970.

    Attributes:
        popped_ms: when it was given, or hidden longer; its handle says so.
        visible_ms: when it is given again. 0 when it was acknowledged in order, but a message
            before it was not: it comes again with that one.
        times: how often it was given.
        is_ordered: whether it was given in order.
        behind: how often it was given again behind another message, in order. Nobody can have
            consumed it then, so it must not become a dead letter for that.
    """

    popped_ms: int
    visible_ms: int
    times: int
    is_ordered: bool = False
    behind: int = 0

    @property
    def is_settled(self) -> bool:
        """Whether it only waits for the acknowledgement of a message before it."""
        return not self.visible_ms


class PopStep(NamedTuple):
    """Something became of a message that a group pops.

    Attributes:
        key: the queue of the group.
        offset: of the message.
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
    """A queue, as a group pops from it.

    Attributes:
        next_offset: the first message that was never given.
        in_flight: by offset, rising: what is out.
        attempt_id: of the last pop in order; a client that repeats it lost the answer.
    """

    next_offset: int
    in_flight: dict[int, InFlight] = field(default_factory=dict)
    attempt_id: str = ""

    def __copy__(self) -> "PopQueue":
        return PopQueue(self.next_offset, self.in_flight.copy(), self.attempt_id)

    @property
    def done_offset(self) -> int:
        """All messages before it are acknowledged."""
        return next(iter(self.in_flight), self.next_offset)


@dataclass(slots=True)
class Pops:
    """All queues that groups pop from. Only folds change it.

    Attributes:
        queues: by group, topic and queue.
        in_flight_count: how many messages are out.
    """

    queues: Belongings[QueueKey, PopQueue] = field(default_factory=Belongings)
    in_flight_count: int = 0

    def land(self, key: QueueKey, offset: int, popped_ms: int) -> bool:
        """A message is acknowledged, if it was given last at `popped_ms`.

        What was given in order is done when everything before it is.
        """
        queue = self._given(key, offset, popped_ms)
        if queue is None:
            return False
        flight = queue.in_flight[offset]
        if flight.is_ordered and offset != next(iter(queue.in_flight)):
            queue.in_flight[offset] = flight._replace(visible_ms=0)
        else:
            self._end(queue, offset)
        return True

    def bury(self, key: QueueKey, offset: int, popped_ms: int) -> bool:
        """A message is not given again, if it was given last at `popped_ms`."""
        queue = self._given(key, offset, popped_ms)
        if queue is None:
            return False
        self._end(queue, offset)
        return True

    def hide(
        self, key: QueueKey, offset: int, popped_ms: int, hidden_ms: int, visible_ms: int
    ) -> bool:
        """A message is given again at another time, if it was given last at `popped_ms`."""
        queue = self._given(key, offset, popped_ms)
        if queue is None or queue.in_flight[offset].is_settled:
            return False
        hidden = queue.in_flight[offset]._replace(popped_ms=hidden_ms, visible_ms=visible_ms)
        queue.in_flight[offset] = hidden
        return True

    def flight(self, key: QueueKey, offset: int) -> InFlight | None:
        """How a message is out, if it is."""
        queue = self.queues.get(key)
        return None if queue is None else queue.in_flight.get(offset)

    def _given(self, key: QueueKey, offset: int, popped_ms: int) -> PopQueue | None:
        """The queue of a message, to be changed, if it was given last at `popped_ms` and is out."""
        flight = self.flight(key, offset)
        if flight is None or flight.popped_ms != popped_ms:
            return None
        return self.queues.changing(key)

    def _end(self, queue: PopQueue, offset: int) -> None:
        """A message is done, and with it those behind that waited for it."""
        in_flight = queue.in_flight
        del in_flight[offset]
        self.in_flight_count -= 1
        while in_flight and in_flight[first := next(iter(in_flight))].is_settled:
            del in_flight[first]
            self.in_flight_count -= 1

    def drop(self, key: QueueKey) -> None:
        """Forget a queue."""
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
    """Queues go, with what is out of them."""
    pops.in_flight_count -= sum([len(queue.in_flight) for queue in queues])


def _captured(pops: Pops) -> Iterator[object]:
    return (
        [*key, queue.next_offset, queue.attempt_id, queue.in_flight]
        for key, queue in pops.queues.captured()
    )


def _flight(
    popped_ms: int, visible_ms: int, times: int, is_ordered: bool = False, behind: int = 0
) -> InFlight:
    return InFlight(int(popped_ms), int(visible_ms), int(times), bool(is_ordered), int(behind))


def _take(pops: Pops, rows: list[Any]) -> None:
    for group, topic, queue_id, next_offset, attempt_id, in_flight in rows:
        queue = PopQueue(int(next_offset), attempt_id=str(attempt_id))
        queue.in_flight = {int(at): _flight(*one) for at, one in in_flight.items()}
        pops.queues[group, topic, queue_id] = queue
        pops.in_flight_count += len(queue.in_flight)


POPS: Final = StatePart(
    "pops",
    Pops,
    rows=(Rows("pops", _captured, _take),),
    topic_deleted=_topic_deleted,
    group_deleted=_group_deleted,
)
