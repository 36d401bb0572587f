"""A file that takes up room on the disk of a member, to be given up when the disk is full.

What is left of it then lets the member go on: its records of term and vote, the entries that decide
what may go, a snapshot, and the start of a member that ended because of the full disk.
"""

from __future__ import annotations

import contextlib

from dledger.store.disk import Disk

FILE_NAME = "reserve"


class Reserve:
    """The file `reserve` in the folder of one member.

    Args:
        disk: the disk itself, not one that gives up the reserve.
        folder: of the member.
        size_bytes: 0: there is no reserve.
    """

    def __init__(self, disk: Disk, folder: str, size_bytes: int) -> None:
        self._disk = disk
        self._folder = folder
        self._path = f"{folder}/{FILE_NAME}"
        self.size_bytes = size_bytes

    @property
    def is_made(self) -> bool:
        """Whether the file is there in full. Raises OSError."""
        if FILE_NAME not in self._disk.list(self._folder):
            return False
        file = self._disk.open(self._path, writable=False)
        try:
            return file.size() >= self.size_bytes
        finally:
            file.close()

    def make(self) -> None:
        """Take up the room, unless that is done. Raises OSError; then there is no file.

        Not synced: a power cut that loses it leaves its room free, and the next start makes it.
        """
        if not self.size_bytes or self.is_made:
            return
        self.give_up()
        file = self._disk.create(self._path)
        try:
            file.allocate(self.size_bytes)
        except OSError:
            file.close()
            self.give_up()
            raise
        file.close()

    def give_up(self) -> bool:
        """Free the room; return whether there was any."""
        with contextlib.suppress(OSError):
            self._disk.remove(self._path)
            return True
        return False
