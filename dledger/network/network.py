"""The network that a process dials and listens on: connections as streams of bytes.

Every real process uses `Tcp`. A simulation has a network of its own, whose streams are not sockets:
like TLS streams, they are read and written through the stream alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import trio

from dledger.config import Address
from dledger.sockets import dialled, listening

Listeners = Sequence[trio.abc.Listener[trio.abc.Stream]]


class Network(Protocol):
    async def dial(self, address: Address) -> trio.abc.Stream:
        """Connect to an address. The connection breaks when the other side is gone.

        Raises OSError. If the machine is up and no process listens, that is a
        ConnectionRefusedError, or an OSError caused by a group of them.
        """
        ...

    async def listen(self, address: Address) -> Listeners:
        """Accept connections at that address. Raises OSError."""
        ...


class Tcp:
    async def dial(self, address: Address) -> trio.abc.Stream:
        return await dialled(*address)

    async def listen(self, address: Address) -> list[trio.SocketListener]:
        return await listening(*address)


TCP = Tcp()
