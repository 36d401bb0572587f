"""The key index of a broker: the log positions of messages by their keys.

It is made of the consume queues and the log in the background; `covered` is the log position up to
which it is complete. A hit is only a hint, because another key may have the same hash: searches
check the message. A message may be in it twice.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from broker.store.consume_queue_disk import OS_DISK, ConsumeQueueDisk
from broker.store.key_file import ENTRIES, SLOTS, IndexedKey, KeyFile, KeyFileSync
from broker.store.synced_mark import SyncedMark
from dledger import DiskFailed
from remoting.message.java_hash import java_hash

_SMALLEST: Final = -(1 << 31)

# Unique keys of one process begin alike: with its address, process id and class loader.
_SENDER_CHARS: Final = 20
_REMEMBERED_BEGINS: Final = 4096


def key_hash(topic: str, key: str) -> int:
    """Return RocketMQ's hash of `topic#key` in its index: 0 to 2^31-1."""
    value = java_hash(key[_SENDER_CHARS:], _hash_of_begin(topic, key[:_SENDER_CHARS]))
    return 0 if value == _SMALLEST else abs(value)


@lru_cache(maxsize=_REMEMBERED_BEGINS)
def _hash_of_begin(topic: str, begin: str) -> int:
    return java_hash(f"{topic}#{begin}")


class KeyIndex:
    """All files of the index. `open` comes first.

    Args:
        folder: the folder `index`; created if missing.
        name_of: names a file by the time of its first message, in milliseconds since 1970; the
            names of later files are larger numbers.
        slots, entries: of a file; RocketMQ's, except in tests.

    Attributes:
        covered: every message before this log position is in the index.
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
        self._to_sync: list[KeyFile] = []  # files with unsynced entries
        self._syncing: list[KeyFile] = []
        self.covered = 0

    def open(self) -> None:
        """Continue with the files of an earlier run, as far as they are durable. Raises DiskFailed.

        Without a mark the files are removed.
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
        """Add the keys of a message. Raises DiskFailed."""
        for key in keys:
            file = self._to_sync[-1] if self._to_sync else None
            if file is None or file.is_full:
                file = self._file_to_fill(time_ms)
            file.put(key_hash(topic, key), position, time_ms)

    def flush(self) -> None:
        """Write the entries, so that searches find them. Raises DiskFailed."""
        if self._files:
            self._files[-1].flush()

    def find(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[IndexedKey | None]:
        """Yield hints to messages of a time, the newest file first; None for each miss. Raises
        DiskFailed.
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
        return sum(file.unsynced for file in self._to_sync)

    def begin_sync(self) -> "IndexSync":
        """Return a sync of the index as it is, for any thread. Call `end_sync` after it."""
        self.flush()
        self._syncing, self._to_sync = self._to_sync, []
        return IndexSync([file.begin_sync() for file in self._syncing], self._mark, self.covered)

    def end_sync(self) -> None:
        for file in self._syncing:
            file.end_sync()
        self._syncing = []

    def drop_before(self, position: int) -> None:
        """Remove files with only messages before a log position, except the last. Raises
        DiskFailed.
        """
        while len(self._files) > 1 and self._files[0].end_position < position:
            if self._files[0] in (*self._to_sync, *self._syncing):
                return  # a later call removes it
            file = self._files.pop(0)
            file.close()
            self._remove(file.path)

    def close(self) -> None:
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
        if self._files:  # names must grow even if clocks go back or files begin in a millisecond
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


class IndexSync(NamedTuple):
    """Makes an index durable, then writes its mark."""

    files: list[KeyFileSync]
    mark: SyncedMark
    covered: int

    def run(self) -> None:
        """Sync, in any thread. Raises DiskFailed."""
        for file in self.files:
            file.run()
        try:
            self.mark.write(self.covered)
        except OSError as error:
            raise DiskFailed("write", "the mark of the key index", error) from error


def _order(name: str) -> int:
    return int(name) if name.isdigit() else -1
