"""The proxies of a run, as one client sees them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import trio
from google.protobuf.message import Message

from jepsen_like.chaos.brokers.grpc.connection import CallBroken, GrpcConnection
from remoting.net.address import parse_address

CONNECT_TIMEOUT_S: Final = 1.0

_Answer = TypeVar("_Answer", bound=Message)


class Proxies:
    """A client that stays with one proxy until that fails it, and then goes to the next one.

    Args:
        addresses: of the proxies.
        first: the place of the one to begin with.
        client_id: another one for each client.
        nursery: where connections are served.
    """

    def __init__(
        self, addresses: Sequence[str], first: int, client_id: str, nursery: trio.Nursery
    ) -> None:
        self._addresses = addresses
        self._place = first % len(addresses)
        self._client_id = client_id
        self._nursery = nursery
        self._turn = trio.Lock()
        self._connection: GrpcConnection | None = None

    async def ask(
        self, request: Message, answer_type: type[_Answer], timeout_s: float
    ) -> list[_Answer]:
        """Make the call that a request's type names. Raises CallBroken."""
        method = type(request).__name__.removesuffix("Request")
        connection = await self._connected()
        try:
            messages = await connection.call(method, request.SerializeToString(), timeout_s)
        except CallBroken:
            self._leave(connection)
            raise
        return [answer_type.FromString(one) for one in messages]

    async def _connected(self) -> GrpcConnection:
        async with self._turn:
            if self._connection is not None and not self._connection.is_over:
                return self._connection
            for _ in self._addresses:
                address = self._addresses[self._place]
                host, port = parse_address(address)
                with trio.move_on_after(CONNECT_TIMEOUT_S):
                    try:
                        stream = await trio.open_tcp_stream(host, port)
                    except OSError:
                        self._place = (self._place + 1) % len(self._addresses)
                        continue  # it does not run at the moment
                    connection = GrpcConnection(stream, address, self._client_id)
                    self._nursery.start_soon(connection.run)
                    self._connection = connection
                    return connection
                self._place = (self._place + 1) % len(self._addresses)
        raise CallBroken("no proxy takes a connection", True)

    def _leave(self, connection: GrpcConnection) -> None:
        """Go to the next proxy, unless another call has done so. Open calls go on."""
        connection.leave()
        if connection is self._connection:
            self._connection = None
            self._place = (self._place + 1) % len(self._addresses)


@asynccontextmanager
async def proxies(addresses: Sequence[str], first: int, client_id: str) -> AsyncIterator[Proxies]:
    """Be a client of proxies during a block."""
    async with trio.open_nursery() as nursery:
        yield Proxies(addresses, first, client_id, nursery)
        nursery.cancel_scope.cancel()
