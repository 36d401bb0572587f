"""The mark of a folder that may have lost promises: a small file beside the hard state.

It is the first file in a new folder, so no power cut can leave a folder that looks complete and
has lost promises. It is removed when the member is proven: see `dledger.core.admission.admission`.
A folder without the file is proven.
"""

from __future__ import annotations

from dledger.core.admission.standing import Standing
from dledger.store.disk import Disk
from dledger.store.small_file import read_small_file, remove_small_file, write_small_file

FILE_NAME = "unproven"

_EXPLANATION = {
    Standing.FRESH: b"fresh: this folder was empty\n",
    Standing.LOST: b"lost: this folder lost entries or votes\n",
}


class StandingFile:
    """The mark in one folder. Errors of the disk pass through as OSError."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        self.standing = self._read()

    @property
    def path(self) -> str:
        """Path of the mark while there is one."""
        return f"{self._folder}/{FILE_NAME}"

    def _read(self) -> Standing:
        content = read_small_file(self._disk, self._folder, FILE_NAME)
        if content is None:
            return Standing.PROVEN
        return Standing.FRESH if content == _EXPLANATION[Standing.FRESH] else Standing.LOST

    def set(self, standing: Standing) -> None:
        """Write or remove the mark; durable on return."""
        if standing is self.standing:
            return
        if standing is Standing.PROVEN:
            remove_small_file(self._disk, self._folder, FILE_NAME)
        else:
            write_small_file(self._disk, self._folder, FILE_NAME, _EXPLANATION[standing])
        self.standing = standing
