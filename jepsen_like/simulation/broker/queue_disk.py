"""The consume queues' disk, over the virtual disk of one simulated machine.

A folder is a name in its parent like a file is: after a power cut it is there, with what lies in
it, only if its parent was synced. The virtual disk knows files alone, so an empty file stands for
each folder.
"""

from __future__ import annotations

import errno

from jepsen_like.simulation.virtual_disk import VirtualDisk, VirtualFile

# Ends the name of the file that stands for a folder; no topic and no queue has it in its name.
FOLDER_MARK = ".folder"


class VirtualQueueDisk:
    """Implements `broker.store.consume_queue_disk.ConsumeQueueDisk` for one process.

    It begins by dropping the content of folders that a power cut took. `root` is the folder above
    all others, which always exists.
    """

    def __init__(self, disk: VirtualDisk, root: str) -> None:
        self._disk = disk
        self._root = root
        self._files: dict[int, VirtualFile] = {}
        self._next = 0
        self._drop_orphans(root)

    def open(self, path: str, to_write: bool) -> int:
        try:
            file = self._disk.open(path)
        except FileNotFoundError:
            if not to_write or not self._has_folder(_parent(path)):
                raise
            file = self._disk.create(path)
        self._next += 1
        self._files[self._next] = file
        return self._next

    def close(self, descriptor: int) -> None:
        self._files.pop(descriptor).close()

    def write(self, descriptor: int, data: bytes, at: int) -> int:
        self._files[descriptor].write(data, at)
        return len(data)

    def read(self, descriptor: int, size: int, at: int) -> bytes:
        return self._files[descriptor].read(size, at)

    def make_folder(self, path: str) -> None:
        if not self._has_folder(path):
            self.make_folder(_parent(path))
            self._disk.create(path + FOLDER_MARK)

    def sizes(self, folder: str) -> dict[str, int]:
        if not self._has_folder(folder):
            raise FileNotFoundError(errno.ENOENT, "no such folder on the virtual disk", folder)
        names = [name for name in self._disk.list(folder) if not name.endswith(FOLDER_MARK)]
        return {name: self._disk.open(f"{folder}/{name}").size() for name in names}

    def remove(self, path: str) -> None:
        self._disk.remove(path)

    def remove_folder(self, path: str) -> None:
        if not self._has_folder(path):
            raise FileNotFoundError(errno.ENOENT, "no such folder on the virtual disk", path)
        for name in self._disk.list(path):
            if name.endswith(FOLDER_MARK):
                self.remove_folder(f"{path}/{name.removesuffix(FOLDER_MARK)}")
            elif self._disk.exists(f"{path}/{name}"):
                self._disk.remove(f"{path}/{name}")
        self._disk.remove(path + FOLDER_MARK)

    def sync(self, path: str) -> None:
        if self._has_folder(path):
            self._disk.sync_folder(path)
        else:
            self._disk.open(path).sync()

    def folders(self, folder: str) -> list[str]:
        """Return the paths of the folders in a folder, in order."""
        names = [name for name in self._disk.list(folder) if name.endswith(FOLDER_MARK)]
        return sorted(f"{folder}/{name.removesuffix(FOLDER_MARK)}" for name in names)

    def content(self, path: str) -> bytes:
        """Return all bytes of a file as a reader sees them; none if it does not exist."""
        try:
            file = self._disk.open(path)
        except FileNotFoundError:
            return b""
        return file.read(file.size(), 0)

    def _has_folder(self, path: str) -> bool:
        return path == self._root or self._disk.exists(path + FOLDER_MARK)

    def _drop_orphans(self, folder: str) -> None:
        """Drop the content of folders that do not exist."""
        names = set(self._disk.list(folder))
        for name in sorted(names):
            path = f"{folder}/{name}"
            is_folder = not self._disk.exists(path)
            if is_folder and name + FOLDER_MARK not in names:
                self._drop(path)
            elif is_folder:
                self._drop_orphans(path)

    def _drop(self, folder: str) -> None:
        for name in sorted(self._disk.list(folder)):
            path = f"{folder}/{name}"
            if self._disk.exists(path):
                self._disk.remove(path)
            else:
                self._drop(path)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
