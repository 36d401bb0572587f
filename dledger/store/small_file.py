"""A small file that says one thing about its folder, written so that it is there whole or not.

It is written under another name, synced, and renamed over the one of before. What a power cut left
under the other name is removed by the next one who writes.
"""

from __future__ import annotations

from dledger.store.disk import Disk

_NEW_SUFFIX = ".new"
# Enough for one line; what is longer was not written here.
MOST_BYTES = 64


def read_small_file(
    disk: Disk, folder: str, name: str, most_bytes: int = MOST_BYTES
) -> bytes | None:
    """What it says, `most_bytes` of it at most; None when it is not there. Raises OSError."""
    if name not in disk.list(folder):
        return None
    file = disk.open(f"{folder}/{name}", writable=False)
    try:
        return file.read(most_bytes, 0)
    finally:
        file.close()


def write_small_file(disk: Disk, folder: str, name: str, content: bytes) -> None:
    """Let it say this; durable when it returns. Raises OSError."""
    new = f"{folder}/{name}{_NEW_SUFFIX}"
    if name + _NEW_SUFFIX in disk.list(folder):
        disk.remove(new)
    file = disk.create(new)
    try:
        file.write(content, 0)
        file.sync()
    finally:
        file.close()
    disk.rename(new, f"{folder}/{name}")
    disk.sync_folder(folder)


def remove_small_file(disk: Disk, folder: str, name: str) -> None:
    """Let it be gone; durable when it returns. Raises OSError."""
    disk.remove(f"{folder}/{name}")
    disk.sync_folder(folder)
