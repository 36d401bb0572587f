"""A trio loop in a thread of its own, for programs that do not use trio.

All calls of other threads cross here, as futures. Nothing waits for a lock, so a call may come from
a signal handler or a destructor, and only a caller that waits for its result occupies a thread.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Final, Generic, TypeVar
from weakref import WeakSet

import trio

from dledger.call_future import CallFuture, wait_for_all
from dledger.errors import NodeClosing, OutcomeUnknown, Rejected
from dledger.unwrapping_nursery import unwrapping_nursery

T = TypeVar("T")
Opened = TypeVar("Opened")

# If a program ends with its loop open, running calls get this long to finish, and the close gets
# this long again. A supervisor waits for longer before it kills a process.
EXIT_S: Final = 5.0

_FORKED: Final = (
    "it was opened before this process was forked, and its thread stayed in the other one: "
    "open it behind the fork, in each process"
)
_IN_ITS_LOOP: Final = (
    "it would wait for itself: this code runs in the thread of its loop, as callbacks of futures "
    "and state machines do; use a call that returns a future (append_soon, send_soon), or another "
    "thread"
)
_PATCHED: Final = (
    "gevent has replaced threads by its own, which cannot run a loop beside others: do not patch "
    "threads, or use this library in a process without gevent"
)


class CallCutOff(OutcomeUnknown):
    """The loop ended while a call was under way. Its cause is the error that ended it, if any."""

    _template = "the node was closed during the call: its outcome is unknown"


class CallMisplaced(Rejected):
    """A call was made where it could not be answered, for `reason`. Nothing was done."""

    reason: str
    _template = "the call was not made: {reason}"


class LoopThread(Generic[Opened]):
    """Keeps one asynchronous context manager open in a loop, and carries out calls there.

    Calls begin in the order in which they were submitted. Each returns a future. Cancelling it
    prevents a call that has not begun; later it gives up the wait alone. Everything above the line
    "in the loop's thread" may be called in any thread.

    Args:
        make: makes the context manager, in the loop.
        name: of the thread.
        closed: makes the error of calls after the end.
        cut_off: makes the error of calls that the end interrupts.
        misplaced: makes the error of calls that could not be answered, from the reason.

    Attributes:
        is_ending: whether `end` was called; a loop may also end by an error.
        ended: is done when the loop has ended, with its error if any.
    """

    def __init__(
        self,
        make: Callable[[], AbstractAsyncContextManager[Opened]],
        name: str,
        *,
        closed: Callable[[], BaseException] = NodeClosing,
        cut_off: Callable[[], BaseException] = CallCutOff,
        misplaced: Callable[[str], BaseException] = CallMisplaced,
    ) -> None:
        self._make = make
        self._closed = closed
        self._cut_off = cut_off
        self._misplaced = misplaced
        self._process_id = os.getpid()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread_id: int | None = None  # while it runs: another thread may get it afterwards
        self._opening: Future[Opened] = CallFuture()
        self.ended: Future[None] = CallFuture()
        self._ended: BaseException | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._nursery: trio.Nursery | None = None
        self._stop = trio.CancelScope()
        # Calls in their order; their tasks begin in any.
        self._begun: deque[tuple[Callable[[], Awaitable[Any]], Future[Any]]] = deque()
        self._calls: set[Future[Any]] = set()  # those that have no answer yet
        self._blocks: set[Block[Any]] = set()
        self._ends: list[Callable[[], None]] = []
        self.is_ending = False

    # --- opening and closing --------------------------------------------------------------------

    def begin(self) -> Future[Opened]:
        """Start the thread; return a future of the context manager's value."""
        if _is_patched():
            self._opening.set_exception(self._misplaced(_PATCHED))
            self.ended.set_result(None)
            return self._opening
        _left_open.add(self)
        self._thread.start()
        return self._opening

    def end(self) -> Future[None]:
        if self.is_elsewhere:
            mark_ended(self.ended)
        else:
            self.is_ending = True
            self.soon(self._stop.cancel)
        return self.ended

    def open(self) -> Opened:
        """Start the thread, and wait for the context manager's value."""
        opening = self.begin()
        try:
            return opening.result()
        except BaseException:
            self.end()
            raise

    def close(self) -> None:
        """Leave the context manager, and wait. Raises the error that ended the loop."""
        self._settle_end(self.end())

    def at_end(self, told: Callable[[], None]) -> None:
        self._ends.append(told)

    def leave(self, patience_s: float) -> None:
        """End at the program's exit, after waiting up to `patience_s` for running calls."""
        until = time.monotonic() + patience_s
        blocks = list(self._blocks)
        wait_for_all(self._calls.copy() - {block.holding for block in blocks}, patience_s)
        closing = [block.leave() for block in blocks]
        wait_for_all(closing, max(0.0, until - time.monotonic()))
        wait_for_all([self.end()], patience_s)
        mark_ended(self.ended)  # a later close must not wait for a frozen thread

    # --- calls ----------------------------------------------------------------------------------

    def soon(self, function: Callable[[], object]) -> bool:
        """Run a function in the loop's thread, soon; return False if the loop has ended."""
        if self._token is None:
            return False
        try:
            self._token.run_sync_soon(function)
        except trio.RunFinishedError:
            return False
        return True

    def submit(self, call: Callable[[], Awaitable[T]]) -> Future[T]:
        self.check()
        future: Future[T] = self.tracked()
        if not self.soon(lambda: self._start(call, future)):
            answer(future, self.gone())
        return future

    def tracked(self) -> Future[Any]:
        """Return a future that is answered at the loop's end at the latest."""
        future: Future[Any] = CallFuture()
        self._calls.add(future)
        future.add_done_callback(self._calls.discard)
        return future

    def wait(self, call: Callable[[], Awaitable[T]], timeout_s: float | None = None) -> T:
        """Carry out a call in the loop, and wait for its result. Raises TimeoutError."""
        self.check_waitable()
        return self.submit(call).result(timeout_s)

    def hold(self, make: Callable[[], AbstractAsyncContextManager[T]]) -> Block[T]:
        """Enter another context manager in the loop, and keep it open until the block is left."""
        block = Block(self, make)
        self._blocks.add(block)
        block.holding.add_done_callback(lambda _holding: self._blocks.discard(block))
        return block

    @contextmanager
    def kept_open(self, make: Callable[[], AbstractAsyncContextManager[T]]) -> Iterator[T]:
        """Enter another context manager in the loop, and keep it open during a `with` block."""
        self.check_waitable()
        block = self.hold(make)
        try:
            opened = block.opening.result()
        except BaseException:
            block.leave()
            raise
        try:
            yield opened
        finally:
            self._settle_end(block.leave())

    def settle(self, futures: Collection[Future[Any]]) -> None:
        """Wait at the end of a block for these futures.

        It does not wait where they would never be done: in a process that was forked since, with
        patched threads, and in the loop's own thread. A block that is never left ends in any of
        these, when it is garbage-collected.
        """
        is_own_thread = threading.get_ident() == self._thread_id
        if not (self.is_elsewhere or _is_patched() or is_own_thread):
            wait_for_all(futures)

    def _settle_end(self, ending: Future[None]) -> None:
        """Settle the end of a block, and raise its error."""
        self.settle([ending])
        if ending.done():
            ending.result()

    @property
    def is_elsewhere(self) -> bool:
        """Whether this process was forked since, so that the loop runs in the parent."""
        return os.getpid() != self._process_id

    def check(self) -> None:
        """Raise if no call can be answered: this process was forked, or threads were patched
        since.
        """
        if self.is_elsewhere:
            raise self._misplaced(_FORKED)
        if _is_patched():
            raise self._misplaced(_PATCHED)

    def check_waitable(self) -> None:
        """Raise if a wait for a call would never end, as in the loop's own thread."""
        self.check()
        if threading.get_ident() == self._thread_id:
            raise self._misplaced(_IN_ITS_LOOP)

    def gone(self) -> BaseException:
        return self._ended or self._closed()

    def cut_off(self) -> BaseException:
        error = self._cut_off()
        error.__cause__ = self._ended
        return error

    # --- in the loop's thread -------------------------------------------------------------------

    def _run(self) -> None:
        self._thread_id = threading.get_ident()
        try:
            trio.run(self._main)
        except BaseException as error:  # the context manager raised
            if self._opening.done():
                self._ended = error
            else:
                self._opening.set_exception(error)
        for told in self._ends:
            told()
        for future in list(self._calls):
            answer(future, self.cut_off())
        _left_open.discard(self)
        if self._ended is not None:
            answer(self.ended, self._ended)
        mark_ended(self.ended)
        self._thread_id = None

    async def _main(self) -> None:
        with self._stop:
            self._token = trio.lowlevel.current_trio_token()
            if self.is_ending:  # `end` was called before there was a token
                self._stop.cancel()
            async with self._make() as opened, unwrapping_nursery() as nursery:
                self._nursery = nursery
                self._opening.set_result(opened)
                try:
                    await trio.sleep_forever()
                finally:
                    self._nursery = None  # no more calls

    def _start(self, call: Callable[[], Awaitable[T]], future: Future[T]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        if self._nursery is None or self.is_ending:
            answer(future, self._closed())
            return
        self._begun.append((call, future))
        self._nursery.start_soon(self._carry_out)

    async def _carry_out(self) -> None:
        # Trio runs new tasks in an order of its own, so whichever runs first takes the oldest call.
        call, future = self._begun.popleft()
        try:
            result = await call()
        except Exception as error:  # a cancelled call is answered by `_run`, which knows the reason
            answer(future, error)
        else:
            future.set_result(result)


class Block(Generic[T]):
    """A context manager that is kept open in a loop. Made by `LoopThread.hold`.

    Attributes:
        opening: has the context manager's value, or the error of its entry.
        holding: ends with the block, and has its error.
    """

    def __init__(
        self, loop: LoopThread[Any], make: Callable[[], AbstractAsyncContextManager[T]]
    ) -> None:
        self._loop = loop
        self._leave = trio.Event()
        self.opening: Future[T] = CallFuture()

        async def hold() -> None:
            async with make() as opened:
                self.opening.set_result(opened)
                await self._leave.wait()

        self.holding = loop.submit(hold)
        self.holding.add_done_callback(self._not_opened)

    def leave(self) -> Future[None]:
        if self._loop.is_elsewhere:
            mark_ended(self.holding)
        else:
            self._loop.soon(self._leave.set)
        return self.holding

    def _not_opened(self, holding: Future[None]) -> None:
        if not self.opening.done():
            self.opening.set_exception(holding.exception())


def answer(future: Future[Any], error: BaseException) -> None:
    """Set the error of a call, unless it is answered or cancelled already."""
    try:
        future.set_exception(error)
    except InvalidStateError:
        return


def mark_ended(ending: Future[None]) -> None:
    """Mark an end as done: the loop does not report it in this process."""
    if not ending.done():
        ending.set_result(None)


def _is_patched() -> bool:
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and monkey.is_module_patched("threading")


_left_open: WeakSet[LoopThread[Any]] = WeakSet()


def _leave_all() -> None:
    """End the loops that a program has left open: daemon threads stop when this returns."""
    for loop in list(_left_open):
        if not (loop.is_elsewhere or _is_patched()):
            loop.leave(EXIT_S)


atexit.register(_leave_all)
