"""Objects that open and close in another thread, as context managers of asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, TypeVar

from dledger.loop_thread import LoopThread

T = TypeVar("T")


def opened_loop(loop: LoopThread[T]) -> AbstractAsyncContextManager[T]:
    return held_open(loop.begin, loop.end, loop.ended)


def kept_open(
    loop: LoopThread[Any], make: Callable[[], AbstractAsyncContextManager[T]]
) -> AbstractAsyncContextManager[T]:
    """Keep a trio context manager open in a loop during a block."""
    loop.check_waitable()
    block = loop.hold(make)
    return held_open(lambda: block.opening, block.leave, block.holding)


@asynccontextmanager
async def held_open(
    begin: Callable[[], Future[T]], end: Callable[[], object], ended: Future[None]
) -> AsyncIterator[T]:
    """Open and close an object by futures, without blocking asyncio's loop.

    A task that is cancelled meanwhile still waits until the object is open and closed again, so
    that nothing keeps running. If the object closes by itself, the block is cancelled, as in trio.

    Args:
        begin: opens the object.
        end: asks it to close.
        ended: is done once it has closed, with its error if any, which the block then raises.
    """
    beginning = asyncio.wrap_future(begin())
    try:
        opened = await _uncancelled(beginning)
    except asyncio.CancelledError:
        if beginning.exception() is None:
            end()
            await _uncancelled(asyncio.wrap_future(ended))
        raise
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    runs, is_cancelled = True, False

    def cancel() -> None:
        nonlocal is_cancelled
        if runs:
            is_cancelled = True
            task.cancel()

    def closed_by_itself(_ended: object) -> None:
        with suppress(RuntimeError):  # asyncio's loop is closed already
            loop.call_soon_threadsafe(cancel)

    ended.add_done_callback(closed_by_itself)
    try:
        yield opened
    finally:
        runs = False
        if is_cancelled:
            task.uncancel()
        end()
        await _uncancelled(asyncio.wrap_future(ended))


async def _uncancelled(work: asyncio.Future[T]) -> T:
    """Wait without interruption; a cancellation of the waiting task is raised afterwards."""
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait({work})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        work.exception()  # retrieved, so that asyncio does not log it as never retrieved
        raise cancelled
    return work.result()
