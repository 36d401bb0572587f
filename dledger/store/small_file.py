"""A small file with one fact about its folder, written atomically.

It is written under another name, synced, and renamed over the old one. A file that a power cut left
under the other name is removed by the next write.
"""

from __future__ import annotations

from contextlib import closing
from zlib import crc32

from dledger.store.disk import Disk

_NEW_SUFFIX = ".new"
# Enough for one line and its sum; a longer file was not written by `write_small_file`.
MOST_BYTES = 64


def _path(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}"


def read_small_file(
    disk: Disk, folder: str, name: str, most_bytes: int = MOST_BYTES
) -> bytes | None:
    """Read at most `most_bytes` of the file; None if there is none. Raises OSError."""
    if name not in disk.list(folder):
        return None
    with closing(disk.open(_path(folder, name), writable=False)) as file:
        return file.read(most_bytes, 0)


def with_sum(line: bytes) -> bytes:
    """Return a line with its newline, and a second line with the CRC-32 of both."""
    return line + b"\n%08x\n" % crc32(line + b"\n")


def checked_line(content: bytes) -> bytes | None:
    """Return the line that `with_sum` was given; None for anything else."""
    line = content.partition(b"\n")[0]
    return line if content == with_sum(line) else None


def fact_line(content: bytes) -> str:
    """Return the line of a file with a sum, or of one by earlier versions, which wrote no sum.

    It is empty if the file was changed or cut.
    """
    line, end, more = content.partition(b"\n")
    is_whole = bool(end) and not more
    return line.decode("ascii", "replace") if is_whole or checked_line(content) == line else ""


def write_small_file(disk: Disk, folder: str, name: str, content: bytes) -> None:
    """Write or replace the file; durable on return. Raises OSError."""
    new = _path(folder, name + _NEW_SUFFIX)
    if name + _NEW_SUFFIX in disk.list(folder):
        disk.remove(new)
    with closing(disk.create(new)) as file:
        file.write(content, 0)
        file.sync()
    disk.rename(new, _path(folder, name))
    disk.sync_folder(folder)


def remove_small_file(disk: Disk, folder: str, name: str) -> None:
    """Remove the file; durable on return. Raises OSError."""
    disk.remove(_path(folder, name))
    disk.sync_folder(folder)
