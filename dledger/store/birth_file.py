"""The file `birth` in a member's folder: how its group began.

It is written when the folder is opened, and durable before the member first votes or stores an
entry.
"""

from __future__ import annotations

from dledger.errors import BirthUnreadable
from dledger.store.birth_record import BirthRecord, decode_birth, encode_birth
from dledger.store.disk import Disk
from dledger.store.small_file import read_small_file, write_small_file

FILE_NAME = "birth"

# More than nine voters with the longest names and addresses take at six bytes a character.
MOST_BYTES = 16 * 1024


class BirthFile:
    """The record of one folder; None before it is written. Errors of the disk are OSError.

    Raises BirthUnreadable if the file exists but holds no record.
    """

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        self.record = self._read()

    @property
    def path(self) -> str:
        return f"{self._folder}/{FILE_NAME}"

    def _read(self) -> BirthRecord | None:
        content = read_small_file(self._disk, self._folder, FILE_NAME, MOST_BYTES)
        if content is None:
            return None
        if (record := decode_birth(content)) is None:
            raise BirthUnreadable(self.path)
        return record

    def write(self, record: BirthRecord) -> None:
        """Replace the record; durable on return."""
        write_small_file(self._disk, self._folder, FILE_NAME, encode_birth(record))
        self.record = record
