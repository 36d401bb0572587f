"""Limits the share of the event loop's time that clients get.

One task works on what clients have sent, in slices of a few milliseconds. Between two slices the
loop does everything else: a member's traffic with its peers, its disk, its timers. In a slice the
connections take turns, each for a millisecond, and so does work that is too long for one turn; what
stands in line alone has the whole slice. So a flood of requests, or of connections, only makes
answers late.

A separate poll watches the connections, of which the loop sees one descriptor: ten thousand that
are readable at once wake one task, not ten thousand.
"""

import logging
import os
import select
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Final, Protocol, TypeVar

import trio

_log = logging.getLogger(__name__)

# The time that clients' work holds the loop at once. A message from member to member waits for one
# slice at each end; with 10 ms, a round trip stays far below the heartbeat interval (100 ms). It is
# long enough for what 64 senders sent on one connection, with signatures to check: what a slice
# leaves over needs a write, a sync and a round trip to the members of its own.
SLICE_S: Final = 0.010

# One turn in a slice: some 64 small requests. Shorter turns would break up batches that came in one
# read; with longer ones a ping would wait that long for each other connection.
TURN_S: Final = 0.001

# Readable connections taken at once; the next slice finds others. Each may turn out to be closed,
# and the clean-up tasks of a closed one take a fraction of a millisecond.
_READY_AT_ONCE: Final = 64

# What tasks that are resumed in one slice may cost: their work is not timed. A task that does a TLS
# handshake, or relays a client, costs more than one that reads what has come.
_COST_A_SLICE: Final = 16
TURN_COST: Final = 4
READ_COST: Final = 1

T = TypeVar("T")


class Work(Protocol):
    def work(self, until: float) -> bool:
        """Do a part: at least one step, and more until the time `until` of `now`.

        It must not raise. Returns whether there is more to do.
        """
        ...


# The clock of turns, in seconds.
now = time.perf_counter


class ClientWork:
    """Takes turns with the work of clients. `run` must run; all else is synchronous."""

    def __init__(self) -> None:
        self._line: deque[Work] = deque()
        self._ready: dict[int, Callable[[], None]] = {}  # by descriptor
        self._readers: dict[int, _WaitingTask] = {}  # tasks among them
        self._resources = ExitStack()
        self._poll = self._resources.enter_context(select.epoll())
        # Wakes the task for work that does not come from a connection.
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._resources.callback(os.close, self._bell)
        self._poll.register(self._bell, select.EPOLLIN)
        self._is_waiting = False
        self._is_closed = False
        self._cost_of_slice = 0

    def close(self) -> None:
        """Release the descriptors. Waiting and later work is dropped."""
        self._is_closed, self._is_waiting = True, False
        for work in (*self._line, *self._readers.values()):
            if isinstance(work, _WaitingTask):
                work.work(0)
        self._line.clear()
        self._ready.clear()
        self._resources.close()

    def add(self, work: Work) -> None:
        """Put `work` in line. The caller must not add it twice."""
        if self._is_closed:
            return
        self._line.append(work)
        if self._is_waiting:
            self._is_waiting = False
            os.eventfd_write(self._bell, 1)

    def later(self, what: str, steps: Iterator[object]) -> None:
        """Take `steps` one by one, in turns.

        Args:
            what: names them in the log, if one fails; then the rest is dropped.
            steps: each step takes a millisecond at most; a generator yields after each.
        """
        self.add(_Steps(what, steps))

    def begin(self, what: str, steps: Iterator[object]) -> None:
        """Take `steps` now, for as long as a turn, and the rest as `later` does."""
        begun = _Steps(what, steps)
        if begun.work(now() + TURN_S):
            self.add(begun)

    def each(self, what: str, items: Iterable[T], do: Callable[[T], None]) -> None:
        """Call `do` for each of `items`, in turns; an error is logged, and affects its item alone.

        Args:
            what: names the calls in the log.
            items: each call takes a millisecond at most.
            do: the call.
        """
        self.begin(what, _calls(what, items, do))

    async def turn(self) -> None:
        """Wait for a turn. It lasts until the calling task next waits."""
        if self._is_closed:
            await trio.lowlevel.checkpoint()
            return
        waiting = _WaitingTask(self, TURN_COST)
        self.add(waiting)
        await waiting.wait()

    async def readable(self, descriptor: int, cost: int = READ_COST) -> None:
        """Wait for a turn in which a descriptor is readable, or until `close`. One task waits for
        it at a time.
        """
        if self._is_closed:
            await trio.lowlevel.wait_readable(descriptor)
            return
        waiting = _WaitingTask(self, cost)

        def ready() -> None:
            self.unwatch(descriptor)
            self.add(waiting)

        self.watch(descriptor, ready)
        self._readers[descriptor] = waiting
        try:
            await waiting.wait()
        finally:
            del self._readers[descriptor]
            self.unwatch(descriptor)

    def watch(self, descriptor: int, ready: Callable[[], None]) -> None:
        """Call `ready` in each slice in which a descriptor is readable, until `unwatch`."""
        if self._is_closed:
            return
        self._ready[descriptor] = ready
        self._poll.register(descriptor, select.EPOLLIN)

    def unwatch(self, descriptor: int) -> None:
        if self._ready.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    async def run(self) -> None:
        """Take turns, until cancelled; then release the descriptors."""
        try:
            while True:
                if self._line:
                    await trio.lowlevel.checkpoint()
                else:
                    self._is_waiting = True
                    await trio.lowlevel.wait_readable(self._poll)
                    self._is_waiting = False
                self._slice()
        finally:
            self.close()

    def _slice(self) -> None:
        for descriptor, _events in self._poll.poll(0, _READY_AT_ONCE):
            if descriptor == self._bell:
                os.eventfd_read(self._bell)
            elif (ready := self._ready.get(descriptor)) is not None:
                ready()
        line = self._line
        self._cost_of_slice = 0
        at = now()
        end = at + SLICE_S
        while line and at < end and self._cost_of_slice < _COST_A_SLICE:
            work = line.popleft()
            # A turn that ends early would cut a batch in two, and connections that become readable
            # meanwhile are found after the slice in any case.
            if work.work(at + TURN_S if line else end):
                line.append(work)
            at = now()

    def note_task(self, cost: int) -> None:
        """Count a task that was resumed in this slice."""
        self._cost_of_slice += cost


class _Steps:
    def __init__(self, what: str, steps: Iterator[object]) -> None:
        self._what = what
        self._steps = steps

    def work(self, until: float) -> bool:
        try:
            return take_steps(self._steps, until)
        except Exception:
            _log.exception("%s failed, and ends here", self._what)
            return False


def take_steps(steps: Iterator[object], until: float) -> bool:
    """Take one step, and more until a time of `now`; return whether there may be more."""
    return any(now() >= until for _step in steps)


def _calls(what: str, items: Iterable[T], do: Callable[[T], None]) -> Iterator[None]:
    for item in items:
        try:
            do(item)
        except Exception:
            _log.exception("%s: one of them failed", what)
        yield


class _WaitingTask:
    def __init__(self, owner: ClientWork, cost: int) -> None:
        self._owner = owner
        self._cost = cost
        self._task: trio.lowlevel.Task | None = None

    async def wait(self) -> None:
        def abort(_raise_cancel: Callable[[], object]) -> trio.lowlevel.Abort:
            self._task = None
            return trio.lowlevel.Abort.SUCCEEDED

        self._task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(abort)

    def work(self, until: float) -> bool:
        if self._task is not None:
            self._owner.note_task(self._cost)
            trio.lowlevel.reschedule(self._task)
            self._task = None
        return False
