"""Wakes all tasks that wait for a node's progress; raises in them when the node stops."""

from __future__ import annotations

import trio

from dledger.node_end import NodeEnd


class Progress:
    """A condition that many tasks wait for. Each task checks its own condition when woken."""

    def __init__(self) -> None:
        self._waiting = trio.lowlevel.ParkingLot()
        self._end: NodeEnd | None = None

    async def wait(self) -> None:
        """Wait for the next `made`. Raises NodeClosing once the node stops, and ever after."""
        if self._end is None:
            await self._waiting.park()
        if self._end is not None:  # it may have stopped during the wait
            raise self._end.closing()

    def made(self) -> None:
        if self._waiting:
            self._waiting.unpark_all()

    def close(self, end: NodeEnd) -> None:
        """Raise NodeClosing in every waiting task: the node stops."""
        self._end = end
        self._waiting.unpark_all()
