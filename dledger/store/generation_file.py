"""The generation that a folder belongs to: a small file beside the hard state.

A folder without it is of generation 0.
"""

from __future__ import annotations

from dledger.errors import LogCorrupt
from dledger.store.disk import Disk
from dledger.store.small_file import read_small_file, write_small_file

FILE_NAME = "generation"


class GenerationFile:
    """The number in one folder. Errors of the disk pass through as OSError."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        self.generation = self._read()

    def _read(self) -> int:
        content = read_small_file(self._disk, self._folder, FILE_NAME)
        if content is None:
            return 0
        word, _, number = content.removesuffix(b"\n").partition(b" ")
        if word != b"generation" or not number.isdigit():
            path = f"{self._folder}/{FILE_NAME}"
            raise LogCorrupt(path, 0, "this is not the number of a generation")
        return int(number)

    def set(self, generation: int) -> None:
        """Record another one; durable when it returns."""
        write_small_file(self._disk, self._folder, FILE_NAME, b"generation %d\n" % generation)
        self.generation = generation
