"""Processes that share work, and leave Ctrl-C to the one that started them."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.pool import Pool
from typing import TypeVar

from dledger.declared_error import DeclaredError

# How long results are waited for before a look at the processes.
LOOK_EVERY_S = 1.0
# More processes than any machine has cores: each of them takes memory.
JOBS_MAX = 256

Item = TypeVar("Item")
Result = TypeVar("Result")


class WorkerEnded(DeclaredError):
    """A process ended before its work was done. Its text says what to do."""

    problem: str


def each_in_workers(
    do: Callable[[Item], Result], items: Sequence[Item], count: int, at_once: int = 1
) -> Iterator[Result]:
    """Yield what `do` returns for each item, in their order, as `count` processes find it.

    A process is given `at_once` items together. What `do` prints goes to standard error.

    Raises WorkerEnded.
    """
    parts = (items[at : at + at_once] for at in range(0, len(items), at_once))
    others = _children()
    with _started(count) as pool:
        before = _children() - others
        found = pool.imap(partial(_all, do), parts)
        while True:
            try:
                part = found.next(LOOK_EVERY_S)
            except StopIteration:
                return
            except multiprocessing.TimeoutError:
                # The pool starts another process in place of one that has ended, and does not
                # repeat what that one was to do.
                if before <= _children():
                    continue
                problem = "a process that did part of the work has ended: the system killed it, "
                problem += "or the code that it ran; --jobs 1 shows where"
                raise WorkerEnded(problem) from None
            yield from part


def _all(do: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    return list(map(do, items))


def _children() -> set[int | None]:
    return {child.pid for child in multiprocessing.active_children()}


def _started(count: int) -> Pool:
    """Start so many processes.

    Ctrl-C in a terminal reaches them as well, but only this process handles it. They inherit the
    mask; here it waits until they are started. The tracker of multiprocessing lifts the mask when
    it starts, so it starts before.
    """
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return multiprocessing.get_context("spawn").Pool(count, os.dup2, (2, 1))
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
