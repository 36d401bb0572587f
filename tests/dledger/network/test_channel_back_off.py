"""A channel that is refused again and again, over streams in memory and in virtual time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock, memory_stream_pair

from dledger.config import Address
from dledger.core.messages import Heartbeat
from dledger.network.channel import Channel, Identity
from dledger.network.connections import Connections
from dledger.network.network import Listeners
from dledger.wire.channel_protocol import (
    Opening,
    decode_call,
    encode_channel_refused,
    encode_opened,
)
from dledger.wire.codec import encode_message
from dledger.wire.frame import FrameDecoder
from dledger.wire.handshake import encode_welcome

HOME, PEER = Address("127.0.0.1", 1), Address("127.0.0.1", 2)
REASON = "entry 7: the chain CRC does not follow the entry before"


class OnePeer:
    """A network with one process, which opens each channel and then does what it is told."""

    def __init__(self, nursery: trio.Nursery, then: Callable[[int], float | None]) -> None:
        self._nursery = nursery
        self._then = then
        self.openings: list[float] = []

    async def dial(self, address: Address) -> trio.abc.Stream:
        """As in Network."""
        ours, theirs = memory_stream_pair()
        self._nursery.start_soon(self._serve, theirs)
        return ours

    async def listen(self, address: Address) -> Listeners:
        """As in Network."""
        raise OSError("nothing listens here")

    async def _serve(self, stream: trio.abc.Stream) -> None:
        decoder, introduced = FrameDecoder(), False
        while data := await stream.receive_some(65_536):
            for frame in decoder.feed(bytes(data)):
                if not introduced:
                    introduced = True
                    await stream.send_all(encode_welcome(str(PEER)))
                elif type(frame.header[0]) is str:
                    call = decode_call(frame)
                    assert isinstance(call, Opening)
                    self.openings.append(trio.current_time())
                    await stream.send_all(encode_opened(call.channel))
                    stands_s = self._then(len(self.openings))
                    if stands_s is not None:
                        await trio.sleep(stands_s)
                        await stream.send_all(encode_channel_refused(call.channel, REASON))


def channel(nursery: trio.Nursery, peer: OnePeer) -> Channel:
    connections = Connections(nursery, HOME, network=peer)
    identity = Identity("g", "n0", HOME)
    return Channel(connections, identity, "n1", PEER, lambda p, c: None, lambda p: None)


async def test_a_channel_that_is_refused_as_soon_as_it_is_open_is_opened_once_a_second(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    peer = OnePeer(nursery, lambda opening: 0.001)
    link = channel(nursery, peer)
    await trio.sleep(60.0)
    assert 50 <= len(peer.openings) <= 70
    assert link.last_problem == REASON


async def test_a_channel_that_stood_is_opened_again_at_once(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    peer = OnePeer(
        nursery, lambda opening: 0.001 if opening < 10 else (5.0 if opening == 10 else None)
    )
    link = channel(nursery, peer)
    await trio.sleep(60.0)
    assert len(peer.openings) == 11
    assert peer.openings[-1] - peer.openings[-2] < 5.2
    assert link.connected
    assert link.last_problem is None


async def test_heartbeats_that_cannot_be_encoded_are_dropped_alone(
    nursery: trio.Nursery, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    peer = OnePeer(nursery, lambda opening: None)
    link = channel(nursery, peer)
    await trio.sleep(1.0)
    connections = link._connections
    connections.collecting = True
    link.send(Heartbeat(2**70, 0, 0))  # more than 64 bits
    connections.flush()
    assert "heartbeats were dropped" in caplog.text
    link._connection.write(encode_message(Heartbeat(1, 0, 0), b"", link.number))
    await trio.sleep(1.0)
    assert link.connected
