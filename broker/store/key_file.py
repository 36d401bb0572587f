"""One file of the key index, in RocketMQ's layout.

A header of 40 bytes, 5 000 000 slots of 4 bytes, 20 000 000 entries of 20 bytes. An entry is the
hash of a key, the log position of a message, its store time in seconds since that of the file's
first message, and the number of the previous entry in the same slot. A slot has the number of its
last entry, or 0. The file is sparse: unwritten parts take no room on the disk.

If a power cut left a slot that leads to a lost entry, all earlier entries of the slot would be lost
too. So entries are made durable before any slot points to them: until then the heads of slots are
kept in memory.
"""

import os.path
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from broker.store.consume_queue_disk import ConsumeQueueDisk
from dledger import DiskFailed

SLOTS: Final = 5_000_000
ENTRIES: Final = 20_000_000

# First and last store time, first and last position, slots in use, number of the next entry.
_HEADER: Final = struct.Struct(">qqqqii")
_ENTRY: Final = struct.Struct(">iqii")
_HEAD: Final = struct.Struct(">i")
_NO_HEAD: Final = (bytes(_HEAD.size), b"")

_MAX_S: Final = (1 << 31) - 1


class IndexedKey(NamedTuple):
    """An entry for a message with the hash of a key.

    Attributes:
        position: of its record in the log.
        time_ms: its store time, or up to a second earlier.
    """

    position: int
    time_ms: int


class KeyFile:
    """One file. Every method may raise DiskFailed.

    Args:
        slots, entries: RocketMQ's, except in tests.

    Attributes:
        begin_ms, end_ms: store times of its first and last message.
        begin_position, end_position: log positions of these.
    """

    def __init__(
        self, path: str, disk: ConsumeQueueDisk, slots: int = SLOTS, entries: int = ENTRIES
    ) -> None:
        self.path = path
        self._disk = disk
        self._slots = slots
        self._max_entries = entries
        self._entries_at = _HEADER.size + _HEAD.size * slots
        self._heads: dict[int, int] = {}  # heads of slots that are newer than the file's
        self._writing: dict[int, int] = {}  # heads that a sync is writing
        self._gathered: list[bytes] = []  # the last entries, not written yet
        try:
            self._file = disk.open(path, True)
        except OSError as error:
            raise DiskFailed("open", path, error) from error
        header = self._read(_HEADER.size, 0)
        fields: tuple[int, ...] = (0, 0, 0, 0, 0, 0)
        if len(header) == _HEADER.size:
            fields = _HEADER.unpack(header)
        self.begin_ms, self.end_ms, self.begin_position, self.end_position = fields[:4]
        self._used_slots, next_entry = fields[4:]
        self._next_entry = min(max(1, next_entry), entries)
        if next_entry == 0:
            self._write(b"\0", self._entries_at + _ENTRY.size * entries - 1)  # sets the length

    @property
    def is_full(self) -> bool:
        return self._next_entry >= self._max_entries

    @property
    def is_empty(self) -> bool:
        return self._next_entry == 1

    @property
    def unsynced(self) -> int:
        """The number of slots whose heads are not durable."""
        return len(self._heads)

    def put(self, key_hash: int, position: int, time_ms: int) -> None:
        """Add an entry; `flush` writes it."""
        number = self._next_entry
        if number == 1:
            self.begin_ms, self.begin_position = time_ms, position
        self.end_ms, self.end_position = time_ms, position
        slot = key_hash % self._slots
        head = self._heads.get(slot) or self._head(slot)
        if not head:
            self._used_slots += 1
        after_s = (time_ms - self.begin_ms) // 1000
        if not 0 <= after_s <= _MAX_S:
            after_s = 0 if after_s < 0 else _MAX_S
        self._gathered.append(_ENTRY.pack(key_hash, position, after_s, head))
        self._heads[slot] = number
        self._next_entry = number + 1

    def flush(self) -> None:
        if self._gathered:
            first = self._next_entry - len(self._gathered)
            self._write(b"".join(self._gathered), self._entries_at + _ENTRY.size * first)
            self._gathered.clear()

    def find(self, key_hash: int) -> Iterator[IndexedKey | None]:
        """Yield entries with this hash, the newest first; None for each other entry of the slot."""
        number, before = self._head(key_hash % self._slots), self._next_entry
        while 0 < number < before:  # the numbers of an undamaged chain fall
            entry = self._read(_ENTRY.size, self._entries_at + _ENTRY.size * number)
            if len(entry) < _ENTRY.size:
                return
            found, position, after_s, earlier = _ENTRY.unpack(entry)
            found_ms = self.begin_ms + after_s * 1000
            yield IndexedKey(position, found_ms) if found == key_hash else None
            number, before = earlier, number

    def begin_sync(self) -> "KeyFileSync":
        """Return a sync of everything that is flushed. Call `end_sync` after it."""
        self._writing, self._heads = self._heads, {}
        header = _HEADER.pack(
            self.begin_ms,
            self.end_ms,
            self.begin_position,
            self.end_position,
            self._used_slots,
            self._next_entry,
        )
        return KeyFileSync(self._disk, self._file, self.path, header, self._writing)

    def end_sync(self) -> None:
        """Note that the heads are in the file."""
        self._writing = {}

    def close(self) -> None:
        """Close the file. Unsynced heads are lost."""
        self._disk.close(self._file)

    def _head(self, slot: int) -> int:
        head = self._heads.get(slot) or self._writing.get(slot)
        if head is not None:
            return head
        packed = self._read(_HEAD.size, _HEADER.size + _HEAD.size * slot)
        if packed in _NO_HEAD:
            return 0
        head = int.from_bytes(packed, "big", signed=True)
        return head if 0 < head < self._next_entry else 0

    def _read(self, size: int, at: int) -> bytes:
        try:
            return self._disk.read(self._file, size, at)
        except OSError as error:
            raise DiskFailed("pread", self.path, error) from error

    def _write(self, data: bytes, at: int) -> None:
        _write(self._disk, self._file, self.path, data, at)


class KeyFileSync(NamedTuple):
    """Makes a file durable, in any thread."""

    disk: ConsumeQueueDisk
    file: int
    path: str
    header: bytes
    heads: dict[int, int]

    def run(self) -> None:
        """Sync the entries and the number of the next one, then the slots that lead to them.

        Raises DiskFailed.
        """
        _write(self.disk, self.file, self.path, self.header, 0)
        self._sync(self.path)
        for slot, head in sorted(self.heads.items()):
            at = _HEADER.size + _HEAD.size * slot
            _write(self.disk, self.file, self.path, _HEAD.pack(head), at)
        self._sync(self.path)
        self._sync(os.path.dirname(self.path))

    def _sync(self, path: str) -> None:
        try:
            self.disk.sync(path)
        except OSError as error:
            raise DiskFailed("fsync", path, error) from error


def _write(disk: ConsumeQueueDisk, file: int, path: str, data: bytes, at: int) -> None:
    try:
        written = disk.write(file, data, at)
    except OSError as error:
        raise DiskFailed("pwrite", path, error) from error
    if written != len(data):
        short = OSError(f"only {written} of {len(data)} bytes were written")
        raise DiskFailed("pwrite", path, short)
