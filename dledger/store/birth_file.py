"""The file `birth` in a member's folder: how its group began.

It is durable before the member first votes or stores an entry: it is written when the folder is
opened, and the member takes part after that.
"""

from __future__ import annotations

from dledger.errors import BirthUnreadable
from dledger.store.birth_record import BirthRecord, decode_birth, encode_birth
from dledger.store.disk import Disk
from dledger.store.small_file import read_small_file, write_small_file

FILE_NAME = "birth"

# Nine voters with the longest names and addresses, each character written as six, take less.
MOST_BYTES = 16 * 1024


class BirthFile:
    """The record of one folder; None where there is none yet. Errors of the disk are OSError.

    Raises BirthUnreadable where there is a file, and no record in it.
    """

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        self.record = self._read()

    @property
    def path(self) -> str:
        """Where the file is."""
        return f"{self._folder}/{FILE_NAME}"

    def _read(self) -> BirthRecord | None:
        content = read_small_file(self._disk, self._folder, FILE_NAME, MOST_BYTES)
        if content is None:
            return None
        if (record := decode_birth(content)) is None:
            raise BirthUnreadable(self.path)
        return record

    def write(self, record: BirthRecord) -> None:
        """Let it say this; durable when it returns."""
        write_small_file(self._disk, self._folder, FILE_NAME, encode_birth(record))
        self.record = record
