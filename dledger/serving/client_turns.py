"""The share of the event loop's time that the clients of the log get, whatever they send.

Between two turns the loop does everything else: a member's traffic with its peers, its disk, its
timers. So a flood of requests, or of connections, makes answers late, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar, TypeVarTuple

import trio

# How long requests of clients keep the loop at once, all connections together: some 100 small ones,
# so that appends are still written to the disk by the hundred. The one that is taken up last may
# exceed it. In one round of the loop a turn begins at most, and another may end.
TURN_S: Final = 0.002

Arguments = TypeVarTuple("Arguments")
T = TypeVar("T")


def now() -> float:
    """The clock of turns, in seconds: the loop's, so that a simulated loop decides by its own."""
    return trio.current_time()


class ClientTurns:
    """What clients may still take of the loop's time before all else comes."""

    def __init__(self) -> None:
        self._used_s = 0.0
        self._line = trio.StrictFIFOLock()

    async def take(self, function: Callable[[*Arguments], T], *args: *Arguments) -> T:
        """Call a function when it is the caller's turn; raises what it raises.

        When a turn is used up, those who want more of it stand in line, and one of them begins the
        next turn in each round of the loop.
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
    """The turns of this loop, which all its members share."""
    try:
        return _turns.get()
    except LookupError:
        turns = ClientTurns()
        _turns.set(turns)
        return turns
