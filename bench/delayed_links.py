"""Links with a round trip: ROUND_TRIP_MS LINKS, a process that passes on bytes with a delay.

LINKS is a JSON object: addresses to listen at, each with the one that is reached through it. A
connection takes one round trip to open, and each byte half of one to arrive, in both directions; so
does the news that a process has ended. Order is kept, and the rate is not limited. A link also
takes connections for a process that is gone, and ends them after a round trip: on loopback alone
they are refused. The process prints `ready`, and ends with its standard input.
"""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

import trio

from dledger.config import parse_address
from dledger.node.collector import collect_seldom

READY = "ready"
MS_PER_S = 1000.0
# The most bytes that one direction of a connection holds: 110 MB/s at 300 ms, more than needed.
# Then its sender has to wait, as with a full pipe.
MOST_HELD_BYTES = 16 * 1024 * 1024
# The cost of a piece besides its bytes, so that the bound holds for many small pieces as well.
_PIECE_COST_BYTES = 128
_READ_BYTES = 256 * 1024
# The event loop sleeps for whole milliseconds and rounds up: half of one too long, on average.
_ROUNDING_S = 0.0005


class DelayLine:
    """One direction of a connection: passes on each piece after a delay, in order."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._pieces: deque[tuple[float, bytes]] = deque()  # when each is due; empty at the end
        self._changed = trio.Event()
        self.held_bytes = 0

    async def carry(
        self, source: trio.abc.ReceiveStream, sink: trio.abc.SendStream, ended: trio.CancelScope
    ) -> None:
        """Pass on all pieces, and cancel `ended` after the end of the stream."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._take, source)
            # The other direction passes on that a receiver is gone, after the delay.
            with suppress(trio.BrokenResourceError):
                await self._give(sink)
                ended.cancel()

    async def _take(self, source: trio.abc.ReceiveStream) -> None:
        piece = b"begin"
        while piece:
            while self.held_bytes >= MOST_HELD_BYTES:
                await self._change()
            try:
                piece = bytes(await source.receive_some(_READ_BYTES))
            except trio.BrokenResourceError:
                piece = b""
            self._pieces.append((trio.current_time() + self._delay_s, piece))
            self._held(len(piece) + _PIECE_COST_BYTES)

    async def _give(self, sink: trio.abc.SendStream) -> None:
        while True:
            while not self._pieces:
                await self._change()
            await trio.sleep_until(self._pieces[0][0] - _ROUNDING_S)
            now = trio.current_time() + _ROUNDING_S
            pieces: list[bytes] = []
            while self._pieces and self._pieces[0][0] <= now:
                pieces.append(self._pieces.popleft()[1])
            await sink.send_all(b"".join(pieces))
            self._held(-sum(len(piece) + _PIECE_COST_BYTES for piece in pieces))
            if not pieces[-1]:
                return

    def _held(self, more_bytes: int) -> None:
        self.held_bytes += more_bytes
        self._changed.set()
        self._changed = trio.Event()

    async def _change(self) -> None:
        await self._changed.wait()


class DelayedLink:
    """Passes connections to one address on to another, with a delay."""

    def __init__(self, target: str, delay_s: float) -> None:
        self._target = parse_address("links", target)
        self._delay_s = delay_s

    async def serve(self, caller: trio.SocketStream) -> None:
        async with caller:
            await trio.sleep(self._delay_s)
            try:
                reached = await trio.open_tcp_stream(*self._target)
            except OSError:
                await trio.sleep(self._delay_s)
                return  # the caller sees its connection closed
            async with reached:
                await trio.sleep(self._delay_s)
                await self._join(caller, reached)

    async def _join(self, caller: trio.SocketStream, reached: trio.SocketStream) -> None:
        async with trio.open_nursery() as nursery:
            ended = nursery.cancel_scope
            for source, sink in ((caller, reached), (reached, caller)):
                nursery.start_soon(DelayLine(self._delay_s).carry, source, sink, ended)


async def serve_links(round_trip_ms: int, links: Mapping[str, str]) -> None:
    """Serve all links until standard input ends."""
    delay_s = round_trip_ms / 2 / MS_PER_S
    async with trio.open_nursery() as nursery:
        for listen, target in links.items():
            host, port = parse_address("links", listen)
            link = DelayedLink(target, delay_s)
            await nursery.start(partial(trio.serve_tcp, link.serve, port, host=host))
        print(READY, flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    collect_seldom()
    trio.run(serve_links, int(sys.argv[1]), json.loads(sys.argv[2]))
