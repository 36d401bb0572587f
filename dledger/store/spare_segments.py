"""Data files written ahead, so that a sync never has to allocate.

A sync of a file whose blocks are written already takes about half the time of one that grows.
`prepare` writes zeros to a file in the folder `spare` (in a thread, ahead of need); a roll then
only renames it. Without a spare a sparse file is used, as for the first segment of a log.
"""

from __future__ import annotations

from dledger.store.disk import Disk
from dledger.store.segment import ZERO_PIECE_BYTES

_SUFFIX = ".spare"


class SpareSegments:
    """The folder of spares.

    `prepare` may run in another thread; only whole, synced files get the name that `take` finds.
    """

    def __init__(self, disk: Disk, folder: str, segment_bytes: int, count: int) -> None:
        self._disk = disk
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._count = count
        self._ready: list[str] = []
        self._made = 0

    def open(self) -> None:
        """Create the folder, and remove what an earlier process left in it."""
        self._disk.make_folder(self._folder)
        for name in self._disk.list(self._folder):
            self._disk.remove(f"{self._folder}/{name}")

    @property
    def wanted(self) -> bool:
        """Whether fewer files are ready than configured."""
        return len(self._ready) < self._count

    def prepare(self) -> None:
        """Write one file of zeros and sync it, if one is wanted. Raises OSError."""
        if not self.wanted:
            return
        self._made += 1
        path = f"{self._folder}/{self._made}{_SUFFIX}"
        file = self._disk.create(path)
        try:
            zeros = bytes(min(ZERO_PIECE_BYTES, self._segment_bytes))
            at = 0
            while at < self._segment_bytes:
                part = min(len(zeros), self._segment_bytes - at)
                file.write(zeros[:part], at)
                # Piece by piece: one sync of the whole file would hold up those of the log.
                file.sync()
                at += part
        except OSError:
            file.close()
            self._disk.remove(path)  # a full disk needs the space
            raise
        file.close()
        self._ready.append(path)

    def take(self, path: str) -> bool:
        """Move a spare to `path`; False when none is ready. The caller syncs the folder."""
        if not self._ready:
            return False
        self._disk.rename(self._ready.pop(0), path)
        return True
