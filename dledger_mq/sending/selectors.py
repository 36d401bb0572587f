"""Chooses the queue of a message."""

import zlib
from collections.abc import Callable, Sequence
from typing import TypeAlias

from dledger_mq.argument_checks import check_kind, check_queue
from dledger_mq.message import Message
from remoting.bodies.message_queue import MessageQueue

# Gets the writable queues of the topic in their order, at least one, and the message.
QueueSelector: TypeAlias = Callable[[Sequence[MessageQueue], Message], MessageQueue]


def by_key(key: str | bytes | int) -> QueueSelector:
    """Return a selector that sends all messages to one queue, which the key chooses.

    Messages with equal keys go to the same queue while the number of queues stays the same. An
    integer chooses the queue of that number, modulo their count; a text or bytes are hashed by
    CRC-32, which is the same in every process, unlike Python's own hash.

    Args:
        key: equal for messages that need an order among them.
    """
    check_kind("by_key", "key", key, (str, bytes, bytearray, int), "a text, bytes or a number")
    number = key if isinstance(key, int) else _hash(key)

    def select(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        return queues[number % len(queues)]

    return select


def by_sharding_key(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    """Choose a queue by the message's `sharding_key`; without one, the first queue."""
    return queues[_hash(message.sharding_key) % len(queues)]


def _hash(key: str | bytes) -> int:
    # A text may stand for bytes that are not UTF-8, as properties do.
    return zlib.crc32(key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key)


def to_queue(queue: MessageQueue) -> QueueSelector:
    """Return a selector that always chooses this queue, whether the route has it or not."""
    check_queue("to_queue", queue)

    def select(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        return queue

    return select


def chosen_queue(
    selector: QueueSelector, queues: Sequence[MessageQueue], message: Message
) -> MessageQueue:
    """Return the queue that a user's selector chooses.

    Raises:
        Exception: whatever the selector raises, or it did not choose a queue of the topic.
    """
    chosen = selector(queues, message)
    if not isinstance(chosen, MessageQueue):
        raise TypeError(f"it returned {chosen!r:.80}, no MessageQueue")
    if chosen.topic != queues[0].topic:
        raise ValueError(f"it returned a queue of topic {chosen.topic!r:.140}")
    if type(chosen.queue_id) is not int or type(chosen.broker_name) is not str:
        check_queue("selector", chosen)  # numbers of other libraries pass
    return chosen


class RoundRobin:
    """One queue after the other, skipping a broker that a retry avoids.

    `start` differs by producer, so that producers do not choose the same queues in step.
    """

    def __init__(self, start: int = 0) -> None:
        self._next = start

    def choose(self, queues: Sequence[MessageQueue], avoided_broker: str = "") -> MessageQueue:
        """Return the next of `queues`, of another broker than `avoided_broker` if there is one."""
        count = len(queues)
        for step in range(count):
            queue = queues[(self._next + step) % count]
            if queue.broker_name != avoided_broker:
                self._next = (self._next + step + 1) % count
                return queue
        queue = queues[self._next % count]
        self._next = (self._next + 1) % count
        return queue
