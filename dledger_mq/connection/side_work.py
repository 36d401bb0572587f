"""Work that grows with users' messages: done beside the loop, which belongs to the network."""

from collections.abc import Callable
from typing import Final, Protocol, TypeVar, TypeVarTuple, Unpack

import trio

from dledger.waits.blocking_work import in_a_thread
from dledger_mq.received_message import BodyCompressed

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")
Read_co = TypeVar("Read_co", covariant=True)

# Threads of one client at a time. zlib lets others run meanwhile, and a machine with more than two
# processors still has some left for the application's own work.
MOST_THREADS: Final = 2


class SideWork:
    """The threads of one client, each of which does one piece of work after the other."""

    def __init__(self) -> None:
        self._places = trio.CapacityLimiter(MOST_THREADS)

    async def run(
        self, work: Callable[[Unpack[Arguments]], Result], *arguments: *Arguments
    ) -> Result:
        """Wait for a thread, and until the work is done there. Cancelling does not interrupt it."""
        async with self._places:
            return await in_a_thread(work, *arguments)


class Reading(Protocol[Read_co]):
    """Reads an answer."""

    def __call__(self, *, inflates: bool) -> Read_co:
        """Raises BodyCompressed if a body is compressed, and is not to be inflated."""
        ...


async def read_beside(side_work: SideWork, read: Reading[Read_co]) -> Read_co:
    """Read an answer here; in a thread if it holds compressed bodies.

    Few bytes may be inflated to many: 32 messages of 4 KiB to 128 MiB, which takes half a second.
    To hand over to a thread takes 0.1 ms, less than to inflate what producers compress.
    """
    try:
        return read(inflates=False)
    except BodyCompressed:
        return await side_work.run(lambda: read(inflates=True))
