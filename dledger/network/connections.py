"""All connections that this process dials: one to each other process, shared by all groups."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

import trio

from dledger.config import Address
from dledger.network.host_connection import HostConnection
from dledger.network.network import TCP, Network
from dledger.network.refusals import Refusals
from dledger.network.tls import GroupTls
from dledger.wire.proof import Shows, shows_nothing


class Connections:
    """One connection for each address that a channel leads to.

    With TLS there is one for each member at that address, because each connection proves one name.

    Attributes:
        collecting: whether heartbeats and their answers are kept for `flush`.
        home: where this process listens.
        tls: the certificates that both sides of a connection show; None without TLS.
        refusals: counts the callers that were refused.
        network: dials, and listens.
        shows: returns what this process proves to members that ask.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        home: Address,
        tls: GroupTls | None = None,
        network: Network = TCP,
        shows: Shows = shows_nothing,
    ) -> None:
        self.shows = shows
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
        """The connections, open or still being dialled."""
        return self._open.values()

    def start_soon(self, work: Callable[[], Awaitable[object]]) -> None:
        self._nursery.start_soon(work)

    def to(self, address: Address, peer: str) -> HostConnection:
        """Return the connection to `peer` at `address`; the first call begins to dial it.

        Without TLS all members at one address share a connection.
        """
        key = (address, peer if self.tls is not None else "")
        connection = self._open.get(key)
        if connection is None:
            connection = self._open[key] = HostConnection(
                self.home,
                address,
                self._gathered.append,
                self.tls,
                peer,
                self.network,
                self.shows,
            )
            self._nursery.start_soon(connection.run)
        return connection

    def hurry(self, address: Address) -> None:
        """Dial `address` again soon: the process there has just connected, or hung up."""
        for (dialled, _), connection in self._open.items():
            if dialled == address:
                connection.hurry()

    def end(self, connection: HostConnection) -> None:
        for key, found in self._open.items():
            if found is connection:
                del self._open[key]
                break
        connection.close()

    def flush(self) -> None:
        """Send the kept messages; from now on each message leaves in a frame of its own."""
        self.collecting = False
        for connection in self._gathered:
            connection.flush()
        self._gathered.clear()
