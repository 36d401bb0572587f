"""The generation that a folder belongs to: a small file beside the hard state.

It holds the line `generation 1 0123456789abcdef`, the number and the mark, and a line with its sum.
Versions before sums wrote the first line alone, and versions before marks the number alone. A
folder without the file is of generation 0.
"""

from __future__ import annotations

from dledger.errors import LogCorrupt
from dledger.store.disk import Disk
from dledger.store.generation import NEVER_RECOVERED, Generation, is_generation
from dledger.store.small_file import fact_line, read_small_file, with_sum, write_small_file

FILE_NAME = "generation"


class GenerationFile:
    """The generation of one folder. Errors of the disk pass through as OSError."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        self.generation = self._read()

    def _read(self) -> Generation:
        content = read_small_file(self._disk, self._folder, FILE_NAME)
        if content is None:
            return NEVER_RECOVERED
        word, _, rest = fact_line(content).partition(" ")
        number, _, mark = rest.partition(" ")
        if word == "generation" and number.isdecimal() and is_generation(int(number), mark):
            return Generation(int(number), mark)
        path = f"{self._folder}/{FILE_NAME}"
        raise LogCorrupt(path, 0, "the file does not name the generation of the folder")

    def set(self, generation: Generation) -> None:
        """Record another generation; durable on return."""
        line = f"generation {generation.number} {generation.mark}".rstrip()
        write_small_file(self._disk, self._folder, FILE_NAME, with_sum(line.encode()))
        self.generation = generation
