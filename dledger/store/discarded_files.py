"""Files that the log no longer begins with, removed beside the loop that appends."""

from __future__ import annotations

from collections.abc import Sequence

from dledger.errors import DiskFailed
from dledger.store.disk import Disk


class DiscardedFiles:
    """Files that no reader and no recovery looks at any more.

    Their removal is not synced: what a crash brings back is removed at the next start.
    """

    def __init__(self, disk: Disk, paths: Sequence[str]) -> None:
        self.paths = tuple(paths)
        self._disk = disk

    def remove(self) -> None:
        """Remove them, in any thread.

        Raises DiskFailed when that fails. The store goes on: no entry was concerned, and the
        next start removes the rest.
        """
        for path in self.paths:
            try:
                self._disk.remove(path)
            except OSError as cause:
                raise DiskFailed("remove", path, cause) from cause
