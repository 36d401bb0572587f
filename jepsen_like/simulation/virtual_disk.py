"""A disk in memory that loses unsynced writes at a crash.

It keeps two images of every file: what a reader sees, and what survives. The promises are those of
`dledger.store.disk`, taken at their weakest: a sector written since the last sync of its file may
hold its old content or its new one, and the last one of all may begin new and end old; a name may
be there or not until its folder was synced.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from dledger.errors import DataFolderLocked
from jepsen_like.chance import Chance

SECTOR_BYTES = 512
# Free bytes of a disk that other programs leave empty.
EMPTY_DISK_BYTES = 1 << 40


class PowerCut(BaseException):
    """The machine stopped inside a disk call. Not an Exception: no code can survive it."""


class _File:
    """The content of a file: two images, and the sectors in which they may differ."""

    __slots__ = ("dirty", "durable", "taken", "visible")

    def __init__(self) -> None:
        self.visible = bytearray()
        self.durable = bytearray()
        self.dirty: set[int] = set()  # sorted before use: a set has no reliable order
        self.taken: set[int] = set()  # sectors that were written or allocated

    def mark(self, at: int, size: int) -> None:
        self.dirty.update(_sectors(at, size))

    def sync(self) -> None:
        visible, durable = self.visible, self.durable
        if len(durable) < len(visible):
            durable.extend(bytes(len(visible) - len(durable)))
        for sector in self.dirty:
            start = sector * SECTOR_BYTES
            durable[start : start + SECTOR_BYTES] = visible[start : start + SECTOR_BYTES]
        self.dirty.clear()

    def lose(self, chance: Chance, style: CrashStyle, torn_sector: int) -> None:
        """Keep or lose each unsynced sector by chance; the one being written may tear."""
        if len(self.durable) < len(self.visible) and chance.happens(style.keep):
            self.durable.extend(bytes(len(self.visible) - len(self.durable)))
        for sector in sorted(self.dirty):
            start = sector * SECTOR_BYTES
            end = min(start + SECTOR_BYTES, len(self.durable))
            if start >= end:
                continue
            if sector == torn_sector and chance.happens(style.torn):
                end = chance.randint(start, end)
            elif not chance.happens(style.keep):
                continue
            self.durable[start:end] = self.visible[start:end]
        self.visible = bytearray(self.durable)
        self.dirty.clear()


def _sectors(at: int, size: int) -> range:
    return range(at // SECTOR_BYTES, (at + size - 1) // SECTOR_BYTES + 1)


@dataclass(frozen=True, slots=True)
class CrashStyle:
    """What a crash keeps of unsynced changes: probabilities for one sector or one name."""

    keep: float
    torn: float  # of the sector that was written last
    names_in_order: bool  # as a journal does: no later change of names without the earlier ones


class DiskImage(NamedTuple):
    """The durable content of a disk that was taken out of its machine."""

    names: dict[str, _File]
    folders: dict[str, None]


class _NameChange(NamedTuple):
    """One change of names that its folder's sync has not made durable yet."""

    old: str | None
    new: str | None
    file: _File | None


class DiskCopy(NamedTuple):
    """The content of a disk at one moment."""

    files: dict[str, bytes]
    folders: tuple[str, ...]


