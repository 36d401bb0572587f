"""The key index of a broker: where in the log the messages with a key lie.

It is made from the consume queues and the log, beside everything else, and tells up to which
position of the log it is `covered`. A hit is a hint: the hash of another key may be the same, so
what looks into the index looks at the messages. A message may be in it twice.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final

from broker.store.consume_queue_disk import OS_DISK, ConsumeQueueDisk
from broker.store.key_file import ENTRIES, SLOTS, IndexedKey, KeyFile, KeyFileSync
from broker.store.synced_mark import SyncedMark
from dledger import DiskFailed
from remoting.message.java_hash import java_hash

_SMALLEST: Final = -(1 << 31)

# Unique keys of one process begin alike: with its address, its number and its class loader.
_SENDER_CHARS: Final = 20
_REMEMBERED_BEGINS: Final = 4096


def key_hash(topic: str, key: str) -> int:
    """The hash by which RocketMQ's index knows a key of a topic, of `topic#key`: 0 to 2^31-1."""
    value = java_hash(key[_SENDER_CHARS:], _hash_of_begin(topic, key[:_SENDER_CHARS]))
    return 0 if value == _SMALLEST else abs(value)


@lru_cache(maxsize=_REMEMBERED_BEGINS)
def _hash_of_begin(topic: str, begin: str) -> int:
    return java_hash(f"{topic}#{begin}")


class KeyIndex:
    """All files of the index. `open` comes first.

    Args:
        folder: the folder `index`; made when it is missing.
        name_of: the name of a file that begins with a message of this time, in milliseconds since
            1970; names of later files are larger numbers.
        disk: has the files.
        slots, entries: of a file; RocketMQ's but in tests.

    Attributes:
        covered: every message before this position of the log is in the index.
    """

    def __init__(
        self,
        folder: str,
        name_of: Callable[[int], str],
        disk: ConsumeQueueDisk = OS_DISK,
        slots: int = SLOTS,
        entries: int = ENTRIES,
    ) -> None:
        self._folder = folder
        self._name_of = name_of
        self._disk = disk
        self._slots = slots
        self._entries = entries
        self._mark = SyncedMark(folder, disk)
        self._files: list[KeyFile] = []
        self._to_sync: list[KeyFile] = []  # all that have something which is not durable
        self._syncing: list[KeyFile] = []
        self.covered = 0

    def open(self) -> None:
        """Go on with the files of an earlier run, from where they are durable.

        Files that no mark vouches for are removed.

        Raises:
            DiskFailed: they cannot be read.
        """
        self.close()
        try:
            self._disk.make_folder(self._folder)
            names = self._disk.sizes(self._folder)
        except OSError as error:
            raise DiskFailed("open", self._folder, error) from error
        paths = [
            os.path.join(self._folder, name) for name in sorted(names, key=_order) if name.isdigit()
        ]
        covered = self._mark.read()
        if covered < 0:
            for path in paths:
                self._remove(path)
            paths = []
        self.covered = max(0, covered)
        self._files = [self._opened(path) for path in paths]

    def put(self, topic: str, keys: Iterable[str], position: int, time_ms: int) -> None:
        """Note that a message has these keys. Raises DiskFailed."""
        for key in keys:
            file = self._to_sync[-1] if self._to_sync else None
            if file is None or file.is_full:
                file = self._file_to_fill(time_ms)
            file.put(key_hash(topic, key), position, time_ms)

    def flush(self) -> None:
        """Write what was put, so that it is found. Raises DiskFailed."""
        if self._files:
            self._files[-1].flush()

    def find(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[IndexedKey | None]:
        """Hints to messages of a time, those of the newest file first; None for each miss.

        Raises:
            DiskFailed: a file cannot be read.
        """
        wanted = key_hash(topic, key)
        for file in reversed(self._files[:]):
            if file.is_empty or file.begin_ms > end_ms or file.end_ms < begin_ms:
                continue
            for found in file.find(wanted):
                is_near = found is not None and begin_ms - 1000 < found.time_ms <= end_ms
                yield found if is_near else None

    @property
    def unsynced(self) -> int:
        """Heads of slots that are kept in memory."""
        return sum(file.unsynced for file in self._to_sync)

    def begin_sync(self) -> "IndexSync":
        """What makes the index durable as it is, in any thread. `end_sync` follows."""
        self.flush()
        self._syncing, self._to_sync = self._to_sync, []
        return IndexSync([file.begin_sync() for file in self._syncing], self._mark, self.covered)

    def end_sync(self) -> None:
        """It is durable."""
        for file in self._syncing:
            file.end_sync()
        self._syncing = []

    def drop_before(self, position: int) -> None:
        """Remove the files that hold nothing at or behind a position of the log, but for the last.

        Raises:
            DiskFailed: one cannot be removed.
        """
        while len(self._files) > 1 and self._files[0].end_position < position:
            if self._files[0] in (*self._to_sync, *self._syncing):
                return  # with a later look
            file = self._files.pop(0)
            file.close()
            self._remove(file.path)

    def close(self) -> None:
        """Close all files."""
        for file in self._files:
            file.close()
        self._files, self._to_sync, self._syncing = [], [], []

    def _file_to_fill(self, time_ms: int) -> KeyFile:
        file = self._files[-1] if self._files else None
        if file is None or file.is_full:
            if file is not None:
                file.flush()
            file = self._begin_file(time_ms)
        self._to_sync.append(file)
        return file

    def _begin_file(self, time_ms: int) -> KeyFile:
        name = self._name_of(time_ms)
        if self._files:  # clocks of successive leaders, or several files within a millisecond
            last = os.path.basename(self._files[-1].path)
            name = str(max(int(name), int(last) + 1)).zfill(len(last))
        file = self._opened(os.path.join(self._folder, name))
        self._files.append(file)
        return file

    def _opened(self, path: str) -> KeyFile:
        return KeyFile(path, self._disk, self._slots, self._entries)

    def _remove(self, path: str) -> None:
        try:
            self._disk.remove(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise DiskFailed("unlink", path, error) from error


class IndexSync:
    """Makes an index durable, and says so in its mark."""

    def __init__(self, files: list[KeyFileSync], mark: SyncedMark, covered: int) -> None:
        self._files = files
        self._mark = mark
        self.covered = covered

    def run(self) -> None:
        """Sync, in any thread. Raises DiskFailed."""
        for file in self._files:
            file.run()
        try:
            self._mark.write(self.covered)
        except OSError as error:
            raise DiskFailed("write", "the mark of the key index", error) from error


def _order(name: str) -> int:
    return int(name) if name.isdigit() else -1
