"""Runs blocking work beside the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar, TypeVarTuple, Unpack

import trio

from dledger.refused_threads import NO_THREAD
from dledger.system_refusals import Kind, is_of

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


class RunBlocking(Protocol):
    """Runs a piece of blocking work beside the event loop; returns its result, or raises."""

    async def __call__(
        self, work: Callable[[Unpack[Arguments]], Result], /, *arguments: *Arguments
    ) -> Result:
        """Wait until the work is done. Cancelling does not interrupt it."""
        ...


async def in_a_thread(
    work: Callable[[Unpack[Arguments]], Result], /, *arguments: *Arguments
) -> Result:
    """Run blocking work in a thread. A simulation does the work itself, after some virtual time.

    Each call has a thread of its own, outside trio's limit for the whole process: groups with a
    hung disk would use up that limit and block the application's calls. A group makes at most a
    handful of these calls at a time, one from each of its tasks.

    If the system starts no thread, the work runs on the event loop.
    """
    one = trio.CapacityLimiter(1)
    began = False

    def begin() -> Result:
        nonlocal began
        began = True
        return work(*arguments)

    try:
        return await trio.to_thread.run_sync(begin, limiter=one)
    except RuntimeError as error:
        if began or not is_of(Kind.THREADS, error):
            raise
        NO_THREAD.tell(error)
    # Holding the loop is better than ending the node.
    await trio.lowlevel.checkpoint()
    return work(*arguments)


IN_A_THREAD: RunBlocking = in_a_thread