class VirtualFile:
    """One open file; unusable after a crash of the machine that it was opened on."""

    __slots__ = ("_disk", "_file", "_life", "_path")

    def __init__(self, disk: VirtualDisk, path: str, file: _File) -> None:
        self._disk = disk
        self._path = path
        self._file = file
        self._life = disk.life

    @property
    def path(self) -> str:
        return self._path

    def size(self) -> int:
        return len(self._file.visible)

    def read(self, size: int, at: int) -> bytes:
        return bytes(self._file.visible[at : at + size])

    def write(self, data: bytes, at: int) -> None:
        """Write all of `data` at offset `at`, or only its beginning if the power fails."""
        if not data:
            return
        try:
            self._disk.step(self._life)
        except PowerCut:
            if self._life == self._disk.life:
                self._put(data[: self._disk.chance.randint(0, len(data))], at)
            raise
        fits = self._disk.take(self._file, at, len(data))
        self._put(data[:fits], at)
        if fits < len(data):
            raise self._no_room()

    def _put(self, data: bytes, at: int) -> None:
        if not data:
            return
        visible = self._file.visible
        if at > len(visible):
            visible.extend(bytes(at - len(visible)))
        visible[at : at + len(data)] = data
        self._file.mark(at, len(data))
        self._disk.wrote(self._file, (at + len(data) - 1) // SECTOR_BYTES)

    def grow(self, size: int) -> None:
        self._disk.step(self._life)
        visible = self._file.visible
        if len(visible) < size:
            visible.extend(bytes(size - len(visible)))

    def allocate(self, size: int) -> None:
        if self._disk.take(self._file, 0, size) < size:
            raise self._no_room()
        self.grow(size)

    def _no_room(self) -> OSError:
        self._disk.on_fault("writes without room")
        return OSError(errno.ENOSPC, "the virtual disk is full", self._path)

    def sync(self) -> None:
        self._disk.step(self._life)
        if self._disk.sync_fails:
            # Linux marks the pages clean all the same: the store must not sync again.
            self._disk.sync_fails = False
            raise OSError(errno.EIO, "the virtual disk fails", self._path)
        self._file.sync()

    def close(self) -> None:
        """Close the file without making anything durable."""


class VirtualLock:
    """A lock that is released when its holder's process ends."""

    __slots__ = ("_locks", "_path")

    def __init__(self, locks: dict[str, None], path: str) -> None:
        self._locks = locks
        self._path = path

    def close(self) -> None:
        self._locks.pop(self._path, None)


class VirtualDisk:
    def __init__(self, chance: Chance) -> None:
        self.chance = chance
        self._names: dict[str, _File] = {}
        self._durable_names: dict[str, _File] = {}
        self._changes: dict[str, list[_NameChange]] = {}  # by folder
        # Changes that a failed sync of their folder gave up: only chance makes them durable.
        self._given_up: dict[str, list[_NameChange]] = {}
        self._folders: dict[str, None] = {}
        self._locks: dict[str, None] = {}
        self._last_write: tuple[_File | None, int] = (None, -1)  # the last sector it touched
        self.life = 0  # grows with every crash; files opened before are dead
        self.sync_fails = False  # the next sync of a file raises an error
        self.folder_sync_fails = False  # the next sync of a folder raises one
        self.rename_fails = False
        # Changing calls until the process ends inside one, with its machine's power or without;
        # None if
        # no such end is planned.
        self.steps_left: int | None = None
        self.takes_power = True
        self.room_bytes: int | None = None  # room that other programs leave to its files
        self.on_fault: Callable[[str], None] = lambda what: None

    # --- faults -------------------------------------------------------------------------------

    def step(self, life: int) -> None:
        """Count one changing call; raise PowerCut if the process ends inside it."""
        if life != self.life:
            raise PowerCut
        if self.steps_left is not None:
            self.steps_left -= 1
            if self.steps_left < 0:
                raise PowerCut

    def wrote(self, file: _File, sector: int) -> None:
        self._last_write = (file, sector)

    def end_process(self) -> None:
        """End the process: its files and locks are gone; its writes stay in the page cache."""
        self.life += 1
        self.spare()
        self._locks.clear()

    def spare(self) -> None:
        """Cancel all planned faults."""
        self.steps_left = None
        self.sync_fails = self.folder_sync_fails = self.rename_fails = False

    def fill(self, left_bytes: int) -> None:
        """Have other programs take all but so many of the free bytes."""
        self.room_bytes = self._used_bytes() + min(left_bytes, self.free_bytes)

    @property
    def free_bytes(self) -> int:
        if self.room_bytes is None:
            return EMPTY_DISK_BYTES
        return max(0, self.room_bytes - self._used_bytes())

    def _used_bytes(self) -> int:
        return sum(len(file.taken) for file in self._names.values()) * SECTOR_BYTES

    def take(self, file: _File, at: int, size: int) -> int:
        """Take room for bytes of a file; return for how many there was room."""
        if self.room_bytes is None:
            file.taken.update(_sectors(at, size))
            return size
        free = self.free_bytes // SECTOR_BYTES
        for sector in _sectors(at, size):
            if sector not in file.taken:
                if not free:
                    return max(0, sector * SECTOR_BYTES - at)
                free -= 1
                file.taken.add(sector)
        return size

    def cut_power(self, style: CrashStyle) -> None:
        """Cut the machine's power: unsynced changes are lost, kept or torn, by chance."""
        self.end_process()
        for folder in sorted({*self._changes, *self._given_up}):
            changes = [*self._given_up.get(folder, ()), *self._changes.get(folder, ())]
            self._lose_names(changes, style)
        self._changes.clear()
        self._given_up.clear()
        self._names = dict(self._durable_names)
        for path in sorted(self._names):
            file = self._names[path]
            torn_sector = self._last_write[1] if file is self._last_write[0] else -1
            file.lose(self.chance, style, torn_sector)
        self._last_write = (None, -1)

    def wipe(self, kept: str) -> None:
        """End the process, and replace this disk by an empty one.

        The durable files of the folder `kept` are on another disk, and stay.
        """
        self.end_process()
        self.room_bytes = None
        others = {
            path: file
            for path, file in self._durable_names.items()
            if path.rpartition("/")[0] == kept.rstrip("/")
        }
        for names in (
            self._names,
            self._durable_names,
            self._changes,
            self._given_up,
            self._folders,
        ):
            names.clear()
        self._names.update(others)
        self._durable_names.update(others)
        self._last_write = (None, -1)

    def copy(self) -> DiskCopy:
        """Return a copy of all files as a reader sees them now."""
        files = {path: bytes(file.visible) for path, file in self._names.items()}
        return DiskCopy(files, tuple(self._folders))

    def restore(self, copy: DiskCopy) -> None:
        """End the process, and replace this disk by one that holds a copy."""
        self.wipe("")
        self._folders.update(dict.fromkeys(copy.folders))
        for path, content in copy.files.items():
            file = self._names[path] = self._durable_names[path] = _File()
            file.visible[:] = file.durable[:] = content
            file.taken.update(_sectors(0, len(content)))

    def mislaid(self) -> DiskImage:
        """End the process, and replace this disk by an empty one; return this one.

        Call it after a power cut: the image holds the durable content.
        """
        self.end_process()
        self.room_bytes = None
        image = DiskImage(self._durable_names, self._folders)
        self._names, self._durable_names, self._folders = {}, {}, {}
        self._changes.clear()
        self._given_up.clear()
        self._last_write = (None, -1)
        return image

    def put_back(self, image: DiskImage) -> None:
        """Replace this disk by the one that `mislaid` returned."""
        self.mislaid()
        self._durable_names, self._folders = image
        self._names = dict(self._durable_names)

    def _lose_names(self, changes: list[_NameChange], style: CrashStyle) -> None:
        for change in changes:
            if not self.chance.happens(style.keep):
                if style.names_in_order:
                    return
                continue
            self._make_durable(change)

    def _make_durable(self, change: _NameChange) -> None:
        if change.old is not None:
            self._durable_names.pop(change.old, None)
        if change.new is not None and change.file is not None:
            self._durable_names[change.new] = change.file

    # --- the protocol of dledger.store.disk -----------------------------------------------------

    def make_folder(self, path: str) -> None:
        self._folders[path] = None

    def list(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        begin = len(prefix)
        below = [
            path[begin:].partition("/")[0]
            for paths in (self._names, self._folders)
            for path in paths
            if path.startswith(prefix)
        ]
        found = list(dict.fromkeys(below))
        self.chance.shuffle(found)
        return found

    def exists(self, path: str) -> bool:
        return path in self._names

    def open(self, path: str, *, writable: bool = True) -> VirtualFile:
        file = self._names.get(path)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, "no such file on the virtual disk", path)
        return VirtualFile(self, path, file)

    def create(self, path: str) -> VirtualFile:
        self.step(self.life)
        if path in self._names:
            raise FileExistsError(errno.EEXIST, "there is such a file on the virtual disk", path)
        file = self._names[path] = _File()
        self._change(path, _NameChange(None, path, file))
        return VirtualFile(self, path, file)

    def rename(self, old: str, new: str) -> None:
        self.step(self.life)
        if self.rename_fails:
            self.rename_fails = False
            self.on_fault("failed renames")
            raise OSError(errno.EIO, "the virtual disk fails to rename", old)
        if old not in self._names:
            self._rename_folder(old, new)
            return
        file = self._names[new] = self._names.pop(old)
        if old.rpartition("/")[0] == new.rpartition("/")[0]:
            self._change(new, _NameChange(old, new, file))
        else:  # each folder is durable by itself
            self._change(new, _NameChange(None, new, file))
            self._change(old, _NameChange(old, None, None))

    def _rename_folder(self, old: str, new: str) -> None:
        """Move the files of a folder; the names in both parents change one by one."""
        inside = [path for path in self._names if path.startswith(old + "/")]
        if not inside and old not in self._folders:
            raise FileNotFoundError(errno.ENOENT, "no such name on the virtual disk", old)
        moved = {path: new + path.removeprefix(old) for path in inside}
        for path, at in moved.items():
            file = self._names[at] = self._names.pop(path)
            self._change(new, _NameChange(None, at, file))
            self._change(old, _NameChange(path, None, None))
        for folder in [path for path in self._folders if f"{path}/".startswith(old + "/")]:
            del self._folders[folder]
            self._folders[new + folder.removeprefix(old)] = None

    def remove(self, path: str) -> None:
        self.step(self.life)
        if self._names.pop(path, None) is None:
            raise FileNotFoundError(errno.ENOENT, "no such file on the virtual disk", path)
        self._change(path, _NameChange(path, None, None))

    def sync_folder(self, path: str) -> None:
        self.step(self.life)
        folder = path.rstrip("/")
        changes = self._changes.pop(folder, [])
        if self.folder_sync_fails:
            # Like the pages of a file: after a failed sync the next one succeeds.
            self.folder_sync_fails = False
            self._given_up.setdefault(folder, []).extend(changes)
            self.on_fault("failed folder syncs")
            raise OSError(errno.EIO, "the virtual disk fails to sync a folder", path)
        for change in changes:
            self._make_durable(change)

    def lock(self, path: str) -> VirtualLock:
        if path in self._locks:
            raise DataFolderLocked(path.rpartition("/")[0])
        self._locks[path] = None
        return VirtualLock(self._locks, path)

    def _change(self, path: str, change: _NameChange) -> None:
        self._changes.setdefault(path.rpartition("/")[0], []).append(change)
