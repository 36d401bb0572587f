"""Carries calls out in their form, and waits for them no longer than a limit."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Final, TypeVar

T = TypeVar("T")

# No call of the matrix is asked to wait for so long.
LIMIT_S: Final = 20.0


class Hangs(Exception):
    """A call that has not ended in time; its text is the stack of where it waits."""


def finish(make: Callable[[], Any], values: int = 1) -> None:
    """Make a plain call, and take it to its end: the first `values` of what it iterates over."""
    result = make()
    if isinstance(result, Future):
        result.result(LIMIT_S)
    elif hasattr(result, "__enter__"):
        with result:
            pass
    elif hasattr(result, "__next__"):
        for _ in range(values):
            next(result)


async def finish_soon(make: Callable[[], Any], values: int = 1) -> None:
    """As `finish`, for the calls of trio and asyncio, in their loop."""
    result = make()
    if hasattr(result, "__await__"):
        result = await result
    elif hasattr(result, "__aenter__"):
        async with result:
            pass
    if hasattr(result, "__anext__"):
        for _ in range(values):
            await anext(result)


def in_thread(work: Callable[[], T]) -> Future[T]:
    """Do work in a thread that keeps no program from ending."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    thread = threading.Thread(target=run, daemon=True)
    future.thread = thread  # type: ignore[attr-defined]
    thread.start()
    return future


def outcomes(begun: Iterable[Future[Any]], limit_s: float = LIMIT_S) -> list[BaseException | None]:
    """What each call has raised, None if it has returned; Hangs of those that have not ended."""
    until = time.monotonic() + limit_s
    return [_outcome(future, until) for future in begun]


def _outcome(future: Future[Any], until: float) -> BaseException | None:
    try:
        return future.exception(max(until - time.monotonic(), 0.001))
    except TimeoutError:
        thread = getattr(future, "thread", None)
        frame = sys._current_frames().get(thread.ident) if thread is not None else None
        stack = "".join(traceback.format_stack(frame)) if frame is not None else "in its loop"
        return Hangs(stack)
    except BaseException as error:  # the future was cancelled
        return error


class AsyncioThread:
    """An asyncio loop in a thread, with the calls of LoopThread that the matrix needs."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True, name="asyncio form")

    def __enter__(self) -> AsyncioThread:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIMIT_S)
        self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    @contextmanager
    def kept_open(self, make: Callable[[], AbstractAsyncContextManager[T]]) -> Iterator[T]:
        """Keep a context manager open in one task of the loop during a block."""
        opening: Future[T] = Future()
        leave = asyncio.Event()

        async def keep() -> None:
            async with make() as opened:
                opening.set_result(opened)
                await leave.wait()

        kept = self.submit(keep)

        def not_opened(ended: Future[Any]) -> None:
            if not opening.done():
                opening.set_exception(ended.exception())

        kept.add_done_callback(not_opened)
        try:
            yield opening.result(LIMIT_S)
        finally:
            self._loop.call_soon_threadsafe(leave.set)
            kept.result(LIMIT_S)

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        """Run a coroutine function in the loop."""
        return asyncio.run_coroutine_threadsafe(call(), self._loop)
