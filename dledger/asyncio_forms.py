"""Derives the asyncio form of an API from its trio form. `dledger.forms` explains how."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar

from dledger.asyncio_block import kept_open
from dledger.forms import Coming, Method, like
from dledger.loop_thread import LoopThread

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def awaits(method: Method[P, Awaitable[R]]) -> Method[P, Coroutine[Any, Any, R]]:
    """Derive a coroutine method for asyncio from a trio method.

    Cancelling it gives up the wait, not the call.
    """

    @like(method)
    async def call(form: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        loop: LoopThread[Any] = form._loop
        return await carried_out(loop, partial(method, form._inner, *args, **kwargs))

    return call


def iterates_in_asyncio(method: Method[P, AsyncIterator[R]]) -> Method[P, AsyncIterator[R]]:
    """Derive a method that returns an asyncio iterator. A cancelled wait loses no value."""

    @like(method)
    def call(form: Any, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[R]:
        loop: LoopThread[Any] = form._loop
        loop.check_waitable()
        return AsyncioIterator(Coming(loop, partial(method, form._inner, *args, **kwargs)))

    return call


def opens_in_asyncio(
    method: Method[P, AbstractAsyncContextManager[T]], form: Callable[[LoopThread[Any], T], R]
) -> Method[P, AbstractAsyncContextManager[R]]:
    """Derive a method that keeps a trio context manager open during an `async with` block."""

    @like(method)
    @asynccontextmanager
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[R]:
        loop: LoopThread[Any] = self._loop
        async with kept_open(loop, partial(method, self._inner, *args, **kwargs)) as opened:
            yield form(loop, opened)

    return call


class AsyncioIterator(Generic[R]):
    def __init__(self, coming: Coming[R]) -> None:
        self._coming = coming

    def __aiter__(self) -> AsyncioIterator[R]:
        return self

    async def __anext__(self) -> R:
        try:
            value = await given_up(self._coming.next())
        except BaseException as error:
            self._coming.failed(error)
            raise
        self._coming.taken()
        return value


async def carried_out(loop: LoopThread[Any], call: Callable[[], Awaitable[R]]) -> R:
    """Carry out a call in the loop, and wait for its result in asyncio."""
    loop.check_waitable()
    return await given_up(loop.submit(call))


def iterator_in_asyncio(loop: LoopThread[Any], values: AsyncIterator[R]) -> AsyncioIterator[R]:
    """Return an asyncio iterator over one of the loop's, for `opens_in_asyncio`."""
    return AsyncioIterator(Coming(loop, lambda: values))


async def given_up(future: Future[R]) -> R:
    """Wait for a future in asyncio. Cancelling gives up the wait; a call that has not begun never
    will.
    """
    return await asyncio.wrap_future(future)
