"""Work that blocks, and where it is done so that the event loop goes on meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar, TypeVarTuple, Unpack

import trio

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


class RunBlocking(Protocol):
    """Does a piece of blocking work beside the event loop; its result, or what it raised."""

    async def __call__(
        self, work: Callable[[Unpack[Arguments]], Result], /, *arguments: *Arguments
    ) -> Result:
        """Wait until the work is done. Cancelling does not cut it short."""
        ...


async def in_a_thread(
    work: Callable[[Unpack[Arguments]], Result], /, *arguments: *Arguments
) -> Result:
    """A RunBlocking for processes; a simulation does the work itself, after some virtual time.

    Each call has a thread of its own, outside of trio's bound for the whole process: groups whose
    disk hangs would use that up, and the application's calls with them. A group makes a handful of
    these calls at a time at most, one from each of its tasks.
    """
    one = trio.CapacityLimiter(1)
    return await trio.to_thread.run_sync(work, *arguments, limiter=one)


IN_A_THREAD: RunBlocking = in_a_thread
