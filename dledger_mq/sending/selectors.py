"""How a producer chooses the queue of a message."""

import zlib
from collections.abc import Callable, Sequence
from typing import TypeAlias

from dledger_mq.message import Message
from remoting.bodies.message_queue import MessageQueue

# Gets the writable queues of the topic in their order, never none of them, and the message.
QueueSelector: TypeAlias = Callable[[Sequence[MessageQueue], Message], MessageQueue]


def by_key(key: str | bytes | int) -> QueueSelector:
    """All messages with the same key go to the same queue, in the order of their sending.

    That holds while the number of queues stays the same. An integer key chooses the queue of that
    number, modulo their count; a text or bytes are hashed by CRC-32, which is the same in every
    process, unlike Python's own hash.

    Args:
        key: what the messages that need an order among them have in common.
    """
    number = (
        key if isinstance(key, int) else zlib.crc32(key.encode() if isinstance(key, str) else key)
    )

    def select(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        return queues[number % len(queues)]

    return select


def by_sharding_key(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    """The queue of the message's own `sharding_key`; a message without one goes to the first."""
    return queues[zlib.crc32(message.sharding_key.encode()) % len(queues)]


def to_queue(queue: MessageQueue) -> QueueSelector:
    """Always this queue, whether the route holds it or not."""

    def select(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        return queue

    return select


class RoundRobin:
    """One queue after the other, skipping the brokers that a retry wants to avoid.

    Args:
        start: where to begin; producers differ in it so that they do not march in step.
    """

    def __init__(self, start: int = 0) -> None:
        self._next = start

    def choose(self, queues: Sequence[MessageQueue], avoided_broker: str = "") -> MessageQueue:
        """The next queue; of another broker than `avoided_broker` when there is one.

        Args:
            queues: the writable queues, at least one.
            avoided_broker: the name of the broker that failed last, or an empty text.
        """
        count = len(queues)
        for step in range(count):
            queue = queues[(self._next + step) % count]
            if queue.broker_name != avoided_broker:
                self._next = (self._next + step + 1) % count
                return queue
        queue = queues[self._next % count]
        self._next = (self._next + 1) % count
        return queue
