"""The network that a process dials and listens on: connections as streams of bytes.

Every real process uses `Tcp`. A simulation has a network of its own, whose streams are not sockets:
they are read and written through the stream alone, as those with TLS are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import trio

from dledger.config import Address
from dledger.sockets import dialled, listening

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
        """As in Network. The connection breaks when the other side is gone."""
        return await dialled(*address)

    async def listen(self, address: Address) -> list[trio.SocketListener]:
        """As in Network."""
        return await listening(*address)


TCP = Tcp()
