"""Which queue a message goes to."""

from collections.abc import Sequence
from typing import Final

from remoting.bodies.message_queue import MessageQueue
from remoting.message.java_hash import java_hash

_MASK: Final = (1 << 64) - 1
_STEP: Final = 2862933555777941757


class QueueChoice:
    """Chooses the queues of messages: in turn, or by a message group."""

    def __init__(self) -> None:
        self._next = 0

    def choose(
        self, queues: Sequence[MessageQueue], place: str, priority: int | None
    ) -> MessageQueue:
        """Return the queue for a message.

        Args:
            queues: all write queues of the topic, at least one, in their order.
            place: the message group or lite topic, which always has the same queue; or empty.
            priority: of the message; None without one. A higher one has a higher queue.
        """
        if place:
            return queues[consistent_hash(java_hash(place), len(queues))]
        self._next += 1
        if priority is not None:
            names = sorted({queue.broker_name for queue in queues})
            name = names[self._next % len(names)]
            own = [queue for queue in queues if queue.broker_name == name]
            return own[min(priority, len(own) - 1)]
        return queues[self._next % len(queues)]


def consistent_hash(value: int, buckets: int) -> int:
    """Return the bucket of a number, as Guava's Hashing.consistentHash: few move when a bucket is
    added. RocketMQ's proxy finds the queue of a message group by it.

    Source: Lamping and Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm".
    """
    state = value & _MASK
    bucket, following = -1, 0
    while following < buckets:
        bucket = following
        state = (state * _STEP + 1) & _MASK
        following = int((bucket + 1) / (((state >> 33) + 1) / 2**31))
    return bucket
