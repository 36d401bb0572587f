"""The consume queues whose files differ from a restored state."""

from broker.store.consume_queue import ConsumeQueue

QueueKey = tuple[str, int]


class DamagedQueues:
    """The queues to rebuild for one restored state.

    A running member restores in a thread, while the event loop may be rebuilding queues for the
    previous state. So each restore makes a new object. A rebuild for an old one writes only units
    that the rebuild for the new one writes again.

    Args:
        log_end: log position of the restored state.

    Attributes:
        queues: those that are still damaged, by topic and queue id.
        ends: the end of each in the restored state.
        firsts: the offset of the first message ever of each.
    """

    def __init__(self, queues: dict[QueueKey, ConsumeQueue], log_end: int) -> None:
        self.queues = queues
        self.ends = {key: queue.end for key, queue in queues.items()}
        self.firsts = {key: queue.first for key, queue in queues.items()}
        self.log_end = log_end

    def put_back(self, key: QueueKey, first: int, units: bytes) -> None:
        self.queues[key].put_back(first, units)

    def mended(self, key: QueueKey, first: int) -> None:
        """Note that a queue is whole from the unit `first` on. Raises DiskFailed."""
        self.queues[key].begins_with(first)
        del self.queues[key]

    def delete_topic(self, topic: str) -> None:
        for key in [key for key in self.queues if key[0] == topic]:
            del self.queues[key]
