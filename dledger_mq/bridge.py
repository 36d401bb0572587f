"""A trio loop in a thread of its own, for programs that do not use trio."""

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, TypeVar

from dledger.loop_thread import LoopThread
from dledger_mq.consuming.iteration import Iteration
from dledger_mq.consuming.push_consumer import PushConsumer
from dledger_mq.errors import CallMisplaced, ClientClosed, ClosedDuringCall
from dledger_mq.received_message import ReceivedMessage

Opened = TypeVar("Opened")


def loop_for(
    make: Callable[[], AbstractAsyncContextManager[Opened]], what: str
) -> LoopThread[Opened]:
    """Return a thread that keeps the object that `make` returns open in a trio loop.

    Args:
        make: called in the thread.
        what: "producer" or "consumer", for errors and the thread's name.
    """
    return LoopThread(
        make,
        f"dledger-mq {what}",
        closed=partial(ClientClosed, what),
        cut_off=ClosedDuringCall,
        misplaced=CallMisplaced,
    )


class BridgedIteration:
    """An `Iteration` that runs in the consumer's loop, as futures for other threads."""

    def __init__(self, loop: LoopThread[Any], consumer: PushConsumer) -> None:
        self._loop = loop
        self._consumer = consumer
        self._iteration: Iteration | None = None
        self._coming: Future[ReceivedMessage | None] | None = None

    def begin(self) -> Future[None]:
        """Begin the iteration, which the first `coming` does otherwise. Raises NotIterable."""
        return self._loop.submit(self._begin)

    def coming(self) -> Future[ReceivedMessage | None]:
        """Acknowledge the current message; return a future of the next one, None at the end.

        Until `arrived` is called, this returns the same future: a message that came while its
        waiter was interrupted is for the next call, and must not be acknowledged before.
        """
        self._loop.check_waitable()
        if self._coming is None:
            self._coming = self._loop.submit(self._next)
        return self._coming

    def arrived(self) -> None:
        """Note that the caller has the result of `coming`."""
        self._coming = None

    async def acknowledge(self) -> None:
        if self._coming is None and self._iteration is not None:  # else `coming` has done it
            self._iteration.acknowledge()

    async def give_back(self) -> None:
        if self._coming is None and self._iteration is not None:
            await self._iteration.give_back()

    async def _begin(self) -> None:
        self._iteration = aiter(self._consumer)

    async def _next(self) -> ReceivedMessage | None:
        if self._iteration is None:
            await self._begin()
        assert self._iteration is not None
        return await anext(self._iteration, None)
