"""The protocol for all file work of a store, and its implementation over the operating system.

The simulation gives the same store a disk of its own, which loses at a crash everything that is not
promised here. When data is durable:

* `DiskFile.write`: visible to every reader at once. It survives a crash of the *process*. After a
  crash of the *machine* any subset of the 512-byte sectors written since the last `sync` of that
  file may have reached the disk; each sector has its old or its new content.
* `DiskFile.sync` (fdatasync): the content and the length of the file are durable.
* `Disk.create`, `rename`, `remove`: durable after `sync_folder` of the folder. Before that, a
  machine crash may undo any of them.
* `DiskFile.grow`: the new part reads as zeros. Durable after `sync`. Files never shrink.

Every method raises OSError. After a failed `sync` nothing is known about any write since the
previous sync; the store never retries it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from typing import Protocol

from dledger.errors import DataFolderLocked, DiskFailed
from dledger.store import sync_calls

# Errors of file systems and C libraries that cannot allocate room for a file.
_NO_FALLOCATE = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)

# The size of one write of zeros on such a file system.
_ZEROS_BYTES = 1 << 20


class SyncFailed(OSError):
    """A sync failed. It is never tried again, whatever its error number."""


class DiskFile(Protocol):
    """One open file. `sync` may run in another thread while the other methods are called."""

    @property
    def path(self) -> str: ...

    def size(self) -> int:
        """Return the length in bytes."""

    def read(self, size: int, at: int) -> bytes:
        """Return `size` bytes from offset `at`; fewer only at the end of the file."""

    def write(self, data: bytes, at: int) -> None:
        """Write all of `data` at offset `at`, or raise."""

    def grow(self, size: int) -> None:
        """Make the file `size` bytes long, if it is shorter."""

    def allocate(self, size: int) -> None:
        """Make the file `size` bytes long, if it is shorter, and allocate its room on the disk."""

    def sync(self) -> None:
        """Make content and length durable."""

    def close(self) -> None:
        """Close the file, without making anything durable."""


class DiskLock(Protocol):
    """A lock on a folder, held until it is closed or the process ends."""

    def close(self) -> None: ...


class Disk(Protocol):
    """Folders and names."""

    def make_folder(self, path: str) -> None:
        """Create the folder and its parents where they are missing."""

    def list(self, path: str) -> list[str]:
        """Return the names in a folder, in any order; none when the folder does not exist."""

    def open(self, path: str, *, writable: bool = True) -> DiskFile:
        """Open a file that exists (else FileNotFoundError)."""

    def create(self, path: str) -> DiskFile:
        """Create an empty file that does not exist yet (else FileExistsError)."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file; an existing `new` is replaced."""

    def remove(self, path: str) -> None: ...

    def sync_folder(self, path: str) -> None:
        """Make the names in a folder durable."""

    def lock(self, path: str) -> DiskLock:
        """Lock the file at `path`, created if missing; DataFolderLocked if it is locked already."""


@contextlib.contextmanager
def failing(operation: str, path: str) -> Iterator[None]:
    """Turn an OSError of the block into DiskFailed, of the file that it names, or of `path`."""
    try:
        yield
    except OSError as cause:
        name = cause.filename if isinstance(cause.filename, str) else path
        raise DiskFailed(operation, name, cause) from cause


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    """Add the path to errors of calls that only know a file descriptor."""
    try:
        yield
    except OSError as cause:
        if cause.filename is None:
            cause.filename = path
        raise


class OsDiskFile:
    """A file of the operating system. Repeats short reads and writes until they are complete."""

    __slots__ = ("_descriptor", "_path")

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    @property
    def path(self) -> str:
        return self._path

    def size(self) -> int:
        with _named(self._path):
            return os.fstat(self._descriptor).st_size

    def read(self, size: int, at: int) -> bytes:
        try:
            data = os.pread(self._descriptor, size, at)
            if len(data) == size or not data:
                return data
            parts = [data]
            missing = size - len(data)
            while missing > 0 and (
                data := os.pread(self._descriptor, missing, at + size - missing)
            ):
                parts.append(data)
                missing -= len(data)
            return b"".join(parts)
        except OSError as cause:
            cause.filename = self._path
            raise

    def write(self, data: bytes, at: int) -> None:
        try:
            written = os.pwrite(self._descriptor, data, at)
            while written < len(data):  # the kernel may write less: a full disk, a signal
                more = os.pwrite(self._descriptor, memoryview(data)[written:], at + written)
                if more == 0:
                    raise OSError(errno.EIO, "the disk accepts no more bytes")
                written += more
        except OSError as cause:
            cause.filename = self._path
            raise

    def grow(self, size: int) -> None:
        with _named(self._path):
            if os.fstat(self._descriptor).st_size < size:
                os.ftruncate(self._descriptor, size)

    def allocate(self, size: int) -> None:
        with _named(self._path):
            try:
                os.posix_fallocate(self._descriptor, 0, size)
            except OSError as error:
                if error.errno not in _NO_FALLOCATE:
                    raise
                self._write_zeros(size)

    def _write_zeros(self, size: int) -> None:
        """Allocate room on a file system without fallocate."""
        at = os.fstat(self._descriptor).st_size
        while at < size:
            part = min(size - at, _ZEROS_BYTES)
            self.write(bytes(part), at)
            at += part

    def sync(self) -> None:
        try:  # a `with` takes as long as a quick disk
            sync_calls.sync_data(self._descriptor)
        except OSError as cause:
            cause.filename = self._path
            raise

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


# The locks that this process holds: process, device and inode. A child after a fork holds none.
_HELD: set[tuple[int, int, int]] = set()


class OsDiskLock:
    __slots__ = ("_file", "_held")

    def __init__(self, file: OsDiskFile, held: tuple[int, int, int]) -> None:
        self._file = file
        self._held = held
        _HELD.add(held)

    def close(self) -> None:
        _HELD.discard(self._held)
        self._file.close()


class OsDisk:
    def make_folder(self, path: str) -> None:
        """Create the folder and its parents where they are missing; their names are durable."""
        if os.path.isdir(path):
            return
        parent = os.path.dirname(os.path.abspath(path))
        self.make_folder(parent)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)
        self.sync_folder(parent)

    def list(self, path: str) -> list[str]:
        try:
            return os.listdir(path)
        except FileNotFoundError:
            return []

    def open(self, path: str, *, writable: bool = True) -> OsDiskFile:
        flags = os.O_RDWR if writable else os.O_RDONLY
        return OsDiskFile(path, os.open(path, flags | os.O_CLOEXEC))

    def create(self, path: str) -> OsDiskFile:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return OsDiskFile(path, os.open(path, flags, 0o644))

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def sync_folder(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with _named(path):
                sync_calls.sync_names(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: str) -> OsDiskLock:
        file = OsDiskFile(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
        found = os.fstat(file._descriptor)
        held = (os.getpid(), found.st_dev, found.st_ino)
        try:
            fcntl.flock(file._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise DataFolderLocked(os.path.dirname(path), here=held in _HELD) from None
        except OSError:
            file.close()
            raise
        return OsDiskLock(file, held)
