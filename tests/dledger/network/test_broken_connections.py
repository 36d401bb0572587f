"""A connection breaks at each of its calls: nothing of it is left, and the next one begins anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MemoryReceiveStream, MemorySendStream, memory_stream_pair

from dledger.config import Address
from dledger.core.messages import Heartbeat
from dledger.network import host_connection
from dledger.network.host_connection import HostConnection
from dledger.wire.channel_protocol import encode_channel_refused, encode_opened
from dledger.wire.frame import FrameDecoder, encode_frame
from dledger.wire.handshake import encode_welcome
from tests.breaking_stream import BreakingStream

HOME, THERE = Address("127.0.0.1", 15400), Address("127.0.0.1", 15401)
BEAT = Heartbeat(1, -1, 1)
# More calls than one connection makes here.
MOST_CALLS = 12

# What a connection keeps from one dial to the next on purpose.
KEPT = {
    "_channels": "they are opened again",
    "_down_since": "when the outage began",
    "_last_number": "no number is used twice",
    "_pause": "the pause before the next dial",
    "_scope": "of the last dial, which has ended",
    "last_problem": "why there is no connection",
    "_said": "what the log has a line of",
}


class Channel:
    """A channel that notes what becomes of it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.opening = encode_frame(["open", number])
        self.told: list[str] = []

    def opened(self) -> None:
        self.told.append("opened")

    def ended(self, reason: str | None) -> None:
        self.told.append(f"ended {reason}")

    def refused(self) -> None:
        self.told.append("nobody listens")


class Peer:
    """Dials are answered by this: it opens the first channel, and refuses the second."""

    def __init__(self, nursery: trio.Nursery, breaks_at: int) -> None:
        self._nursery = nursery
        self._breaks_at = breaks_at
        self.streams: list[BreakingStream] = []
        self.received: list[list[Any]] = []
        self.refuses_dials = False

    async def dial(self, _address: Address) -> Any:
        await trio.lowlevel.checkpoint()
        if self.refuses_dials:
            raise ConnectionRefusedError
        near, far = memory_stream_pair()
        calls = self._breaks_at if not self.streams else 1 << 30
        stream = BreakingStream(near, calls)
        self.streams.append(stream)
        self.received.append([])
        self._nursery.start_soon(self._serve, far, self.received[-1])
        return stream

    async def _serve(
        self, stream: trio.StapledStream[MemorySendStream, MemoryReceiveStream], heard: list[Any]
    ) -> None:
        decoder = FrameDecoder()
        try:
            while data := await stream.receive_some():
                for frame in decoder.feed(bytes(data)):
                    heard.append(frame.header)
                    if len(heard) == 1:
                        await stream.send_all(encode_welcome("n1"))
                    elif frame.header == ["open", 0]:
                        await stream.send_all(encode_opened(0))
                    elif frame.header == ["open", 1]:
                        await stream.send_all(encode_channel_refused(1, "not yet"))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return


def state(connection: HostConnection) -> dict[str, object]:
    """Its fields, without those that it keeps; lots by how many wait."""
    fields = {name: value for name, value in vars(connection).items() if name not in KEPT}
    return {
        name: len(value) if isinstance(value, trio.lowlevel.ParkingLot) else value
        for name, value in fields.items()
        if not isinstance(value, trio.CancelScope) and not callable(value)
    }


def direct_writes(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Have the connection write directly; nothing is taken at once, so all waits in the outbox."""
    monkeypatch.setattr(host_connection, "plain_descriptor", lambda _stream: 7)
    monkeypatch.setattr(host_connection, "write_now", lambda _descriptor, _frame: 0)
    return monkeypatch.undo


@pytest.mark.parametrize("is_direct", [False, True])
@pytest.mark.parametrize("breaks_at", range(MOST_CALLS))
async def test_nothing_of_a_broken_connection_reaches_the_next_one(
    breaks_at: int,
    is_direct: bool,
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: trio.testing.MockClock,
) -> None:
    if is_direct:
        direct_writes(monkeypatch)
    async with trio.open_nursery() as nursery:
        peer = Peer(nursery, breaks_at)
        network: Any = peer
        connection = HostConnection(HOME, THERE, lambda _: None, network=network)
        fresh = HostConnection(HOME, THERE, lambda _: None, network=network)
        channels = [Channel(connection.new_number()) for _ in range(2)]
        for channel in channels:
            connection.add(channel)
        nursery.start_soon(connection.run)
        # Traffic on it until it breaks, also while a call waits.
        for number in range(40):
            await trio.sleep(0.01)
            if connection._connected:
                connection.write(encode_frame(["old", number]))
                connection.collect(BEAT, 0)
                connection.flush()
            if peer.streams and peer.streams[0].broken.is_set():
                break
        else:
            assert breaks_at >= MOST_CALLS - 1, "each call is broken"
        peer.refuses_dials = True
        await trio.sleep(0.3)
        connection.flush()
        if connection._connected:
            assert len(peer.streams) > 1, "it was dialled again meanwhile"
        else:
            new = state(fresh)
            assert {
                name: value for name, value in state(connection).items() if value != new[name]
            } == {}
        peer.refuses_dials = False
        await trio.sleep(3)
        assert [header for header in peer.received[-1] if "old" in header] == []
        assert peer.received[-1][1:3] == [["open", 0], ["open", 1]]
        told = [each for each in channels[0].told if each != "nobody listens"]
        assert told in (["opened"], ["ended None", "opened"], ["opened", "ended None", "opened"])
        heard = len(peer.received[-1])
        connection.write(encode_frame(["new"]))
        await trio.sleep(0.1)
        assert ["new"] in peer.received[-1][heard:]
        nursery.cancel_scope.cancel()
