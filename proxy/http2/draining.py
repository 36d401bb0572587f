"""Ends connections in order: the clients are asked to go elsewhere."""

from typing import Protocol

import trio


class Drained(Protocol):
    """A connection."""

    def drain(self) -> None:
        """Ask the client for no further calls."""

    def end_calls(self) -> None:
        """End all calls, and those that come later, with a status."""


class Draining:
    """Drains the connections that are served with it, and those that come later.

    Attributes:
        has_begun: whether new connections are drained at once.
        ends_calls: whether their calls end at once.
    """

    def __init__(self) -> None:
        self.has_begun = self.ends_calls = False
        self._connections: set[Drained] = set()
        self._ended = trio.lowlevel.ParkingLot()

    @property
    def connections(self) -> int:
        """How many connections are still served."""
        return len(self._connections)

    def begin(self) -> None:
        """Ask all clients for no further calls. Each connection ends after its last call.

        A call that lasts, such as a Telemetry, is for the router to end.
        """
        self.has_begun = True
        for connection in list(self._connections):
            connection.drain()

    def end_calls(self) -> None:
        """End all calls with status 14 (UNAVAILABLE): their clients repeat them elsewhere."""
        self.ends_calls = True
        for connection in list(self._connections):
            connection.end_calls()

    def add(self, connection: Drained) -> None:
        self._connections.add(connection)
        if self.has_begun:
            connection.drain()
        if self.ends_calls:
            connection.end_calls()

    def remove(self, connection: Drained) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._ended.unpark_all()

    async def wait_for_all(self) -> None:
        """Wait until no connection is served."""
        while self._connections:
            await self._ended.park()
