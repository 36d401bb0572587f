"""File operations of consume queues and the key index, and their implementation by the system.

The simulation has another implementation, whose power cuts lose everything that is not promised
here: written bytes are durable after `sync` of their file, and names after `sync` of their folder.
"""

import contextlib
import os
import shutil
import tempfile
from typing import Final, Protocol


class ConsumeQueueDisk(Protocol):
    """Files by descriptor. Every method may raise OSError. Any thread may call `sync`."""

    def open(self, path: str, to_write: bool) -> int:
        """Return a descriptor of a file; with `to_write` a missing one is created."""

    def close(self, descriptor: int) -> None:
        """Close a file without syncing it."""

    def write(self, descriptor: int, data: bytes, at: int) -> int:
        """Write at an offset; return how many bytes were written."""

    def read(self, descriptor: int, size: int, at: int) -> bytes:
        """Read `size` bytes from an offset; fewer at the end of the file."""

    def make_folder(self, path: str) -> None: ...

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the bytes of each file in a folder, by name."""

    def remove(self, path: str) -> None:
        """Remove a file, or raise FileNotFoundError."""

    def remove_folder(self, path: str) -> None:
        """Remove a folder in constant time, or raise FileNotFoundError."""

    def sync(self, path: str) -> None:
        """Make a file's bytes, or a folder's names, durable, or raise FileNotFoundError."""


class OsConsumeQueueDisk:
    """The operating system's files."""

    write = staticmethod(os.pwrite)
    close = staticmethod(os.close)
    remove = staticmethod(os.unlink)

    def open(self, path: str, to_write: bool) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if to_write else 0)
        return os.open(path, flags, 0o644)

    def read(self, descriptor: int, size: int, at: int) -> bytes:
        return os.pread(descriptor, size, at)

    def make_folder(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def remove_folder(self, path: str) -> None:
        """Move a folder aside for `remove_leftovers`: it may have a thousand files."""
        os.stat(path)
        leftovers = leftovers_in(os.path.dirname(path))
        os.makedirs(leftovers, exist_ok=True)
        os.rename(path, os.path.join(tempfile.mkdtemp(dir=leftovers), "topic"))

    def sizes(self, folder: str) -> dict[str, int]:
        with os.scandir(folder) as found:
            return {one.name: one.stat().st_size for one in found}

    def sync(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            error.filename = path
            raise
        finally:
            os.close(descriptor)


OS_DISK: Final = OsConsumeQueueDisk()


def leftovers_in(folder: str) -> str:
    """Return the folder, beside those of topics, for removed folders. No topic can have
    its name.
    """
    return os.path.join(folder, ".removed")


def remove_leftovers(folder: str) -> None:
    """Remove folders that were moved aside, also by an earlier run. Runs in a thread. Raises
    OSError.
    """
    leftovers = leftovers_in(folder)
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(leftovers):
            shutil.rmtree(os.path.join(leftovers, name))
