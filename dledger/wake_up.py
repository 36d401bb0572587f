"""A wake-up for a task that works in rounds."""

from __future__ import annotations

import trio


class WakeUp:
    """Wakes one task that works in rounds. A `set` during a round is kept for the next wait.

    A `trio.Event` stays set, so a loop has to make a new one for each round, and loses a `set` if
    it makes it too late. This one is reset by the wait itself, before the round begins. Several
    tasks that wait for the same condition use a `trio.lowlevel.ParkingLot` and check the condition
    again: here the first task would reset it for the others.
    """

    __slots__ = ("_is_set", "_waiting")

    def __init__(self) -> None:
        self._is_set = False
        self._waiting = trio.lowlevel.ParkingLot()

    def set(self) -> None:
        """Wake the task, or have its next wait end at once."""
        self._is_set = True
        self._waiting.unpark_all()

    async def wait(self) -> None:
        """Wait until `set` was called since the last wait ended. A cancelled wait takes nothing.

        Raises:
            trio.BusyResourceError: another task waits.
        """
        if self._waiting:
            raise trio.BusyResourceError("another task waits for this wake-up")
        if self._is_set:
            await trio.lowlevel.checkpoint()
        else:
            await self._waiting.park()
        self._is_set = False
