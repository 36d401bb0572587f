"""All consume queues of a broker, in RocketMQ's folders: consumequeue/<topic>/<queue id>/<file>."""

import contextlib
import os
from collections import OrderedDict
from collections.abc import KeysView, Mapping
from functools import partial
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Final

from broker.log.folded import Arrivals
from broker.messages.record_facts import units_of
from broker.store.consume_queue import UNITS_PER_FILE, WRITE_UNITS, ConsumeQueue
from broker.store.consume_queue_disk import OS_DISK, ConsumeQueueDisk
from broker.store.damaged_queues import DamagedQueues
from broker.store.lacking_units import LackingUnits
from broker.store.queue_sync import QueueSync
from broker.store.synced_mark import SyncedMark
from dledger import DiskFailed

# Queues with units that are only in memory. With more, some are written, so that writing all of
# them rarely takes long.
MAX_UNWRITTEN_QUEUES: Final = 256

# Queues that are written after each run of entries and with each tick. For the first units of a
# queue a folder and a file are created, which takes a tenth of a millisecond.
WRITTEN_AT_ONCE: Final = 64

# Of the 1024 files that a process may usually open; the rest is for connections and the log.
MAX_OPEN_FILES: Final = 256


class ConsumeQueues:
    """The queues by topic and queue id.

    Applying the log makes them: from its beginning on, or after a snapshot that was written once
    `sync_due` had made the queues durable. Queues whose files are missing then are `damaged`, and
    `queue_rebuild` writes them again.

    Args:
        folder: the folder `consumequeue`; created with the first message.
        max_open_files: the least recently used file is closed first.
        units_per_file: 300,000 except in tests.
        write_units: how many units of a queue are written at once.

    Attributes:
        to_mend: the damaged queues of the last restored state.
    """

    def __init__(
        self,
        folder: Path,
        max_open_files: int = MAX_OPEN_FILES,
        units_per_file: int = UNITS_PER_FILE,
        disk: ConsumeQueueDisk = OS_DISK,
        write_units: int = WRITE_UNITS,
    ) -> None:
        self._folder = os.fspath(folder)
        self._disk = disk
        self._max_open_files = max_open_files
        self._units_per_file = units_per_file
        self._write_units = write_units
        self._queues: dict[str, dict[int, ConsumeQueue]] = {}  # by topic and queue id
        self._files: OrderedDict[str, int] = OrderedDict()
        self._written: set[str] = set()  # since the last sync
        self._grown: set[tuple[str, int]] = set()
        self._unwritten: dict[tuple[str, int], ConsumeQueue] = {}
        self._sync: QueueSync | None = None
        self._removal = Lock()  # keeps `LackingUnits` from writing to removed files
        self._mark = SyncedMark(self._folder, disk)
        self.to_mend = DamagedQueues({}, 0)

    @property
    def damaged(self) -> KeysView[tuple[str, int]]:
        """Topic and queue id of the queues whose files differ from the state."""
        return self.to_mend.queues.keys()

    def resume(
        self,
        ends: Mapping[str, Mapping[int, int]],
        log_end: int,
        begins: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Continue with the files of an earlier run, according to a restored state.

        Args:
            ends: of queues, by topic and queue id.
            log_end: the log position of the state. If this member has not applied the log up to it
                itself, its files are damaged, whatever they look like.
            begins: by topic, the first offset of its queues, if that is not 0.

        Raises DiskFailed.
        """
        self._write_all()  # a running member resumes from its own files
        are_of_state = self._mark.read() >= log_end
        queues: dict[str, dict[int, ConsumeQueue]] = {}
        damaged: dict[tuple[str, int], ConsumeQueue] = {}
        for topic, table in ends.items():
            for queue_id, end in table.items():
                key = (topic, queue_id)
                first = begins.get(topic, 0)
                queue = queues.setdefault(topic, {})[queue_id] = self._new(key, first)
                are_there = queue.resume(end)
                if not (are_there and are_of_state):
                    damaged[key] = queue
        if damaged:
            # After a power cut mended files may have the right length, but hold zeros. So all
            # files count as damaged until the next snapshot has synced them.
            self._mark.withdraw()
        # In this order, because a running member restores in a thread.
        self.to_mend = DamagedQueues(damaged, log_end)
        with self._removal:
            self._queues = queues
        self.all_grown()

    def sync_due(self, log_end: int) -> QueueSync:
        """Return the sync of all that must be durable before the current state is saved, for any
        thread.

        `log_end`: the log position of the state.
        """
        last = self._sync
        if last is not None and last.has_failed:
            return last  # it fails again: a replay has to write everything once more
        paths = self._written
        if last is not None and last.is_done:
            last.lacking.note_written()
            self._unwritten = {
                key: queue for key, queue in self._unwritten.items() if queue.written < queue.end
            }
        elif last is not None:
            paths |= last.paths
        lacking = LackingUnits(
            self._unwritten, self._disk, lambda key: self._queue(*key), self._removal
        )
        paths |= lacking.paths
        self._written = set()
        # While queues are damaged, their files differ from the state, whatever is synced.
        mark = None if self.damaged else partial(self._mark.write, log_end)
        self._sync = QueueSync(paths, self._folder, self._disk.sync, mark, lacking)
        return self._sync

    def append(self, arrivals: Mapping[tuple[str, int], Arrivals]) -> None:
        """Append the units of one run of entries. Raises DiskFailed."""
        self._grown.update(arrivals)
        for key, arrived in arrivals.items():
            table = self._queues.setdefault(key[0], {})
            queue = table.get(key[1])
            if queue is None:
                queue = table[key[1]] = self._new(key, arrived.first_offset)
            if queue.append(units_of(arrived)):
                self._unwritten[key] = queue
            else:
                self._unwritten.pop(key, None)
        if len(self._unwritten) > MAX_UNWRITTEN_QUEUES:
            self.write_some()

    def write_some(self) -> None:
        """Write the units of a few queues, if many have units that are only in memory. Raises
        DiskFailed.
        """
        too_many = len(self._unwritten) - MAX_UNWRITTEN_QUEUES
        for _ in range(min(too_many, WRITTEN_AT_ONCE)):
            oldest = next(iter(self._unwritten))
            self._unwritten[oldest].flush()
            del self._unwritten[oldest]

    def _write_all(self) -> None:
        for key, queue in list(self._unwritten.items()):
            queue.flush()
            del self._unwritten[key]

    def end(self, topic: str, queue_id: int) -> int:
        queue = self._queue(topic, queue_id)
        return 0 if queue is None else queue.end

    def written(self, topic: str, queue_id: int) -> int:
        queue = self._queue(topic, queue_id)
        return 0 if queue is None else queue.written

    def begin(self, topic: str, queue_id: int, kept_position: int) -> int:
        """Return the offset of the queue's first message at or after a position of the log.

        Raises DiskFailed.
        """
        queue = self._queue(topic, queue_id)
        return 0 if queue is None else queue.begin(kept_position)

    def read(self, topic: str, queue_id: int, first: int, count: int) -> bytes:
        """Read up to `count` units from offset `first`. Raises DiskFailed."""
        queue = self._queue(topic, queue_id)
        return b"" if queue is None else queue.read(first, count)

    def take_grown(self) -> set[tuple[str, int]]:
        """Return the queues with new messages since the last call.

        A running member restores in a thread, which may add some meanwhile.
        """
        return {self._grown.pop() for _ in range(len(self._grown))}

    def all_grown(self) -> None:
        """Have `take_grown` return all queues."""
        self._grown.update(self.keys())

    def keys(self) -> list[tuple[str, int]]:
        """List all queues that have or had messages."""
        return [(topic, queue_id) for topic, table in self._queues.items() for queue_id in table]

    def remove_files(self, topic: str, queue_id: int, kept_position: int) -> None:
        """Remove the files of a queue that hold only units before a position of the log. Raises
        DiskFailed.
        """
        queue = self._queue(topic, queue_id)
        if queue is None:
            return
        queue.flush()  # a later write would create a removed file again
        begin = queue.begin(kept_position)
        with self._removal:
            given_up = queue.remove_files(begin)
        for path in given_up:
            self._close_file(path)
            try:
                self._disk.remove(path)
            except FileNotFoundError:
                continue  # removed before the last stop
            except OSError as error:
                raise DiskFailed("unlink", path, error) from error

    def delete_topic(self, topic: str) -> None:
        """Forget the queues of a topic, and move their files aside. Raises DiskFailed."""
        folder = os.path.join(self._folder, topic)
        with self._removal:
            given_up = self._queues.pop(topic, {})
        for queue_id in given_up:
            self._unwritten.pop((topic, queue_id), None)
        self.to_mend.delete_topic(topic)
        for path in [path for path in self._files if path.startswith(folder + os.sep)]:
            self._close_file(path)
        try:
            self._disk.remove_folder(folder)
        except FileNotFoundError:
            return  # no message was ever sent to it
        except OSError as error:
            raise DiskFailed("rename", folder, error) from error

    def close(self) -> None:
        """Write the units that are only in memory, and close every file.

        If they cannot be written, the next start has them from the log, as after a kill.
        """
        with contextlib.suppress(DiskFailed):
            self._write_all()
        while self._files:
            self._disk.close(self._files.popitem()[1])

    def _queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        table = self._queues.get(topic)
        return None if table is None else table.get(queue_id)

    def _new(self, key: tuple[str, int], first: int) -> ConsumeQueue:
        topic, queue_id = key
        folder = os.path.join(self._folder, topic, str(queue_id))
        return ConsumeQueue(
            folder, self._open_file, self._units_per_file, self._disk, self._write_units, first
        )

    def _open_file(self, path: str, to_write: bool) -> int:
        if to_write:
            self._written.add(path)
        descriptor = self._files.get(path)
        if descriptor is not None:
            self._files.move_to_end(path)
            return descriptor
        descriptor = self._disk.open(path, to_write)
        self._files[path] = descriptor
        if len(self._files) > self._max_open_files:
            self._disk.close(self._files.popitem(last=False)[1])
        return descriptor

    def _close_file(self, path: str) -> None:
        descriptor = self._files.pop(path, None)
        if descriptor is not None:
            self._disk.close(descriptor)
