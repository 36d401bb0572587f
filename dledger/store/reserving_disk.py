"""A disk whose writes are tried once more when there was no room for them.

Whoever is told of the lack gives up a reserve first. Another thread may just have done that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from dledger.store.disk import Disk, DiskFile, DiskLock
from dledger.system_refusals import Kind, is_of

T = TypeVar("T")

# Called with the error of a write that found no room, and its size; whether to try it again.
RanOut = Callable[[OSError, int], bool]


class ReservingFile:
    """A file of such a disk. Reads, syncs and the rest are those of the file itself."""

    __slots__ = ("_file", "_ran_out", "close", "read", "size", "sync")

    def __init__(self, file: DiskFile, ran_out: RanOut) -> None:
        self._file = file
        self._ran_out = ran_out
        self.read = file.read
        self.size = file.size
        self.sync = file.sync
        self.close = file.close

    @property
    def path(self) -> str:
        """As in DiskFile."""
        return self._file.path

    def write(self, data: bytes, at: int) -> None:
        """As in DiskFile."""
        try:
            self._file.write(data, at)
        except OSError as error:
            if not (is_of(Kind.ROOM, error) and self._ran_out(error, len(data))):
                raise
            self._file.write(data, at)

    def grow(self, size: int) -> None:
        """As in DiskFile."""
        _tried(self._ran_out, lambda: self._file.grow(size))

    def allocate(self, size: int) -> None:
        """As in DiskFile."""
        _tried(self._ran_out, lambda: self._file.allocate(size))


class ReservingDisk:
    """A Disk over another one.

    Syncs of files are not tried again: after one that failed nothing is known of the file.
    """

    def __init__(self, disk: Disk, ran_out: RanOut) -> None:
        self._disk = disk
        self._ran_out = ran_out
        self.list = disk.list
        self.remove = disk.remove

    def make_folder(self, path: str) -> None:
        """As in Disk."""
        _tried(self._ran_out, lambda: self._disk.make_folder(path))

    def open(self, path: str, *, writable: bool = True) -> ReservingFile:
        """As in Disk."""
        return ReservingFile(self._disk.open(path, writable=writable), self._ran_out)

    def create(self, path: str) -> ReservingFile:
        """As in Disk."""
        file = _tried(self._ran_out, lambda: self._disk.create(path))
        return ReservingFile(file, self._ran_out)

    def rename(self, old: str, new: str) -> None:
        """As in Disk."""
        _tried(self._ran_out, lambda: self._disk.rename(old, new))

    def sync_folder(self, path: str) -> None:
        """As in Disk."""
        self._disk.sync_folder(path)

    def lock(self, path: str) -> DiskLock:
        """As in Disk."""
        return _tried(self._ran_out, lambda: self._disk.lock(path))


def _tried(ran_out: RanOut, work: Callable[[], T]) -> T:
    """Do some work; once more if it found no room."""
    try:
        return work()
    except OSError as error:
        if not (is_of(Kind.ROOM, error) and ran_out(error, 0)):
            raise
    return work()
