"""Work that grows with users' messages: done beside the loop, which belongs to the network."""

from collections.abc import Callable
from typing import Final, TypeVar, TypeVarTuple, Unpack

import trio

from dledger.waits.blocking_work import in_a_thread

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

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
