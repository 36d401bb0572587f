"""Makes consume queue files durable, in another thread than the writer's."""

import contextlib
import errno
import os.path
from collections.abc import Callable, Iterable

from broker.store.lacking_units import LackingUnits


class QueueSync:
    """Files and folders that have to be durable before a snapshot stands for them.

    Args:
        paths: files that were written to.
        root: the folder of all queues.
        sync: makes one of them durable; in any thread. Raises OSError.
        mark: notes that all are durable; in any thread. Raises OSError. None for no note.
        lacking: units that have to be written first.
    """

    def __init__(
        self,
        paths: Iterable[str],
        root: str,
        sync: Callable[[str], None],
        mark: Callable[[], None] | None,
        lacking: LackingUnits,
    ) -> None:
        self.paths = frozenset(paths)
        self._root = root
        self._sync = sync
        self._mark = mark
        self.lacking = lacking
        self.is_done = False
        self.has_failed = False

    def run(self) -> None:
        """Write and sync everything, in any thread. Missing files belong to deleted topics.

        Raises:
            OSError: something is not durable. Data that the system refused to write is tried again
                with the next snapshot. Data that it took and failed to sync may be lost, so the
                files are not trusted until a replay has written them again.
        """
        if self.has_failed:
            raise OSError(errno.EIO, "an earlier sync failed: start the broker again")
        self.lacking.write()
        try:
            # Sorted, because a simulation must be a function of its seed.
            for path in (*sorted(self.paths), *sorted(self._folders())):
                with contextlib.suppress(FileNotFoundError):
                    self._sync(path)
            if self._mark is not None:
                self._mark()
        except OSError:
            self.has_failed = True
            raise
        self.is_done = True

    def _folders(self) -> set[str]:
        """Return the folders that may have new names in them: those of the queues, and
        all above.
        """
        queues = {os.path.dirname(path) for path in self.paths}
        folders = queues | {os.path.dirname(queue) for queue in queues}
        return folders | {self._root, os.path.dirname(self._root)} if folders else folders
