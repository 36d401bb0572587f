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

# Queues with units in memory only. With more, units of the first of them are written: so there is
# rarely much to do at once when all have to be.
MAX_UNWRITTEN_QUEUES: Final = 256

# Of so many queues for a run of entries, and as many with each tick. A queue whose first units are
# written has its folder and its file made, which takes a tenth of a millisecond.
WRITTEN_AT_ONCE: Final = 64

# Open files at once, of the 1024 that a process may usually have; the rest is for connections and
# the log.
MAX_OPEN_FILES: Final = 256


class ConsumeQueues:
    """The queues by topic and queue id.

    All of it is made by applying the log: from its beginning on, or behind a snapshot that stands
    for what `sync_due` had made durable. Queues whose files are not there any more then are
    `damaged`, and `queue_rebuild` makes them again.

    Args:
        folder: the folder `consumequeue`; made with the first message.
        max_open_files: descriptors kept; the one used longest ago is closed first.
        units_per_file: 300,000 but in tests.
        disk: has the files.
        write_units: how many units of a queue are written at once.

    Attributes:
        to_mend: the damaged queues, of the state that was restored last.
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
        self._removal = Lock()  # for what `LackingUnits` must not write to any more
        self._mark = SyncedMark(self._folder, disk)
        self.to_mend = DamagedQueues({}, 0)

    @property
    def damaged(self) -> KeysView[tuple[str, int]]:
        """The queues whose files do not hold what the state says, by topic and queue id."""
        return self.to_mend.queues.keys()

    def resume(
        self,
        ends: Mapping[str, Mapping[int, int]],
        log_end: int,
        begins: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Go on with the files of an earlier run, as a restored state says where queues end.

        Args:
            ends: by topic and queue id.
            log_end: how far the state is, as a position of the log. Files of a member that has
                not come so far by itself are damaged, whatever they look like.
            begins: the first offset of the queues of topics that do not begin with 0.

        Raises:
            DiskFailed: the folder could not be read, or a file not be written.
        """
        self._write_all()  # for a running member: its files are all that it has of its queues
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
            # What is written to mend them is as long as it should be after a power cut, and may be
            # of zeros: then all is damaged, until the next snapshot has synced it.
            self._mark.withdraw()
        # A running member restores in a thread: what is to be mended changes before what is there.
        self.to_mend = DamagedQueues(damaged, log_end)
        with self._removal:
            self._queues = queues
        self.all_grown()

    def sync_due(self, log_end: int) -> QueueSync:
        """What has to be durable before the state of now may be saved; to be run in any thread.

        `log_end`: how far the state is, as a position of the log.
        """
        last = self._sync
        if last is not None and last.has_failed:
            return last  # fails again: a replay has to write everything anew
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
        # While queues are damaged their files are not those of the state, whatever is synced.
        mark = None if self.damaged else partial(self._mark.write, log_end)
        self._sync = QueueSync(paths, self._folder, self._disk.sync, mark, lacking)
        return self._sync

    def append(self, arrivals: Mapping[tuple[str, int], Arrivals]) -> None:
        """Write what one run of entries brought.

        Raises:
            DiskFailed: a file could not be written.
        """
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
        self.write_some()

    def write_some(self) -> None:
        """Write the units of a few queues, if those of many are in memory only.

        Raises:
            DiskFailed: a file could not be written.
        """
        too_many = len(self._unwritten) - MAX_UNWRITTEN_QUEUES
        for _ in range(min(too_many, WRITTEN_AT_ONCE)):
            oldest = next(iter(self._unwritten))
            self._unwritten[oldest].flush()
            del self._unwritten[oldest]

    def _write_all(self) -> None:
        """Write the units that are in memory only. Raises DiskFailed."""
        for key, queue in list(self._unwritten.items()):
            queue.flush()
            del self._unwritten[key]

    def end(self, topic: str, queue_id: int) -> int:
        """The offset of the queue's next message."""
        queue = self._queue(topic, queue_id)
        return 0 if queue is None else queue.end

    def written(self, topic: str, queue_id: int) -> int:
        """The offset behind the last message that the queue's files have."""
        queue = self._queue(topic, queue_id)
        return 0 if queue is None else queue.written

    def begin(self, topic: str, queue_id: int, kept_position: int) -> int:
        """The offset of the queue's first message at or behind a position of the log.

        Raises:
            DiskFailed: a file could not be read.
        """
        queue = self._queue(topic, queue_id)
        return 0 if queue is None else queue.begin(kept_position)

    def read(self, topic: str, queue_id: int, first: int, count: int) -> bytes:
        """Up to `count` units from offset `first`.

        Raises:
            DiskFailed: a file could not be read.
        """
        queue = self._queue(topic, queue_id)
        return b"" if queue is None else queue.read(first, count)

    def take_grown(self) -> set[tuple[str, int]]:
        """The queues that messages came to since the last call.

        A running member restores in a thread, which may add some meanwhile.
        """
        return {self._grown.pop() for _ in range(len(self._grown))}

    def all_grown(self) -> None:
        """Have `take_grown` tell all queues."""
        self._grown.update(self.keys())

    def keys(self) -> list[tuple[str, int]]:
        """All queues that have or had messages."""
        return [(topic, queue_id) for topic, table in self._queues.items() for queue_id in table]

    def remove_files(self, topic: str, queue_id: int, kept_position: int) -> None:
        """Remove the files of a queue that hold nothing at or behind a position of the log.

        Raises:
            DiskFailed: a file could not be read or removed.
        """
        queue = self._queue(topic, queue_id)
        if queue is None:
            return
        queue.flush()  # later it would make a file again that is removed now
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
        """Forget the queues of a topic, and put their files out of the way.

        Raises:
            DiskFailed: a file could not be removed.
        """
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
        """Write what is in memory only, and close every file.

        If it cannot be written, the next start has it from the log, as after a kill.
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
