"""A trio loop in a thread of its own, for programs that do not write trio."""

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

    def __init__(self) -> None:
        super().__init__("the node was closed during the call: what became of it is not known")


class LoopThread(Generic[Opened]):
    """Keeps one asynchronous context manager open in a loop, and runs calls there.

    Calls come from any thread but the loop's own. Each gives a future; cancelling that before the
    call has begun makes it not begin, later it gives up the wait alone.
    """

    def __init__(self, make: Callable[[], AbstractAsyncContextManager[Opened]], name: str) -> None:
        self._make = make
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._opening: Future[Opened] = Future()
        self._ended: BaseException | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._nursery: trio.Nursery | None = None
        self._stop = trio.CancelScope()
        self._calls: set[Future[Any]] = set()  # those that have no answer yet
        self._ends: list[Callable[[], None]] = []

    def at_end(self, told: Callable[[], None]) -> None:
        """Call that in the loop's thread once there is no loop any more."""
        self._ends.append(told)

    def open(self) -> Opened:
        """Start the thread; what the context manager gave. Raises what it raised."""
        self._thread.start()
        try:
            return self._opening.result()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Leave the context manager and wait for the thread. Raises what ended it by itself."""
        if self._token is not None:
            self.soon(self._stop.cancel)
        self._thread.join()
        if self._ended is not None:
            raise self._ended

    def soon(self, function: Callable[[], object]) -> bool:
        """Run a function in the loop's thread, soon; whether there is still a loop."""
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
        """Keep another context manager open in the loop, for the length of a `with` block."""
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
        """Why there is no loop any more."""
        return self._ended or NodeClosing()

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
            answer(future, CallCutOff())
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
                    self._nursery = None  # it takes no call any more

    def _start(self, call: Callable[[], Awaitable[T]], future: Future[T]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        if self._nursery is None or self._stop.cancel_called:
            future.set_exception(NodeClosing())
            return
        self._nursery.start_soon(_carry_out, call, future)


def answer(future: Future[Any], error: BaseException) -> None:
    """Have a call end with that error, unless it has its answer, or was cancelled, already."""
    try:
        future.set_exception(error)
    except InvalidStateError:
        return


async def _carry_out(call: Callable[[], Awaitable[T]], future: Future[T]) -> None:
    try:
        result = await call()
    except trio.Cancelled:
        answer(future, CallCutOff())
        raise
    except Exception as error:
        answer(future, error)
    else:
        future.set_result(result)
