"""The generation that a folder belongs to: a small file beside the hard state.

A folder without it is of generation 0. The file is written under another name, synced and renamed,
so it is there whole or not at all.
"""

from __future__ import annotations

from dledger.errors import LogCorrupt
from dledger.store.disk import Disk

FILE_NAME = "generation"
_NEW_NAME = "generation.new"
_MOST_BYTES = 64


class GenerationFile:
    """The number in one folder. Errors of the disk pass through as OSError."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        self.generation = self._read()

    def _read(self) -> int:
        if FILE_NAME not in self._disk.list(self._folder):
            return 0
        path = f"{self._folder}/{FILE_NAME}"
        file = self._disk.open(path, writable=False)
        try:
            content = file.read(_MOST_BYTES, 0)
        finally:
            file.close()
        word, _, number = content.removesuffix(b"\n").partition(b" ")
        if word != b"generation" or not number.isdigit():
            raise LogCorrupt(path, 0, "this is not the number of a generation")
        return int(number)

    def set(self, generation: int) -> None:
        """Record another one; durable when it returns."""
        disk, folder = self._disk, self._folder
        if _NEW_NAME in disk.list(folder):
            disk.remove(f"{folder}/{_NEW_NAME}")
        file = disk.create(f"{folder}/{_NEW_NAME}")
        try:
            file.write(b"generation %d\n" % generation, 0)
            file.sync()
        finally:
            file.close()
        disk.rename(f"{folder}/{_NEW_NAME}", f"{folder}/{FILE_NAME}")
        disk.sync_folder(folder)
        self.generation = generation
