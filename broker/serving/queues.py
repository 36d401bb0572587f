"""The consume queues, as features see them."""

from collections.abc import Mapping
from typing import Protocol

from broker.log.folded import Arrivals


class Queues(Protocol):
    """The consume queues; see `broker.store.consume_queues.ConsumeQueues`, which implements it."""

    def append(self, arrivals: Mapping[tuple[str, int], Arrivals]) -> None: ...

    def delete_topic(self, topic: str) -> None: ...

    def end(self, topic: str, queue_id: int) -> int: ...

    def begin(self, topic: str, queue_id: int, kept_position: int) -> int:
        """Return the offset of the queue's first message at or after a position of the log."""

    def read(self, topic: str, queue_id: int, first: int, count: int) -> bytes:
        """Read up to `count` units from offset `first`."""
