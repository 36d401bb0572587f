"""The record that the group of this folder lost entries that are committed here: a small file.

It holds the line `orphans 101 500`, and a line with its sum, which earlier versions did not write.
While it is there, a start counts these entries as committed, however old the commit index in the
hard state is, so nothing overwrites them.
"""

from __future__ import annotations

from dledger.core.orphans import Orphans
from dledger.errors import LogCorrupt
from dledger.store.disk import Disk
from dledger.store.small_file import (
    fact_line,
    read_small_file,
    remove_small_file,
    with_sum,
    write_small_file,
)

FILE_NAME = "orphans"


class OrphansFile:
    """The orphans of one folder; None if it has none. Errors of the disk pass through as OSError.

    Raises LogCorrupt if the file holds something else.
    """

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        self.orphans = self._read()

    def _read(self) -> Orphans | None:
        content = read_small_file(self._disk, self._folder, FILE_NAME)
        if content is None:
            return None
        word, _, rest = fact_line(content).partition(" ")
        first, _, last = rest.partition(" ")
        named = word == "orphans" and first.isdecimal() and last.isdecimal()
        if named and int(first) <= int(last):
            return Orphans(int(first), int(last))
        path = f"{self._folder}/{FILE_NAME}"
        raise LogCorrupt(path, 0, "the file does not name the entries that the group lost")

    def set(self, orphans: Orphans | None) -> None:
        """Write or remove the record; durable on return."""
        if orphans == self.orphans:
            return
        if orphans is None:
            remove_small_file(self._disk, self._folder, FILE_NAME)
        else:
            line = f"orphans {orphans.first} {orphans.last}"
            write_small_file(self._disk, self._folder, FILE_NAME, with_sum(line.encode()))
        self.orphans = orphans
