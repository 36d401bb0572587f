"""What begins and ends in another thread, as a context manager of asyncio's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, TypeVar

from dledger.loop_thread import LoopThread

T = TypeVar("T")


def opened_loop(loop: LoopThread[T]) -> AbstractAsyncContextManager[T]:
    """Run a loop's thread during a block."""
    return held_open(loop.begin, loop.end, loop.ended)


def kept_open(
    loop: LoopThread[Any], make: Callable[[], AbstractAsyncContextManager[T]]
) -> AbstractAsyncContextManager[T]:
    """Keep a context manager of trio's open in a loop during a block."""
    loop.check_waitable()
    block = loop.hold(make)
    return held_open(lambda: block.opening, block.leave, block.holding)


@asynccontextmanager
async def held_open(
    begin: Callable[[], Future[T]], end: Callable[[], object], ended: Future[None]
) -> AsyncIterator[T]:
    """Begin and end something by futures, beside asyncio's loop.

    A task that is cancelled meanwhile still waits until it has begun and ended again, so that
    nothing of it runs on. If it ends by itself, the block is cancelled, as in trio.

    Args:
        begin: begins it.
        end: asks it to end.
        ended: is done when it has ended, and has the error of that, which the block then raises.
    """
    beginning = asyncio.wrap_future(begin())
    try:
        opened = await _to_the_end(beginning)
    except asyncio.CancelledError:
        if beginning.exception() is None:
            end()
            await _to_the_end(asyncio.wrap_future(ended))
        raise
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    runs, is_cancelled = True, False

    def cancel() -> None:
        nonlocal is_cancelled
        if runs:
            is_cancelled = True
            task.cancel()

    def ended_by_itself(_ended: object) -> None:
        with suppress(RuntimeError):  # asyncio's loop has ended before
            loop.call_soon_threadsafe(cancel)

    ended.add_done_callback(ended_by_itself)
    try:
        yield opened
    finally:
        runs = False
        if is_cancelled:
            task.uncancel()
        end()
        await _to_the_end(asyncio.wrap_future(ended))


async def _to_the_end(work: asyncio.Future[T]) -> T:
    """Wait for what cannot be interrupted; a cancellation of the waiting task comes afterwards."""
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait({work})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        work.exception()  # is looked at, so that asyncio does not report it as forgotten
        raise cancelled
    return work.result()
