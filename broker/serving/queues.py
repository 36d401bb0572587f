"""What features need of the consume queues."""

from collections.abc import Mapping
from typing import Protocol

from broker.log.folded import Arrivals


class Queues(Protocol):
    """The consume queues. `broker.store.consume_queues.ConsumeQueues` is them."""

    def append(self, arrivals: Mapping[tuple[str, int], Arrivals]) -> None:
        """Write what one run of entries brought."""
        ...

    def delete_topic(self, topic: str) -> None:
        """Forget the queues of a topic."""
        ...

    def end(self, topic: str, queue_id: int) -> int:
        """The offset of the queue's next message."""
        ...

    def begin(self, topic: str, queue_id: int, kept_position: int) -> int:
        """The offset of the queue's first message at or behind a position of the log."""
        ...

    def read(self, topic: str, queue_id: int, first: int, count: int) -> bytes:
        """Up to `count` units from offset `first`."""
        ...
