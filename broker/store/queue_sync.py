"""Makes consume queue files durable, beside the thread that writes them."""

import contextlib
import errno
import os.path
from collections.abc import Callable, Iterable

from broker.store.lacking_units import LackingUnits


class QueueSync:
    """Files and folders that have to be durable before a snapshot may stand for them.

    Args:
        paths: files that were written to.
        root: the folder of all queues.
        sync: makes one of them durable; in any thread. Raises OSError.
        mark: writes down that all are; in any thread. Raises OSError. None: not to be written down.
        lacking: what has to be written to the files before.
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
        """Write and sync all, in any thread. What was removed meanwhile belongs to a deleted topic.

        Raises:
            OSError: something is not durable. What the system did not take is tried again with the
                next snapshot. What it took and could not sync it may have forgotten, so nothing
                here is to be believed until a replay has written it again.
        """
        if self.has_failed:
            raise OSError(errno.EIO, "an earlier sync failed: start the broker again")
        self.lacking.write()
        try:
            # In the same order in each process: a simulation is a function of its seed.
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
        """Those that may have new files or folders in them: of the queues, and all above."""
        queues = {os.path.dirname(path) for path in self.paths}
        folders = queues | {os.path.dirname(queue) for queue in queues}
        return folders | {self._root, os.path.dirname(self._root)} if folders else folders
