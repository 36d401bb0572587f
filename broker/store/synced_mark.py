"""The log position up to which this member has applied entries and synced its consume queues.

A state restored from a snapshot continues with the files only if they are of that state or of a
later one. They are not if another member wrote the snapshot: this member never applied the entries
before it. The sizes of files do not show it, since a topic that was deleted and created again has
files of the same names.

The file `.synced` in the queues' folder, which no topic can be called, holds the position in eight
bytes, and their CRC-32 in four, both big-endian.
"""

import os.path
import struct
import zlib
from typing import Final

from broker.store.consume_queue_disk import ConsumeQueueDisk
from dledger import DiskFailed

NOTHING_SYNCED: Final = -1

_POSITION: Final = struct.Struct(">q")
_SUM: Final = struct.Struct(">I")


class SyncedMark:
    """The mark of one folder of consume queues. `write` may run in any thread."""

    def __init__(self, folder: str, disk: ConsumeQueueDisk) -> None:
        self._folder = folder
        self._path = os.path.join(folder, ".synced")
        self._disk = disk

    def read(self) -> int:
        """Return the log position up to which the files are complete; -1 without a mark. Raises
        DiskFailed.
        """
        try:
            file = self._disk.open(self._path, False)
            try:
                content = self._disk.read(file, _POSITION.size + _SUM.size, 0)
            finally:
                self._disk.close(file)
        except FileNotFoundError:
            return NOTHING_SYNCED
        except OSError as error:
            raise DiskFailed("read", self._path, error) from error
        packed, stored = content[: _POSITION.size], content[_POSITION.size :]
        if stored != _SUM.pack(zlib.crc32(packed)):
            return NOTHING_SYNCED
        (position,) = _POSITION.unpack(packed)
        return int(position)

    def withdraw(self) -> None:
        """Declare all files damaged after a power cut; durable on return.

        If there is no mark, one is written: a power cut may bring a removed one back.

        Raises DiskFailed: the mark may still be there.
        """
        try:
            self.write(NOTHING_SYNCED)
        except OSError as error:
            raise DiskFailed("write", self._path, error) from error

    def write(self, position: int) -> None:
        """Declare everything before a log position to be in the files, and durable.

        Raises OSError: the old or the new mark is there.
        """
        self._disk.make_folder(self._folder)
        packed = _POSITION.pack(position)
        file = self._disk.open(self._path, True)
        try:
            self._disk.write(file, packed + _SUM.pack(zlib.crc32(packed)), 0)
        finally:
            self._disk.close(file)
        for path in (self._path, self._folder, os.path.dirname(self._folder)):
            self._disk.sync(path)
