"""A small file with one fact about its folder, written atomically.

It is written under another name, synced, and renamed over the old one. A file that a power cut left
under the other name is removed by the next write.
"""

from __future__ import annotations

from contextlib import closing

from dledger.store.disk import Disk

_NEW_SUFFIX = ".new"
# Enough for one line; a longer file was not written by `write_small_file`.
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


def only_line(content: bytes) -> str:
    """Return the line of a file of one line; nothing if it was cut, or has more than one."""
    line, end, more = content.decode("ascii", "replace").partition("\n")
    return line if end and not more else ""


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
