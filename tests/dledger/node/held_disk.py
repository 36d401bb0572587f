"""The operating system's disk, whose syncs below some folders can be made to hang."""

from __future__ import annotations

import threading
import time

from dledger.node.syncer import QUICK_SYNC_S
from dledger.store.disk import OsDisk, OsDiskFile


class HeldFile(OsDiskFile):
    """A file whose sync waits while its disk is held."""

    __slots__ = ("_disk",)

    def __init__(self, file: OsDiskFile, disk: HeldDisk) -> None:
        super().__init__(file.path, file._descriptor)
        self._disk = disk

    def sync(self) -> None:
        """Wait, if the disk hangs; quick otherwise, as nothing reaches a real disk."""
        self._disk.wait(self.path)


class HeldDisk(OsDisk):
    """Hangs in the syncs of files whose path has one of the held parts."""

    def __init__(self) -> None:
        self._held: set[str] = set()
        self.slow = ""  # syncs of files with this in their path are too slow to wait for
        self._free = threading.Event()
        self._free.set()
        self.hangs = threading.Event()

    def hold(self, *parts: str) -> None:
        """Let syncs of such files hang from now on."""
        self._held.update(parts)
        self._free.clear()

    def let_go(self) -> None:
        """Let all syncs end."""
        self._held.clear()
        self._free.set()

    def wait(self, path: str) -> None:
        """Hang, if that file's disk does; take a while, if it is slow."""
        if self.slow and self.slow in path:
            time.sleep(2 * QUICK_SYNC_S)
        if any(part in path for part in self._held):
            self.hangs.set()
            self._free.wait()

    def open(self, path: str, *, writable: bool = True) -> HeldFile:
        return HeldFile(super().open(path, writable=writable), self)

    def create(self, path: str) -> HeldFile:
        return HeldFile(super().create(path), self)
