"""The consume queues, as features see them."""

from typing import Protocol


class Queues(Protocol):
    """The consume queues; see `broker.store.consume_queues.ConsumeQueues`, which implements it."""

    def end(self, topic: str, queue_id: int) -> int: ...

    def begin(self, topic: str, queue_id: int, kept_position: int) -> int:
        """Return the offset of the queue's first message at or after a position of the log."""

    def read(self, topic: str, queue_id: int, first: int, count: int) -> bytes:
        """Read up to `count` units from offset `first`."""
