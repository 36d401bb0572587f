"""Futures whose locks survive Ctrl-C.

The handler of Ctrl-C may raise between any two instructions of the main thread. The standard
library's `Condition.__enter__` takes the lock of a future by a call, and the block that gives it
back begins some instructions later. An interrupt between them leaves the lock taken for ever, and
the loop that wants to answer that future hangs, with all other calls and its own end.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import CancelledError, Future
from time import monotonic
from typing import Any, TypeVar

T = TypeVar("T")


class _AtomicCondition(threading.Condition):
    """A condition whose lock is taken and given back by the `with` statement itself.

    `with` looks up `__enter__`, finds the method of the lock, which is no Python code, and calls it
    in the same instruction that begins the block: nothing can be raised in between.
    """

    __enter__ = property(lambda self: self._lock.__enter__)
    __exit__ = property(lambda self: self._lock.__exit__)


class CallFuture(Future[T]):
    """A future of a call in a loop's thread, for which any thread may wait."""

    def __init__(self) -> None:
        super().__init__()
        self._condition = _AtomicCondition()


def wait_for_all(futures: Iterable[Future[Any]], timeout_s: float | None = None) -> None:
    """Wait until all are done, or the time is over. Unlike `concurrent.futures.wait` it holds the
    lock of none when it is interrupted.
    """
    until = None if timeout_s is None else monotonic() + timeout_s
    for future in futures:
        left_s = None if until is None else max(0.0, until - monotonic())
        try:
            future.exception(left_s)
        except CancelledError:
            continue
        except TimeoutError:
            if until is None or monotonic() < until:
                raise  # the handler of a signal raised it
