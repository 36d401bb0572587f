"""Units that the files of consume queues lack when a snapshot begins."""

import errno
from collections.abc import Callable, Mapping
from threading import Lock

from broker.store.consume_queue import UNIT_BYTES, ConsumeQueue
from broker.store.consume_queue_disk import ConsumeQueueDisk
from dledger import DiskFailed

Key = tuple[str, int]  # topic and queue id


class LackingUnits:
    """Writes the units in the syncing thread: for a thousand new queues this takes a fifth of a
    second.

    Queues may write the same units meanwhile: the same bytes in the same place. Only files that are
    removed, with a queue or by retention, must not be created again: their removal waits for
    `lock`.

    Args:
        queues: those with units that are only in memory.
        disk: opens their files; descriptors of the queues are not used.
        current: returns the queue of a key, unless it is gone.
        lock: held while one queue is written.

    Attributes:
        paths: the files of the units.
    """

    def __init__(
        self,
        queues: Mapping[Key, ConsumeQueue],
        disk: ConsumeQueueDisk,
        current: Callable[[Key], ConsumeQueue | None],
        lock: Lock,
    ) -> None:
        self._units = {
            key: (queue, queue.written, queue.unwritten()) for key, queue in queues.items()
        }
        self._disk = disk
        self._current = current
        self._lock = lock
        self.paths = {
            path for queue in queues.values() for path in queue.paths(queue.written, queue.end)
        }

    def write(self) -> None:
        """Write units that were not written meanwhile; in any thread.

        Raises OSError: a file could not be written. The queues still have all units.
        """
        for key, (queue, first, units) in self._units.items():
            opened: list[int] = []

            def open_file(path: str, to_write: bool, opened: list[int] = opened) -> int:
                opened.append(self._disk.open(path, to_write))
                return opened[-1]

            with self._lock:
                if self._current(key) is not queue:
                    continue
                try:
                    queue.write_beside(first, units, open_file)
                except DiskFailed as error:
                    raise OSError(errno.EIO, str(error)) from error
                finally:
                    for descriptor in opened:
                        self._disk.close(descriptor)

    def note_written(self) -> None:
        """Tell the queues, in their own thread, that `write` has ended."""
        for queue, first, units in self._units.values():
            queue.note_written(first + len(units) // UNIT_BYTES)
        self._units.clear()
