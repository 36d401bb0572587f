"""Removes the files of a log's dropped beginning in a thread, while the loop appends."""

from __future__ import annotations

from collections.abc import Sequence

from dledger.errors import DiskFailed
from dledger.store.disk import Disk


class DiscardedFiles:
    """Files that no reader and no recovery uses any more.

    Their removal is not synced: files that a crash brings back are removed at the next start.
    """

    def __init__(self, disk: Disk, paths: Sequence[str]) -> None:
        self.paths = tuple(paths)
        self._disk = disk

    def remove(self) -> None:
        """Remove the files; may run in any thread.

        Raises DiskFailed. The store can go on: the files hold no entry of the log, and the next
        start removes the rest.
        """
        for path in self.paths:
            try:
                self._disk.remove(path)
            except OSError as cause:
                raise DiskFailed("remove", path, cause) from cause
