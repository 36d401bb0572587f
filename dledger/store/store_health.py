"""Whether a store can be used: not after an error of the disk, and not after it was closed."""

from __future__ import annotations

from types import TracebackType
from typing import NoReturn

from dledger.errors import DiskFailed, Fatal, InvariantBroken


class StoreHealth:
    """Shared by the parts of one store. The first failure is terminal for all of them.

    Attributes:
        failure: what ended the store. A sync may set it in its own thread.
        closed: whether `close` was called.
    """

    __slots__ = ("_folder", "closed", "failure")

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.failure: Fatal | None = None
        self.closed = False

    def check(self) -> None:
        """Raise an error of its own after the failure that ended the store, or InvariantBroken once
        it is closed.
        """
        if self.failure is not None:
            raise self.failure.again() from self.failure
        if self.closed:
            raise InvariantBroken("the store is closed")

    def fail(self, failure: Fatal) -> NoReturn:
        """End the store with `failure`."""
        self.failure = failure
        raise failure

    def disk_work(self, operation: str) -> DiskWork:
        """A block in which an error of the disk ends the store: DiskFailed now and from every later
        call.
        """
        return DiskWork(self, operation)

    def disk_failed(self, operation: str, cause: OSError) -> NoReturn:
        """End the store with an error of the disk, as `disk_work` does."""
        path = cause.filename if isinstance(cause.filename, str) else self._folder
        self.failure = DiskFailed(operation, path, cause)
        raise self.failure from cause


class DiskWork:
    """See StoreHealth.disk_work. A class, and no generator, since each write enters one."""

    __slots__ = ("_health", "_operation")

    def __init__(self, health: StoreHealth, operation: str) -> None:
        self._health = health
        self._operation = operation

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, OSError):
            self._health.disk_failed(self._operation, error)
