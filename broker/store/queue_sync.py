"""Makes consume queue files durable, beside the thread that writes them."""

import contextlib
import errno
from collections.abc import Callable, Iterable


class QueueSync:
    """Files and folders that have to be durable before a snapshot may stand for them.

    Args:
        paths: files that were written to.
        folders: folders that have new files or folders in them.
        sync: makes one of them durable; in any thread. Raises OSError.
        mark: writes down that all are; in any thread. Raises OSError. None: not to be written down.
    """

    def __init__(
        self,
        paths: Iterable[str],
        folders: Iterable[str],
        sync: Callable[[str], None],
        mark: Callable[[], None] | None,
    ) -> None:
        self.paths = frozenset(paths)
        self.folders = frozenset(folders)
        self._sync = sync
        self._mark = mark
        self.is_done = False
        self.has_failed = False

    def run(self) -> None:
        """Sync all, in any thread. What was removed meanwhile belongs to a deleted topic.

        Raises:
            OSError: something is not durable. The system may have forgotten what it could not
                write, so nothing here is to be believed until a replay has written it again.
        """
        if self.has_failed:
            raise OSError(errno.EIO, "an earlier sync failed: start the broker again")
        try:
            # In the same order in each process: a simulation is a function of its seed.
            for path in (*sorted(self.paths), *sorted(self.folders)):
                with contextlib.suppress(FileNotFoundError):
                    self._sync(path)
            if self._mark is not None:
                self._mark()
        except OSError:
            self.has_failed = True
            raise
        self.is_done = True
