"""Ends connections in order: the clients are asked to go elsewhere."""

from collections.abc import Callable

import trio


class Draining:
    """Drains the connections that are served with it, and those that come later.

    Attributes:
        has_begun: whether new connections are drained at once.
    """

    def __init__(self) -> None:
        self.has_begun = False
        self._drains: set[Callable[[], None]] = set()
        self._ended = trio.lowlevel.ParkingLot()

    @property
    def connections(self) -> int:
        """How many connections are still served."""
        return len(self._drains)

    def begin(self) -> None:
        """Ask all clients for no further calls. Each connection ends after its last call.

        A call that lasts, such as a Telemetry, is for the router to end.
        """
        self.has_begun = True
        for drain in list(self._drains):
            drain()

    def add(self, drain: Callable[[], None]) -> None:
        self._drains.add(drain)
        if self.has_begun:
            drain()

    def remove(self, drain: Callable[[], None]) -> None:
        self._drains.discard(drain)
        if not self._drains:
            self._ended.unpark_all()

    async def wait_for_all(self) -> None:
        """Wait until no connection is served."""
        while self._drains:
            await self._ended.park()
