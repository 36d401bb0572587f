"""A hop between client and server that can lose all bytes of its connections, and closes none."""

from __future__ import annotations

from functools import partial

import trio

from remoting.net.address import parse_address


class SwallowingProxy:
    """Passes connections on to a server. Those that were forgotten once are lost for good.

    Attributes:
        address: where it listens, once it is started.
        target: "host:port" of the server; it may be given later than the proxy starts.
        connections: how many came.
    """

    def __init__(self, target: str = "") -> None:
        self.address = ""
        self.target = target
        self._forgotten = 0  # connections with a lower number pass nothing
        self._is_cut = False
        self.connections = 0

    def cut(self) -> None:
        """Lose what connections send from now on, new ones included."""
        self._is_cut = True

    def heal(self) -> None:
        """Pass new connections on; nothing remembers the old ones."""
        self._is_cut = False
        self._forgotten = self.connections

    async def start(self, nursery: trio.Nursery) -> str:
        """Listen; returns the address."""
        listeners = await nursery.start(partial(trio.serve_tcp, self._serve, 0, host="127.0.0.1"))
        self.address = f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        return self.address

    async def _serve(self, client: trio.SocketStream) -> None:
        number = self.connections
        self.connections += 1
        host, port = parse_address(self.target)
        server = await trio.open_tcp_stream(host, port)
        async with client, server, trio.open_nursery() as nursery:
            nursery.start_soon(self._copy, number, client, server)
            await self._copy(number, server, client)
            nursery.cancel_scope.cancel()

    async def _copy(
        self, number: int, source: trio.SocketStream, target: trio.SocketStream
    ) -> None:
        try:
            async for data in source:
                if not self._is_cut and number >= self._forgotten:
                    await target.send_all(data)
            await target.send_eof()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return
