"""The one address of a group of brokers in a run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import memory_stream_pair

from jepsen_like.chaos.brokers import balancer
from jepsen_like.chaos.brokers.balancer import Balancer
from remoting.net.address import Address


@asynccontextmanager
async def member(name: bytes) -> AsyncIterator[Address]:
    """A member that says its name and echoes what it is told."""

    async def serve(stream: trio.SocketStream) -> None:
        await stream.send_all(name)
        async for piece in stream:
            await stream.send_all(piece)
            if piece == b"die":
                await trio.aclose_forcefully(stream)
                return

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        yield Address(*listener.socket.getsockname())
        nursery.cancel_scope.cancel()


async def nowhere() -> Address:
    """An address without a listener."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        return Address(*listener.socket.getsockname())


@asynccontextmanager
async def client_of(one: Balancer) -> AsyncIterator[trio.abc.Stream]:
    ours, theirs = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.take, theirs)
        yield ours
        await ours.aclose()


async def test_connections_go_to_members_in_turn_and_carry_both_ways() -> None:
    async with member(b"n0") as first, member(b"n1") as second:
        one = Balancer([first, second])
        for name in (b"n0", b"n1", b"n0"):
            async with client_of(one) as client:
                assert await client.receive_some(2) == name
                await client.send_all(b"hello")
                assert await client.receive_some(5) == b"hello"


async def test_a_member_that_does_not_run_is_passed_over() -> None:
    async with member(b"n1") as second:
        one = Balancer([await nowhere(), second])
        async with client_of(one) as client:
            assert await client.receive_some(2) == b"n1"


async def test_a_client_whose_member_closes_is_closed_too() -> None:
    async with member(b"n0") as first, client_of(Balancer([first])) as client:
        await client.send_all(b"die")
        heard = b"".join([piece async for piece in client])
        assert heard == b"n0die"


async def test_a_client_is_closed_when_no_member_runs() -> None:
    async with client_of(Balancer([await nowhere()])) as client:
        assert await client.receive_some(1) == b""


async def test_a_connection_beyond_the_limit_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(balancer, "CONNECTIONS_MAX", 1)
    async with member(b"n0") as first:
        one = Balancer([first])
        async with client_of(one) as taken:
            assert await taken.receive_some(2) == b"n0"
            async with client_of(one) as refused:
                assert await refused.receive_some(1) == b""
