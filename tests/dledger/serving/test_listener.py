"""A mistake in what serves one caller, over streams in memory."""

from __future__ import annotations

import pytest
import trio
from trio.testing import memory_stream_pair

from dledger.config import Address
from dledger.network.connections import Connections
from dledger.node_end import fenced
from dledger.serving.listener import Listener
from dledger.wire.handshake import Caller, Hello, encode_hello
from tests.dledger.serving.test_peer_conversation import Member

HERE = Address("127.0.0.1", 1)


async def test_what_serving_a_client_raises_ends_the_member_that_it_called(
    nursery: trio.Nursery,
) -> None:
    connections = Connections(nursery, HERE)
    members = {group: Member(group, connections) for group in ("a", "b")}
    listener = Listener({group: each.port for group, each in members.items()}, connections)
    error = members["a"].raises["client"] = KeyError("n1")
    ours, theirs = memory_stream_pair()
    await ours.send_all(encode_hello(Hello(Caller.CLIENT, group="a")))
    await listener._serve_one(theirs)  # with the error it would end the listener of all groups
    assert members["a"].failures == [error]
    assert not members["b"].failures


async def test_a_mistake_in_the_conversation_with_a_peer_closes_it_and_is_logged(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections = Connections(nursery, HERE)
    listener = Listener({}, connections)

    def raises(address: Address) -> None:
        raise KeyError(address)

    monkeypatch.setattr(connections, "hurry", raises)
    ours, theirs = memory_stream_pair()
    await ours.send_all(encode_hello(Hello(Caller.PEER, address=Address("127.0.0.1", 2))))
    await listener._serve_one(theirs)
    assert "closed the connection of the peer at 127.0.0.1:2" in caplog.text
    assert "KeyError" in caplog.text


def test_a_fence_gives_what_is_raised_to_the_group_that_raised_it() -> None:
    failures: list[Exception] = []
    error = KeyError("n1")

    def raises(peer: str, reason: str) -> None:
        raise error

    fenced(raises, failures.append)("n1", "gone")
    assert failures == [error]
