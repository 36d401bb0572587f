"""The network that a process dials and listens on: connections as streams of bytes.

Every real process uses `Tcp`. A simulation has a network of its own, whose streams are not sockets:
they are read and written through the stream alone, as those with TLS are.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from typing import Protocol

import trio

from dledger.config import Address
from dledger.system_refusals import Kind, is_of, meaning

# A connection whose bytes nobody acknowledges for so long is given up, and dialled again. Without
# this the kernel sends them again ever more seldom, up to every two minutes: after a link was cut
# for 8 s, a member was without its leader for 5 s more. Three seconds leave room for two packets
# lost in a row on a link with 300 ms a round trip.
UNACKNOWLEDGED_MS = 3_000

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
        try:
            stream = await trio.open_tcp_stream(*address)
        except RuntimeError as error:  # names are looked up in a thread
            if not is_of(Kind.THREADS, error):
                raise
            raise OSError(errno.EAGAIN, meaning(error)) from error
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS)
        return stream

    async def listen(self, address: Address) -> list[trio.SocketListener]:
        """As in Network."""
        return await trio.open_tcp_listeners(address.port, host=address.host)


TCP = Tcp()
