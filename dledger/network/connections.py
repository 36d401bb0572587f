"""All connections that this process dials: one to each other process, however many groups."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

import trio

from dledger.config import Address
from dledger.network.host_connection import HostConnection
from dledger.network.network import TCP, Network
from dledger.network.refusals import Refusals
from dledger.network.tls import GroupTls


class Connections:
    """One connection for each address that a channel leads to.

    With TLS one for each member at that address: a connection is to somebody who proves a name.

    Attributes:
        collecting: whether heartbeats and their answers are gathered now, for `flush`.
        home: where this process listens.
        tls: what those who dial, and those who are dialled, show each other; None without TLS.
        refusals: callers that were sent away.
        network: dials, and listens.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        home: Address,
        tls: GroupTls | None = None,
        network: Network = TCP,
    ) -> None:
        self.collecting = False
        self.home = home
        self.tls = tls
        self.refusals = Refusals()
        self.network = network
        self._nursery = nursery
        self._open: dict[tuple[Address, str], HostConnection] = {}
        self._gathered: list[HostConnection] = []

    @property
    def open(self) -> Collection[HostConnection]:
        """The connections, whether they stand or not."""
        return self._open.values()

    def start_soon(self, work: Callable[[], Awaitable[object]]) -> None:
        """Run something as long as the process takes part in groups."""
        self._nursery.start_soon(work)

    def to(self, address: Address, peer: str) -> HostConnection:
        """The connection to `peer` at that address, whose dialling begins if it is the first time.

        Without TLS nobody proves who they are, and all members at an address share a connection.
        """
        key = (address, peer if self.tls is not None else "")
        connection = self._open.get(key)
        if connection is None:
            connection = self._open[key] = HostConnection(
                self.home, address, self._gathered.append, self.tls, peer, self.network
            )
            self._nursery.start_soon(connection.run)
        return connection

    def hurry(self, address: Address) -> None:
        """The process at that address has just called, or hung up."""
        for (dialled, _), connection in self._open.items():
            if dialled == address:
                connection.hurry()

    def end(self, connection: HostConnection) -> None:
        """No channel needs it any more."""
        for key, found in self._open.items():
            if found is connection:
                del self._open[key]
                break
        connection.close()

    def flush(self) -> None:
        """Let leave what was gathered; from now on each message leaves alone."""
        self.collecting = False
        for connection in self._gathered:
            connection.flush()
        self._gathered.clear()
