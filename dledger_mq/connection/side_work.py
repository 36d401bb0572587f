"""Computations that grow with users' messages: done in threads, so that the loop stays free."""

from collections.abc import Callable
from typing import Final, Protocol, TypeVar, TypeVarTuple, Unpack

import trio

from dledger.waits.blocking_work import in_a_thread
from dledger_mq.received_message import BodyCompressed

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")
Read_co = TypeVar("Read_co", covariant=True)

# Threads of one client. zlib releases the GIL, and a machine with more than two processors still
# has some left for the application's own work.
MOST_THREADS: Final = 2


class SideWork:
    """Runs computations of one client in a few threads."""

    def __init__(self) -> None:
        self._places = trio.CapacityLimiter(MOST_THREADS)

    async def run(
        self, work: Callable[[Unpack[Arguments]], Result], *arguments: *Arguments
    ) -> Result:
        """Run `work` in a thread, once one is free. Cancelling does not interrupt it."""
        async with self._places:
            return await in_a_thread(work, *arguments)


class Reading(Protocol[Read_co]):
    """Decodes an answer. Raises BodyCompressed if a body is compressed and `inflates` is false."""

    def __call__(self, *, inflates: bool) -> Read_co: ...


async def read_beside(side_work: SideWork, read: Reading[Read_co]) -> Read_co:
    """Decode an answer here, or in a thread if it holds compressed bodies.

    A few bytes may inflate to many: 32 messages of 4 KiB to 128 MiB, which takes half a second. A
    thread costs 0.1 ms, less than inflating the bodies that producers compress.
    """
    try:
        return read(inflates=False)
    except BodyCompressed:
        return await side_work.run(lambda: read(inflates=True))
