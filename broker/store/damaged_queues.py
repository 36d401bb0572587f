"""The consume queues whose files do not hold what a restored state says."""

from broker.store.consume_queue import ConsumeQueue

QueueKey = tuple[str, int]


class DamagedQueues:
    """What has to be made again for one restored state.

    A running member restores in a thread, while the event loop may be at work for the state before.
    So each restore makes another object: work for an old one writes only what later work for the
    new one writes again.

    Args:
        queues: by topic and queue id.
        log_end: how far the restored state is, as a position of the log.

    Attributes:
        queues: those that are still damaged.
        ends: the end of each of them in the restored state.
        firsts: the offset that the first message of each has, or had.
        log_end: as given.
    """

    def __init__(self, queues: dict[QueueKey, ConsumeQueue], log_end: int) -> None:
        self.queues = queues
        self.ends = {key: queue.end for key, queue in queues.items()}
        self.firsts = {key: queue.first for key, queue in queues.items()}
        self.log_end = log_end

    def put_back(self, key: QueueKey, first: int, units: bytes) -> None:
        """Write units of a damaged queue again. Raises DiskFailed."""
        self.queues[key].put_back(first, units)

    def mended(self, key: QueueKey, first: int) -> None:
        """A damaged queue is whole again, from the unit `first` on. Raises DiskFailed."""
        self.queues[key].begins_with(first)
        del self.queues[key]

    def delete_topic(self, topic: str) -> None:
        """Forget the queues of a topic."""
        for key in [key for key in self.queues if key[0] == topic]:
            del self.queues[key]
