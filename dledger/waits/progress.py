"""Wakes all tasks that wait for a node's progress; raises in them when the node stops."""

from __future__ import annotations

import trio

from dledger.errors import NodeClosing


class Progress:
    """A condition that many tasks wait for. Each task checks its own condition when woken."""

    def __init__(self) -> None:
        self._waiting = trio.lowlevel.ParkingLot()
        self._closed = False

    async def wait(self) -> None:
        """Wait for the next `made`. Raises NodeClosing once the node stops, and ever after."""
        if not self._closed:
            await self._waiting.park()
        if self._closed:
            raise NodeClosing

    def made(self) -> None:
        """Wake every waiting task."""
        if self._waiting:
            self._waiting.unpark_all()

    def close(self) -> None:
        """Raise NodeClosing in every waiting task: the node stops."""
        self._closed = True
        self._waiting.unpark_all()
