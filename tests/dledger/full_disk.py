"""A disk with so much room, for tests: as the kernel's, it takes a part of what does not fit."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from dledger.serving.platform import DiskSpace
from dledger.store.disk import OsDisk, OsDiskFile

BLOCK_BYTES = 4096


class FullFile(OsDiskFile):
    """A file that takes up its written blocks."""

    __slots__ = ("_disk",)

    def __init__(self, file: OsDiskFile, disk: FullDisk) -> None:
        super().__init__(file.path, file._descriptor)
        self._disk = disk

    def write(self, data: bytes, at: int) -> None:
        fits = self._disk.take(self.path, at, len(data))
        super().write(data[:fits], at)
        if fits < len(data):
            raise OSError(self._disk.number, os.strerror(self._disk.number), self.path)

    def allocate(self, size: int) -> None:
        if self._disk.take(self.path, 0, size) < size:
            raise OSError(self._disk.number, os.strerror(self._disk.number), self.path)
        self.grow(size)


class FullDisk(OsDisk):
    """A disk of `room_bytes`.

    `number`: of the error of a write without room. `syncs_fail`: with which number syncs fail.
    """

    def __init__(self, room_bytes: int, number: int = errno.ENOSPC) -> None:
        self.room_bytes = room_bytes
        self.number = number
        self._blocks: dict[str, set[int]] = {}

    @property
    def free_bytes(self) -> int:
        used = sum(map(len, self._blocks.values())) * BLOCK_BYTES
        return max(0, self.room_bytes - used)

    def space(self, _folder: Path) -> DiskSpace:
        return DiskSpace(self.free_bytes, self.room_bytes)

    def take(self, path: str, at: int, size: int) -> int:
        """How many bytes fit there, which are taken."""
        blocks, free = self._blocks.setdefault(path, set()), self.free_bytes // BLOCK_BYTES
        for block in range(at // BLOCK_BYTES, (at + size - 1) // BLOCK_BYTES + 1):
            if block in blocks:
                continue
            if not free:
                return max(0, block * BLOCK_BYTES - at)
            free -= 1
            blocks.add(block)
        return size

    def open(self, path: str, *, writable: bool = True) -> FullFile:
        return FullFile(super().open(path, writable=writable), self)

    def create(self, path: str) -> FullFile:
        return FullFile(super().create(path), self)

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        if old in self._blocks:
            self._blocks[new] = self._blocks.pop(old)

    def remove(self, path: str) -> None:
        super().remove(path)
        self._blocks.pop(path, None)
