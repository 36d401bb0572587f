"""The mark of a folder that may have lost promises: a small file beside the hard state.

It is written before anything else into an empty folder, so no power cut can leave a folder that
looks complete and has forgotten what it promised. It goes when its member is proven: see
`dledger.core.admission`. A folder without the file is proven.
"""

from __future__ import annotations

from dledger.core.standing import Standing
from dledger.store.disk import Disk

FILE_NAME = "unproven"
_NEW_NAME = "unproven.new"
_MOST_BYTES = 64

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
        """Where the mark lies while there is one."""
        return f"{self._folder}/{FILE_NAME}"

    def _read(self) -> Standing:
        if FILE_NAME not in self._disk.list(self._folder):
            return Standing.PROVEN
        file = self._disk.open(self.path, writable=False)
        try:
            content = file.read(_MOST_BYTES, 0)
        finally:
            file.close()
        return Standing.FRESH if content == _EXPLANATION[Standing.FRESH] else Standing.LOST

    def set(self, standing: Standing) -> None:
        """Write or remove the mark; durable when it returns."""
        if standing is self.standing:
            return
        disk, folder = self._disk, self._folder
        if standing is Standing.PROVEN:
            disk.remove(self.path)
        else:
            new = f"{folder}/{_NEW_NAME}"
            if _NEW_NAME in disk.list(folder):
                disk.remove(new)
            file = disk.create(new)
            try:
                file.write(_EXPLANATION[standing], 0)
                file.sync()
            finally:
                file.close()
            disk.rename(new, self.path)
        disk.sync_folder(folder)
        self.standing = standing
