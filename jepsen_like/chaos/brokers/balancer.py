"""The one address of a group of brokers: `python -m jepsen_like.chaos.brokers.balancer`.

Its arguments are host:port where it listens, and host:port of each member. It hands each connection
to the next member that takes one, as a plain balancer of connections does, and knows nothing of
leaders. It ends with its standard input.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from typing import Final

import trio

from dledger.command_line.server_signals import cancel_at_end_of_input
from remoting.net.address import Address, parse_address

CONNECT_TIMEOUT_S: Final = 1.0
CONNECTIONS_MAX: Final = 256
PIECE_BYTES: Final = 64 * 1024


class Balancer:
    """Hands connections to members in turn; some members may not run."""

    def __init__(self, members: Sequence[Address]) -> None:
        self._members = members
        self._turns: Iterator[int] = itertools.count()
        self._room = trio.CapacityLimiter(CONNECTIONS_MAX)

    async def take(self, client: trio.abc.Stream) -> None:
        """Pass all bytes on between a client and a member, until either closes."""
        async with client:
            if self._room.available_tokens < 1:
                return
            async with self._room:
                member = await self._connected()
                if member is None:
                    return
                async with member, trio.open_nursery() as nursery:
                    for source, target in ((client, member), (member, client)):
                        nursery.start_soon(_copy, source, target, nursery.cancel_scope)

    async def _connected(self) -> trio.SocketStream | None:
        first = next(self._turns)
        for place in range(len(self._members)):
            host, port = self._members[(first + place) % len(self._members)]
            with trio.move_on_after(CONNECT_TIMEOUT_S):
                try:
                    return await trio.open_tcp_stream(host, port)
                except OSError:
                    continue  # it does not run at the moment
        return None


async def _copy(source: trio.abc.Stream, target: trio.abc.Stream, both: trio.CancelScope) -> None:
    """Pass bytes on until one side has closed, or its process was killed."""
    try:
        while piece := await source.receive_some(PIECE_BYTES):
            await target.send_all(piece)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    both.cancel()


async def balance(at: Address, members: Sequence[Address]) -> None:
    """Take connections until standard input ends."""
    balancer = Balancer(members)
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(at.port, host=at.host)
        nursery.start_soon(trio.serve_listeners, balancer.take, listeners)
        await cancel_at_end_of_input(nursery.cancel_scope)


def main() -> None:
    at, *members = (parse_address(text) for text in sys.argv[1:])
    trio.run(balance, at, members)


if __name__ == "__main__":
    main()
