"""The threads of a process that run its syncs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from dledger.refused_threads import NO_THREAD
from dledger.system_refusals import Kind, is_of

# Idle threads kept for the next sync. On quick disks one thread runs the syncs of all groups in
# turn; more threads work only while several syncs run beside the event loop.
MAX_IDLE_THREADS = 8


class SyncThreads(Protocol):
    """Runs syncs of many groups, each in a thread of its own.

    A group has one sync at a time, so there are never more threads than groups. A bound on the
    threads of all groups together would let a few hanging disks stop the groups on all others.
    """

    def clock(self) -> float:
        """Return seconds, for measuring how long a sync takes."""
        ...

    def run(self, sync: Callable[[], None], late: Callable[[], None], patience_s: float) -> bool:
        """Run a sync and block until it ends, `patience_s` at most; return whether it ended.

        If not, it goes on beside the event loop, and calls `late` in its thread when it ends.
        """
        ...

    def start(self, sync: Callable[[], None]) -> None:
        """Run a sync beside the event loop."""
        ...

    def shutdown(self) -> None:
        """End idle threads now, and busy ones after their sync. Does not wait."""
        ...


class DiskThreads:
    """Real threads. They do not keep the process alive: a disk may never answer."""

    def __init__(self) -> None:
        # One starts now: a process that is refused threads later has this one for its syncs.
        first = self._born()
        self._idle: list[_Thread] = [] if first is None else [first]
        self._closed = False

    def clock(self) -> float:
        return time.perf_counter()

    def run(self, sync: Callable[[], None], late: Callable[[], None], patience_s: float) -> bool:
        ended = threading.Lock()
        ended.acquire()
        decided = threading.Lock()  # the side that takes it first decides whether the sync is late

        def told() -> None:
            if decided.acquire(blocking=False):
                ended.release()
            else:
                late()

        if (thread := self._take()) is None:
            sync()
            return True
        thread.give(sync, told)
        if ended.acquire(timeout=patience_s):
            return True
        if decided.acquire(blocking=False):
            return False
        return ended.acquire()  # the thread is about to release it

    def start(self, sync: Callable[[], None]) -> None:
        if (thread := self._take()) is None:
            sync()
        else:
            thread.give(sync, _nothing)

    def shutdown(self) -> None:
        self._closed = True
        self._end_idle()

    def _take(self) -> _Thread | None:
        """Return an idle or a new thread; None if the system starts none, so that the loop
        syncs.
        """
        try:
            return self._idle.pop()
        except IndexError:
            return self._born()

    def _born(self) -> _Thread | None:
        try:
            return _Thread(self._keep)
        except RuntimeError as error:
            if not is_of(Kind.THREADS, error):
                raise
            NO_THREAD.tell(error)
            return None

    def _keep(self, thread: _Thread) -> bool:
        """Return whether `thread` is kept for another sync. Called in that thread."""
        if self._closed or len(self._idle) >= MAX_IDLE_THREADS:
            return False
        self._idle.append(thread)
        if self._closed:  # `shutdown` ran since the check above
            self._end_idle()
        return True

    def _end_idle(self) -> None:
        while self._idle:
            self._idle.pop().give(None, _nothing)


class _Thread:
    """One thread, which runs syncs until it is given None.

    Args:
        keep: called after each sync; returns whether to wait for another one.
    """

    def __init__(self, keep: Callable[[_Thread], bool]) -> None:
        self._keep = keep
        self._given = threading.Lock()
        self._given.acquire()
        self._work: tuple[Callable[[], None] | None, Callable[[], None]] = (None, _nothing)
        threading.Thread(target=self._run, name="dledger-syncer", daemon=True).start()

    def give(self, sync: Callable[[], None] | None, told: Callable[[], None]) -> None:
        """Run `sync`, then `told`. Only for a new or idle thread."""
        self._work = sync, told
        self._given.release()

    def _run(self) -> None:
        kept = True
        while kept:
            self._given.acquire()
            sync, told = self._work
            if sync is None:
                return
            sync()
            # Become idle before the call: the loop may then give this thread the next sync at once.
            kept = self._keep(self)
            told()


def _nothing() -> None:
    """Do nothing: the sync itself reports its end."""
