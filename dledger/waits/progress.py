"""Tasks that wait until a node has got on: woken together, and told when the node stops."""

from __future__ import annotations

import trio

from dledger.errors import NodeClosing


class Progress:
    """What many tasks wait for. Each looks for itself whether its own moment has come."""

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
        """Have every waiting task look again."""
        if self._waiting:
            self._waiting.unpark_all()

    def close(self) -> None:
        """The node stops: whatever the tasks wait for does not come any more."""
        self._closed = True
        self._waiting.unpark_all()
