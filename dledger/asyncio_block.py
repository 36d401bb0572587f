"""A blocking context manager for programs that run asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from typing import TypeVar

T = TypeVar("T")


@asynccontextmanager
async def entered_in_thread(block: AbstractContextManager[T]) -> AsyncIterator[T]:
    """Enter and leave a blocking context manager in a thread, beside asyncio's loop.

    A task that is cancelled meanwhile still waits until the block is entered and left again, so
    that nothing of it runs on.
    """
    entering = asyncio.ensure_future(asyncio.to_thread(block.__enter__))
    try:
        opened = await _to_the_end(entering)
    except asyncio.CancelledError:
        if entering.exception() is None:
            await _to_the_end(asyncio.ensure_future(asyncio.to_thread(_leave, block)))
        raise
    try:
        yield opened
    finally:
        await _to_the_end(asyncio.ensure_future(asyncio.to_thread(_leave, block)))


def _leave(block: AbstractContextManager[T]) -> None:
    block.__exit__(None, None, None)


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
