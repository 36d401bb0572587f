"""Whether a store can be used: not after an error of the disk, and not after it was closed."""

from __future__ import annotations

from types import TracebackType
from typing import NoReturn

from dledger.errors import DiskFailed, Fatal, InvariantBroken


class StoreHealth:
    """The health of one store, shared by its parts. The first failure is terminal for all of them.

    Attributes:
        failure: the error that ended the store. A sync may set it in its own thread.
        closed: whether `close` was called.
    """

    __slots__ = ("_folder", "closed", "failure")

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.failure: Fatal | None = None
        self.closed = False

    def check(self) -> None:
        """Raise a copy of the error that ended the store, or InvariantBroken if it is closed."""
        if self.failure is not None:
            raise self.failure.again() from self.failure
        if self.closed:
            raise InvariantBroken("the store is closed")

    def fail(self, failure: Fatal) -> NoReturn:
        self.failure = failure
        raise failure

    def disk_work(self, operation: str) -> DiskWork:
        """Return a block in which an error of the disk ends the store with DiskFailed."""
        return DiskWork(self, operation)

    def disk_failed(self, operation: str, cause: OSError) -> NoReturn:
        """End the store with an error of the disk, like a block of `disk_work`."""
        path = cause.filename if isinstance(cause.filename, str) else self._folder
        self.failure = DiskFailed(operation, path, cause)
        raise self.failure from cause


class DiskWork:
    """The block of `disk_work`: a class, not a generator, because each write enters one."""

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
