"""The file work of consume queues, and its implementation over the operating system.

The simulation gives the same queues a disk of its own, which loses at a power cut what is not
promised here: written bytes are durable after `sync` of their file, and names after `sync` of the
folder that they are in.
"""

import contextlib
import os
import shutil
import tempfile
from typing import Final, Protocol


class ConsumeQueueDisk(Protocol):
    """Files by descriptor. Every method may raise OSError. Any thread may call `sync`."""

    def open(self, path: str, to_write: bool) -> int:
        """A descriptor of a file; with `to_write` a missing one is created."""
        ...

    def close(self, descriptor: int) -> None:
        """Close a file. Nothing is made durable by it."""
        ...

    def write(self, descriptor: int, data: bytes, at: int) -> int:
        """Write at an offset; return how many bytes were written."""
        ...

    def read(self, descriptor: int, size: int, at: int) -> bytes:
        """`size` bytes from an offset; fewer at the end of the file."""
        ...

    def make_folder(self, path: str) -> None:
        """Create a folder and its parents where they are missing."""
        ...

    def sizes(self, folder: str) -> dict[str, int]:
        """The bytes of each file in a folder, by name."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file (else FileNotFoundError)."""
        ...

    def remove_folder(self, path: str) -> None:
        """Remove a folder (else FileNotFoundError) at once, however much is in it."""
        ...

    def sync(self, path: str) -> None:
        """Make a file's bytes, or a folder's names, durable (else FileNotFoundError)."""
        ...


class OsConsumeQueueDisk:
    """The operating system's files."""

    write = staticmethod(os.pwrite)
    close = staticmethod(os.close)
    remove = staticmethod(os.unlink)

    def open(self, path: str, to_write: bool) -> int:
        """A descriptor of a file; with `to_write` a missing one is created."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if to_write else 0)
        return os.open(path, flags, 0o644)

    def read(self, descriptor: int, size: int, at: int) -> bytes:
        """`size` bytes from an offset; fewer at the end of the file."""
        return os.pread(descriptor, size, at)

    def make_folder(self, path: str) -> None:
        """Create a folder and its parents where they are missing."""
        os.makedirs(path, exist_ok=True)

    def remove_folder(self, path: str) -> None:
        """Put a folder out of the way, for `remove_leftovers`: it may have a thousand files."""
        os.stat(path)
        leftovers = leftovers_in(os.path.dirname(path))
        os.makedirs(leftovers, exist_ok=True)
        os.rename(path, os.path.join(tempfile.mkdtemp(dir=leftovers), "topic"))

    def sizes(self, folder: str) -> dict[str, int]:
        """The bytes of each file in a folder, by name."""
        with os.scandir(folder) as found:
            return {one.name: one.stat().st_size for one in found}

    def sync(self, path: str) -> None:
        """Make a file's bytes, or a folder's names, durable (else FileNotFoundError)."""
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
    """The folder of what was put out of the way, beside those of topics. No topic is called so."""
    return os.path.join(folder, ".removed")


def remove_leftovers(folder: str) -> None:
    """Remove what was put out of the way, now or before the last stop. Runs in a thread.

    Raises:
        OSError: something could not be removed.
    """
    leftovers = leftovers_in(folder)
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(leftovers):
            shutil.rmtree(os.path.join(leftovers, name))
