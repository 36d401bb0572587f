"""Limits the share of the event loop's time that clients of the log get.

Between two turns the loop does everything else: a member's traffic with its peers, its disk, its
timers. So a flood of requests, or of connections, only makes answers late.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar, TypeVarTuple

import trio

# The time that requests of clients hold the loop at once, all connections together: some 100 small
# ones, so that appends are still written to the disk by the hundred. The last one in a turn may
# exceed it. In one round of the loop at most one turn begins, and another may end.
TURN_S: Final = 0.002

Arguments = TypeVarTuple("Arguments")
T = TypeVar("T")


def now() -> float:
    """Return the loop's time in seconds, so that a simulated loop decides by its own clock."""
    return trio.current_time()


class ClientTurns:
    def __init__(self) -> None:
        self._used_s = 0.0
        self._line = trio.StrictFIFOLock()

    async def take(self, function: Callable[[*Arguments], T], *args: *Arguments) -> T:
        """Call a function when it is the caller's turn; raises what it raises.

        When a turn is used up, callers stand in line, and one of them begins the next turn in each
        round of the loop.
        """
        if self._used_s >= TURN_S:
            async with self._line:  # a checkpoint, as long as the line may be
                self._used_s = 0.0
        began = now()
        try:
            return function(*args)
        finally:
            self._used_s += now() - began


_turns: Final = trio.lowlevel.RunVar[ClientTurns]("dledger client turns")


def client_turns() -> ClientTurns:
    """Return the turns of this loop, which all its members share."""
    try:
        return _turns.get()
    except LookupError:
        turns = ClientTurns()
        _turns.set(turns)
        return turns
