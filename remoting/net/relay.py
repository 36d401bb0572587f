"""Passes a client's connection on to another server, byte by byte.

Nothing is decoded. The other server is told the client's address by a PROXY header. Each direction
holds one read at most: what one side does not take, is not read from the other.
"""

import logging
from typing import Final

import trio

from remoting.net.address import Address, peer_address
from remoting.net.proxy_header import encode_proxy_header

_log = logging.getLogger(__name__)

_RECEIVE_BYTES: Final = 64 * 1024

# How long the other server may take to accept; on a healthy network that is one round trip.
DIAL_SECONDS: Final = 2.0

# A side that takes nothing for so long, or two sides that say nothing for so long, end a relay.
# The same as for connections that are served: see ServerLimits.
UNREAD_SECONDS: Final = 15.0
IDLE_SECONDS: Final = 120.0


class Relays:
    """The connections that are passed on."""

    def __init__(self) -> None:
        self._scopes: set[trio.CancelScope] = set()

    def __len__(self) -> int:
        return len(self._scopes)

    def end_all(self) -> None:
        """End every relay now: their clients connect again, and find another server."""
        for scope in list(self._scopes):
            scope.cancel()

    async def relay(self, client: trio.SocketStream, peer: Address, target: Address) -> None:
        """Pass a client on to `target`, until one of them ends; closes both connections.

        A target that cannot be reached ends the client's connection. `peer` is the client's
        address.
        """
        with trio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                await self._relay(client, peer, target)
            except OSError as error:
                _log.debug("%s could not be passed on to %s: %s", peer, target, error)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                _log.debug("a relay from %s to %s broke: %s", peer, target, error)
            finally:
                self._scopes.discard(scope)
                await trio.aclose_forcefully(client)

    async def _relay(self, client: trio.SocketStream, peer: Address, target: Address) -> None:
        here = peer_address(client.socket.getsockname())
        server: trio.SocketStream | None = None
        with trio.move_on_after(DIAL_SECONDS):
            server = await trio.open_tcp_stream(target.host, target.port)
        if server is None:
            _log.debug("%s did not accept %s in %g s", target, peer, DIAL_SECONDS)
            return
        try:
            await server.send_all(encode_proxy_header(peer, here))
            await _copy_both(client, server)
        finally:
            await trio.aclose_forcefully(server)


class _Progress:
    """When either direction last moved a byte, on trio's clock."""

    def __init__(self) -> None:
        self.last = trio.current_time()

    def note(self) -> None:
        self.last = trio.current_time()


async def _copy_both(client: trio.SocketStream, server: trio.SocketStream) -> None:
    progress = _Progress()
    broken: list[Exception] = []

    async def copy(source: trio.SocketStream, target: trio.SocketStream) -> None:
        try:
            if await _copy(source, target, progress):
                return  # half closed: the other direction may go on
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            broken.append(error)
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(copy, client, server)
        nursery.start_soon(copy, server, client)
    if broken:
        raise broken[0]


async def _copy(source: trio.SocketStream, target: trio.SocketStream, progress: _Progress) -> bool:
    """Copy one direction to its end; False when it took too long.

    Raises trio.BrokenResourceError.
    """
    while True:
        data = b""
        with trio.move_on_at(progress.last + IDLE_SECONDS) as idle:
            data = bytes(await source.receive_some(_RECEIVE_BYTES))
        if idle.cancelled_caught:
            if trio.current_time() - progress.last >= IDLE_SECONDS:
                return False
            continue  # the other direction is alive
        if not data:
            await target.send_eof()
            return True
        progress.note()
        with trio.move_on_after(UNREAD_SECONDS) as unread:
            await target.send_all(data)
        if unread.cancelled_caught:
            return False
        progress.note()
