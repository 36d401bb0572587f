"""A client of a served connection, over streams in memory, and calls for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio
import trio.testing
from hpack import Decoder

from proxy.http2.call import Call
from proxy.http2.draining import Draining
from proxy.http2.frames import END_STREAM, PREFACE, FrameType, settings_frame
from proxy.http2.held_by_calls import HeldByCalls
from proxy.http2.limits import Limits
from proxy.http2.server import serve_connection
from remoting.net.host_shares import HostShares
from tests.proxy.http2.peer import Frame, frames_of

PEER = "192.0.2.1:5000"
Route = Callable[[Call], Awaitable[None]]


class Client:
    """The other end of a served connection.

    Attributes:
        frames: those that came since a test last emptied it.
        heard: all frames, and when they came.
        has_ended: nothing more comes.
    """

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._decoder = Decoder()
        self.frames: list[Frame] = []
        self.heard: list[tuple[float, Frame]] = []
        self.has_ended = False
        self._collecting = trio.CancelScope()

    async def collect(self) -> None:
        """Take all that the server sends; it writes whole frames, and memory cuts none."""
        with self._collecting:
            while got := await self._stream.receive_some(1 << 20):
                frames = list(frames_of(bytes(got)))
                self.frames += frames
                self.heard += [(trio.current_time(), each) for each in frames]
            self.has_ended = True

    async def send(self, *parts: bytes) -> None:
        """Send, and wait until the server has done all that it can do now."""
        await self._stream.send_all(b"".join(parts))
        await self.settle()

    async def settle(self) -> None:
        await trio.testing.wait_all_tasks_blocked()

    def statuses(self) -> dict[int, dict[str, str]]:
        """The trailers, or the only headers, of each stream that has ended."""
        found = {}
        for each in self.frames:
            if each.kind == FrameType.HEADERS:
                fields = {
                    str(name): str(value) for name, value in self._decoder.decode(each.payload)
                }
                if each.flags & END_STREAM:
                    found[each.stream_id] = fields
        self.frames = []
        return found

    def body(self, stream_id: int) -> bytes:
        return b"".join(
            [
                each.payload
                for each in self.frames
                if each.kind == FrameType.DATA and each.stream_id == stream_id
            ]
        )

    def kinds(self, kind: FrameType) -> list[Frame]:
        return [each for each in self.frames if each.kind == kind]

    async def close(self) -> None:
        self._collecting.cancel()
        await self._stream.aclose()
        await self.settle()


async def connected(
    nursery: trio.Nursery,
    route: Route,
    limits: Limits | None = None,
    draining: Draining | None = None,
    begin: bytes = PREFACE + settings_frame({}),
    held: HeldByCalls | None = None,
    answers: HeldByCalls | None = None,
    calls: HostShares | None = None,
    peer: str = PEER,
) -> Client:
    ours, theirs = trio.testing.memory_stream_pair()

    async def serve() -> None:
        await serve_connection(
            ours, route, limits or Limits(), peer, draining, held, answers, calls
        )

    nursery.start_soon(serve)
    client = Client(theirs)
    nursery.start_soon(client.collect)
    await client.send(begin)
    return client


async def echo(call: Call) -> None:
    while (got := await call.receive()) is not None:
        await call.send(got)


async def hold(call: Call) -> None:
    await call.open()
    await trio.sleep_forever()
