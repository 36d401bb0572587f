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

# What file systems and C libraries say that cannot take up room for a file.
_NO_FALLOCATE = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)

# Written at once on those.
_ZEROS_BYTES = 1 << 20


class SyncFailed(OSError):
    """A sync failed. Whatever its number says, nothing that it was for is tried again."""


class DiskFile(Protocol):
    """One open file. `sync` may run in another thread while the other methods are called."""

    @property
    def path(self) -> str:
        """What the file was opened as."""
        ...

    def size(self) -> int:
        """Length in bytes."""
        ...

    def read(self, size: int, at: int) -> bytes:
        """`size` bytes from offset `at`; fewer only at the end of the file."""
        ...

    def write(self, data: bytes, at: int) -> None:
        """Write all of `data` at offset `at`, or raise."""
        ...

    def grow(self, size: int) -> None:
        """Make the file `size` bytes long, if it is shorter."""
        ...

    def allocate(self, size: int) -> None:
        """Make the file `size` bytes long, if it is shorter, and take up the room on the disk."""
        ...

    def sync(self) -> None:
        """Make content and length durable."""
        ...

    def close(self) -> None:
        """Close the file. Nothing is made durable by it."""
        ...


class DiskLock(Protocol):
    """A lock on a folder, held until it is closed or the process ends."""

    def close(self) -> None:
        """Release the lock."""
        ...


class Disk(Protocol):
    """Folders and names."""

    def make_folder(self, path: str) -> None:
        """Create the folder and its parents where they are missing."""
        ...

    def list(self, path: str) -> list[str]:
        """Names in a folder, in any order; empty when the folder does not exist."""
        ...

    def open(self, path: str, *, writable: bool = True) -> DiskFile:
        """Open a file that exists (else FileNotFoundError)."""
        ...

    def create(self, path: str) -> DiskFile:
        """Create an empty file that does not exist yet (else FileExistsError)."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename a file; an existing `new` is replaced."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file."""
        ...

    def sync_folder(self, path: str) -> None:
        """Make the names in a folder durable."""
        ...

    def lock(self, path: str) -> DiskLock:
        """Lock the file at `path`, which is created; DataFolderLocked if another one has it."""
        ...


@contextlib.contextmanager
def failing(operation: str, path: str) -> Iterator[None]:
    """A block whose errors of the disk end what it is for.

    Raises DiskFailed, of the file that the error names, or else of `path`.
    """
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
        """What the file was opened as."""
        return self._path

    def size(self) -> int:
        """Length in bytes."""
        with _named(self._path):
            return os.fstat(self._descriptor).st_size

    def read(self, size: int, at: int) -> bytes:
        """`size` bytes from offset `at`; fewer only at the end of the file."""
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
        """Write all of `data` at offset `at`, or raise."""
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
        """Make the file `size` bytes long, if it is shorter."""
        with _named(self._path):
            if os.fstat(self._descriptor).st_size < size:
                os.ftruncate(self._descriptor, size)

    def allocate(self, size: int) -> None:
        """Make the file `size` bytes long, if it is shorter, and take up the room on the disk."""
        with _named(self._path):
            try:
                os.posix_fallocate(self._descriptor, 0, size)
            except OSError as error:
                if error.errno not in _NO_FALLOCATE:
                    raise
                self._write_zeros(size)

    def _write_zeros(self, size: int) -> None:
        """Take up room on a file system that has no other way."""
        at = os.fstat(self._descriptor).st_size
        while at < size:
            part = min(size - at, _ZEROS_BYTES)
            self.write(bytes(part), at)
            at += part

    def sync(self) -> None:
        """Make content and length durable."""
        try:
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
    """A lock of this process."""

    __slots__ = ("_file", "_held")

    def __init__(self, file: OsDiskFile, held: tuple[int, int, int]) -> None:
        self._file = file
        self._held = held
        _HELD.add(held)

    def close(self) -> None:
        """As in DiskLock."""
        _HELD.discard(self._held)
        self._file.close()


class OsDisk:
    """The operating system's files."""

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
        """Names in a folder; empty when the folder does not exist."""
        try:
            return os.listdir(path)
        except FileNotFoundError:
            return []

    def open(self, path: str, *, writable: bool = True) -> OsDiskFile:
        """Open a file that exists (else FileNotFoundError)."""
        flags = os.O_RDWR if writable else os.O_RDONLY
        return OsDiskFile(path, os.open(path, flags | os.O_CLOEXEC))

    def create(self, path: str) -> OsDiskFile:
        """Create an empty file that does not exist yet (else FileExistsError)."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return OsDiskFile(path, os.open(path, flags, 0o644))

    def rename(self, old: str, new: str) -> None:
        """Rename a file; an existing `new` is replaced."""
        os.rename(old, new)

    def remove(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)

    def sync_folder(self, path: str) -> None:
        """Make the names in a folder durable."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with _named(path):
                sync_calls.sync_names(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: str) -> OsDiskLock:
        """Lock the file at `path` with flock; DataFolderLocked if another one has it."""
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
