"""A trio loop in a thread of its own, for programs that do not use trio."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Generic, TypeVar

import trio

from dledger.errors import NodeClosing, OutcomeUnknown
from dledger.unwrapping_nursery import unwrapping_nursery

T = TypeVar("T")
Opened = TypeVar("Opened")


class CallCutOff(OutcomeUnknown):
    """The loop ended while a call was under way."""

    _template = "the node was closed during the call: its outcome is unknown"


class LoopThread(Generic[Opened]):
    """Keeps one asynchronous context manager open in a loop, and runs calls there.

    Calls come from any thread but the loop's own. Each returns a future. Cancelling it before the
    call has begun prevents the call; later it gives up only the wait.
    """

    def __init__(
        self,
        make: Callable[[], AbstractAsyncContextManager[Opened]],
        name: str,
        *,
        closed: Callable[[], BaseException] = NodeClosing,
        cut_off: Callable[[], BaseException] = CallCutOff,
    ) -> None:
        self._make = make
        self._closed = closed
        self._cut_off = cut_off
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._opening: Future[Opened] = Future()
        self._ended: BaseException | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._nursery: trio.Nursery | None = None
        self._stop = trio.CancelScope()
        self._calls: set[Future[Any]] = set()  # those that have no answer yet
        self._ends: list[Callable[[], None]] = []

    def at_end(self, told: Callable[[], None]) -> None:
        """Call `told` in the loop's thread when the loop has ended."""
        self._ends.append(told)

    def open(self) -> Opened:
        """Start the thread; return the context manager's value. Raises its errors."""
        self._thread.start()
        try:
            return self._opening.result()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Leave the context manager and wait for the thread. Raises the error that ended it."""
        if self._token is not None:
            self.soon(self._stop.cancel)
        self._thread.join()
        if self._ended is not None:
            raise self._ended

    def soon(self, function: Callable[[], object]) -> bool:
        """Run a function in the loop's thread, soon; return whether the loop still runs."""
        assert self._token is not None
        try:
            self._token.run_sync_soon(function)
        except trio.RunFinishedError:
            return False
        return True

    def submit(self, call: Callable[[], Awaitable[T]]) -> Future[T]:
        """Begin a call in the loop."""
        future: Future[T] = Future()
        self._calls.add(future)
        future.add_done_callback(self._calls.discard)
        if not self.soon(lambda: self._start(call, future)):
            answer(future, self.gone())
        return future

    @contextmanager
    def keep_open(self, make: Callable[[], AbstractAsyncContextManager[T]]) -> Iterator[T]:
        """Keep another context manager open in the loop during a `with` block."""
        opening: Future[T] = Future()
        leave = trio.Event()

        async def hold() -> None:
            async with make() as opened:
                opening.set_result(opened)
                await leave.wait()

        def not_opened(holding: Future[None]) -> None:
            if not opening.done():
                opening.set_exception(holding.exception())

        holding = self.submit(hold)
        holding.add_done_callback(not_opened)
        opened = opening.result()
        try:
            yield opened
        finally:
            self.soon(leave.set)
            holding.result()

    def gone(self) -> BaseException:
        """The error for calls after the loop's end."""
        return self._ended or self._closed()

    # --- in the loop's thread -------------------------------------------------------------------

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:  # raised by `open` or `close` of the thread that opened it
            if self._opening.done():
                self._ended = error
            else:
                self._opening.set_exception(error)
        for future in list(self._calls):
            answer(future, self._cut_off())
        for told in self._ends:
            told()

    async def _main(self) -> None:
        with self._stop:
            async with self._make() as opened, unwrapping_nursery() as nursery:
                self._nursery = nursery
                self._token = trio.lowlevel.current_trio_token()
                self._opening.set_result(opened)
                try:
                    await trio.sleep_forever()
                finally:
                    self._nursery = None  # no more calls

    def _start(self, call: Callable[[], Awaitable[T]], future: Future[T]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        if self._nursery is None or self._stop.cancel_called:
            future.set_exception(self._closed())
            return
        self._nursery.start_soon(self._carry_out, call, future)

    async def _carry_out(self, call: Callable[[], Awaitable[T]], future: Future[T]) -> None:
        try:
            result = await call()
        except trio.Cancelled:
            answer(future, self._cut_off())
            raise
        except Exception as error:
            answer(future, error)
        else:
            future.set_result(result)


def answer(future: Future[Any], error: BaseException) -> None:
    """Set the error of a call, unless it is answered or cancelled already."""
    try:
        future.set_exception(error)
    except InvalidStateError:
        return
