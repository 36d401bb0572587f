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


# Processes do it in threads; a simulation does it itself, after some virtual time.
IN_A_THREAD: RunBlocking = trio.to_thread.run_sync
