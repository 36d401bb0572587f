"""All connections that this process dials: one to each other process, however many groups."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import trio

from dledger.config import Address
from dledger.host_connection import HostConnection


class Connections:
    """One connection for each address that a channel leads to.

    Attributes:
        collecting: whether heartbeats and their answers are gathered now, for `flush`.
    """

    def __init__(self, nursery: trio.Nursery, home: Address) -> None:
        self.collecting = False
        self.home = home
        self._nursery = nursery
        self._open: dict[Address, HostConnection] = {}
        self._gathered: list[HostConnection] = []

    @property
    def open(self) -> Mapping[Address, HostConnection]:
        """The connections, whether they stand or not."""
        return self._open

    def start_soon(self, work: Callable[[], Awaitable[object]]) -> None:
        """Run something as long as the process takes part in groups."""
        self._nursery.start_soon(work)

    def to(self, address: Address) -> HostConnection:
        """The connection to that address, whose dialling begins if it is the first time."""
        connection = self._open.get(address)
        if connection is None:
            connection = self._open[address] = HostConnection(
                self.home, address, self._gathered.append
            )
            self._nursery.start_soon(connection.run)
        return connection

    def hurry(self, address: Address) -> None:
        """The process at that address has just called, or hung up."""
        if (connection := self._open.get(address)) is not None:
            connection.hurry()

    def end(self, connection: HostConnection) -> None:
        """No channel needs it any more."""
        if self._open.get(connection.address) is connection:
            del self._open[connection.address]
        connection.close()

    def flush(self) -> None:
        """Let leave what was gathered; from now on each message leaves alone."""
        self.collecting = False
        for connection in self._gathered:
            connection.flush()
        self._gathered.clear()
