"""All consume queues of a broker, in RocketMQ's folders: consumequeue/<topic>/<queue id>/<file>."""

import os
import shutil
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from broker.fold import Arrivals
from broker.store.consume_queue import UNITS_PER_FILE, ConsumeQueue
from dledger.errors import DiskFailed

# Open files at once, of the 1024 that a process may usually have; the rest is for connections and
# the log.
MAX_OPEN_FILES: Final = 256


class ConsumeQueues:
    """The queues by topic and queue id. Everything is rebuilt by applying the log.

    Args:
        folder: the folder `consumequeue`; made with the first message.
        max_open_files: descriptors kept; the one used longest ago is closed first.
        units_per_file: 300,000 but in tests.
    """

    def __init__(
        self,
        folder: Path,
        max_open_files: int = MAX_OPEN_FILES,
        units_per_file: int = UNITS_PER_FILE,
    ) -> None:
        self._folder = os.fspath(folder)
        self._max_open_files = max_open_files
        self._units_per_file = units_per_file
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        self._files: OrderedDict[str, int] = OrderedDict()

    def append(self, arrivals: Mapping[tuple[str, int], Arrivals]) -> None:
        """Write what one run of entries brought.

        Raises:
            DiskFailed: a file could not be written.
        """
        for key, arrived in arrivals.items():
            queue = self._queues.get(key)
            if queue is None:
                topic, queue_id = key
                folder = os.path.join(self._folder, topic, str(queue_id))
                queue = ConsumeQueue(folder, self._open_file, self._units_per_file)
                self._queues[key] = queue
            queue.append(b"".join(arrived.units))

    def end(self, topic: str, queue_id: int) -> int:
        """The offset of the queue's next message."""
        queue = self._queues.get((topic, queue_id))
        return 0 if queue is None else queue.end

    def read(self, topic: str, queue_id: int, first: int, count: int) -> bytes:
        """Up to `count` units from offset `first`.

        Raises:
            DiskFailed: a file could not be read.
        """
        queue = self._queues.get((topic, queue_id))
        return b"" if queue is None else queue.read(first, count)

    def delete_topic(self, topic: str) -> None:
        """Forget the queues of a topic and remove their files.

        Raises:
            DiskFailed: a file could not be removed.
        """
        folder = os.path.join(self._folder, topic)
        for key in [key for key in self._queues if key[0] == topic]:
            del self._queues[key]
        for path in [path for path in self._files if path.startswith(folder + os.sep)]:
            os.close(self._files.pop(path))
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            return  # no message was ever sent to it
        except OSError as error:
            raise DiskFailed("rmtree", folder, error) from error

    def close(self) -> None:
        """Close every file."""
        while self._files:
            os.close(self._files.popitem()[1])

    def _open_file(self, path: str) -> int:
        descriptor = self._files.get(path)
        if descriptor is not None:
            self._files.move_to_end(path)
            return descriptor
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._files[path] = descriptor
        if len(self._files) > self._max_open_files:
            os.close(self._files.popitem(last=False)[1])
        return descriptor
