"""The network that a process dials and listens on: connections as streams of bytes.

Every real process uses `Tcp`. A simulation has a network of its own, whose streams are not sockets:
they are read and written through the stream alone, as those with TLS are.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Protocol

import trio

from dledger.config import Address

# A connection whose bytes nobody acknowledges for so long is given up, and dialled again. Without
# this the kernel sends them again ever more seldom, up to every two minutes: after a link was cut
# for 8 s, a member was without its leader for 5 s more. Three seconds leave room for two packets
# lost in a row on a link with 300 ms a round trip.
UNACKNOWLEDGED_MS = 3_000

# An accepted connection that is idle is probed each second, and closed after three probes without
# an answer: 4 s after the caller's host lost its power or its link.
KEEP_ALIVE_S = 1
KEEP_ALIVE_PROBES = 3

Listeners = Sequence[trio.abc.Listener[trio.abc.Stream]]


class Network(Protocol):
    """Dials and listens."""

    async def dial(self, address: Address) -> trio.abc.Stream:
        """A connection to that address.

        Raises OSError. If the machine is up and no process listens, that is a
        ConnectionRefusedError, or an OSError caused by a group of them.
        """
        ...

    async def listen(self, address: Address) -> Listeners:
        """Accept connections at that address. Raises OSError."""
        ...


class Tcp:
    """The network of the operating system."""

    async def dial(self, address: Address) -> trio.abc.Stream:
        """As in Network. The connection breaks if what is sent is not acknowledged for a while."""
        stream = await trio.open_tcp_stream(*address)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS)
        return stream

    async def listen(self, address: Address) -> list[trio.SocketListener]:
        """As in Network."""
        listeners = await trio.open_tcp_listeners(address.port, host=address.host)
        for listener in listeners:
            _keep_alive(listener.socket)  # accepted connections inherit this
        return listeners


def _keep_alive(listening: trio.socket.SocketType) -> None:
    """Have the kernel ask the callers' hosts whether they are there while a connection is idle.

    Members tell two processes of one name apart by their open connections, and the connection of a
    host without power would stay open.
    """
    if hasattr(socket, "TCP_KEEPIDLE"):  # Linux
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEP_ALIVE_S)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEP_ALIVE_S)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEP_ALIVE_PROBES)


TCP = Tcp()
