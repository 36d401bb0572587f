"""A value that comes while its waiter is interrupted is for the next one that waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from typing import Any, cast

import pytest

from dledger.asyncio_forms import AsyncioIterator
from dledger.forms import BlockingIterator, Coming
from dledger.loop_thread import LoopThread


class InterruptedOnce(Future[str]):
    """Ctrl-C comes when the value is there, and before its waiter has it."""

    is_interrupted = False

    def result(self, timeout: float | None = None) -> str:
        value = super().result(timeout)
        if not self.is_interrupted:
            self.is_interrupted = True
            raise KeyboardInterrupt
        return value


class Loop:
    """Makes futures that are ended by hand, in the place of a loop in a thread."""

    def __init__(self, make: Callable[[], Future[str]]) -> None:
        self._make = make
        self.made: list[Future[str]] = []

    def check_waitable(self) -> None:
        pass

    def submit(self, _call: Callable[[], Awaitable[str]]) -> Future[str]:
        self.made.append(self._make())
        return self.made[-1]


def coming(loop: Loop) -> Coming[str]:
    async def values() -> AsyncIterator[str]:
        yield "never asked for"

    return Coming(cast(LoopThread[Any], loop), values)


def done(outcome: str | BaseException, future: Future[str]) -> Future[str]:
    if isinstance(outcome, str):
        future.set_result(outcome)
    else:
        future.set_exception(outcome)
    return future


def test_ctrl_c_that_comes_with_a_value_does_not_lose_it() -> None:
    outcomes = iter(["first", "second"])
    iterator = BlockingIterator(coming(Loop(lambda: done(next(outcomes), InterruptedOnce()))))
    with pytest.raises(KeyboardInterrupt):
        next(iterator)
    assert next(iterator) == "first"
    with pytest.raises(KeyboardInterrupt):
        next(iterator)
    assert next(iterator) == "second"


async def cancelled_when_done(iterator: AsyncioIterator[str], loop: Loop) -> None:
    waiter = asyncio.ensure_future(anext(iterator))
    await asyncio.sleep(0)
    done("first", loop.made[0])
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert await anext(iterator) == "first"


def test_a_cancellation_that_comes_with_a_value_does_not_lose_it() -> None:
    loop = Loop(Future)
    asyncio.run(cancelled_when_done(AsyncioIterator(coming(loop)), loop))


def test_behind_an_error_of_the_iterator_the_next_value_is_asked_for() -> None:
    outcomes: list[str | BaseException] = [ValueError("no"), "second", StopAsyncIteration()]
    left = iter(outcomes)
    iterator = BlockingIterator(coming(Loop(lambda: done(next(left), Future()))))
    with pytest.raises(ValueError, match="no"):
        next(iterator)
    assert list(iterator) == ["second"]
