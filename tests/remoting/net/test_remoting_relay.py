"""Connections that are passed on: every byte arrives, nothing piles up, and they end when told."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import pytest
import trio
import trio.testing

from remoting.net import relay
from remoting.net.address import Address
from remoting.net.connection import Connection
from remoting.net.errors import PortInUse
from remoting.net.proxy_header import MAX_HEADER_BYTES, encode_proxy_header
from remoting.net.relay import Relays
from remoting.net.server import Gate, Server, ServerLimits, TrustsProxy, listen
from remoting.wire.command import Command
from remoting.wire.frame import FrameDecoder, encode_command

HERE = "127.0.0.1"


class Echo:
    """Answers each request with its own body, and keeps whose it was."""

    def __init__(self) -> None:
        self.peers: list[Address] = []
        self.closed = trio.Event()

    def on_open(self, connection: Connection) -> None:
        self.peers.append(connection.peer)

    def on_commands(self, connection: Connection, commands: Sequence[Command]) -> None:
        for command in commands:
            connection.send(command.reply(body=command.body))

    def on_close(self, connection: Connection) -> None:
        self.closed.set()


async def started(
    nursery: trio.Nursery,
    handler: Echo,
    *,
    gate: Gate | None = None,
    trusts_proxy: TrustsProxy | None = None,
    limits: ServerLimits | None = None,
) -> int:
    """A server; returns its port."""
    server = Server(handler, limits)
    nursery.start_soon(server.sweep)

    async def take(task_status: trio.TaskStatus[Address]) -> None:
        listeners = await listen(HERE, 0)
        await server.take(listeners, gate=gate, trusts_proxy=trusts_proxy, task_status=task_status)

    address: Address = await nursery.start(take)
    return address.port


def trusts_all(_host: str) -> bool:
    return True


@asynccontextmanager
async def relayed(relays: Relays, echo: Echo) -> AsyncIterator[tuple[trio.Nursery, int]]:
    """A server, and another one that passes its connections on to it; the port of the latter."""
    async with trio.open_nursery() as nursery:
        target = await started(nursery, echo, trusts_proxy=trusts_all)

        async def gate(stream: trio.SocketStream, peer: Address) -> bool:
            await relays.relay(stream, peer, Address(HERE, target))
            return True

        yield nursery, await started(nursery, Echo(), gate=gate)
        nursery.cancel_scope.cancel()


async def answers(stream: trio.SocketStream, count: int) -> list[Command]:
    decoder, found = FrameDecoder(), list[Command]()
    with trio.fail_after(20):
        while len(found) < count and (data := await stream.receive_some()):
            found += decoder.feed(bytes(data))
    return found


async def test_a_relayed_client_is_answered_and_known_by_its_own_address() -> None:
    echo = Echo()
    async with relayed(Relays(), echo) as (nursery, port):
        stream = await trio.open_tcp_stream(HERE, port)
        frames = [encode_command(Command(1, body=bytes(20_000), opaque=at)) for at in range(500)]
        nursery.start_soon(stream.send_all, b"".join(frames))
        found = await answers(stream, 500)
        assert [one.opaque for one in found] == [*range(500)]
        assert all(len(one.body) == 20_000 for one in found)
        assert echo.peers == [Address(*stream.socket.getsockname())]
        await stream.aclose()
        with trio.fail_after(5):
            await echo.closed.wait()


async def test_a_client_that_has_sent_its_last_request_still_gets_its_answers() -> None:
    async with relayed(Relays(), Echo()) as (_nursery, port):
        stream = await trio.open_tcp_stream(HERE, port)
        await stream.send_all(encode_command(Command(1, body=b"x", opaque=7)))
        (first,) = await answers(stream, 1)
        assert first.opaque == 7
        await stream.send_eof()
        assert await answers(stream, 1) == []  # the server closes what its client has closed
        await stream.aclose()


async def test_all_relays_end_at_once_when_they_are_told() -> None:
    relays = Relays()
    async with relayed(relays, Echo()) as (_nursery, port):
        streams = [await trio.open_tcp_stream(HERE, port) for _ in range(3)]
        for stream in streams:
            await stream.send_all(encode_command(Command(1)))
            await answers(stream, 1)
        assert len(relays) == 3
        relays.end_all()
        for stream in streams:
            assert await stream.receive_some() == b""
            await stream.aclose()
        assert len(relays) == 0


async def test_a_client_of_a_server_that_cannot_be_reached_is_closed() -> None:
    relays = Relays()
    with socket.socket() as taken:
        taken.bind((HERE, 0))  # nobody listens there
        target = Address(HERE, taken.getsockname()[1])

        async def gate(stream: trio.SocketStream, peer: Address) -> bool:
            await relays.relay(stream, peer, target)
            return True

        async with trio.open_nursery() as nursery:
            port = await started(nursery, Echo(), gate=gate)
            stream = await trio.open_tcp_stream(HERE, port)
            with trio.fail_after(5):
                assert await stream.receive_some() == b""
            await stream.aclose()
            nursery.cancel_scope.cancel()


async def test_a_relay_holds_back_what_is_not_taken_and_ends_when_nothing_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay, "UNREAD_SECONDS", 0.3)
    relays = Relays()
    async with relayed(relays, Echo()) as (nursery, port):
        stream = await trio.open_tcp_stream(HERE, port)
        frame = encode_command(Command(1, body=bytes(1_000_000)))
        nursery.start_soon(send_for_ever, stream, frame)
        for count in (1, 0):
            with trio.fail_after(20):
                while len(relays) != count:  # noqa: ASYNC110
                    await trio.sleep(0.01)
        await stream.aclose()


async def send_for_ever(stream: trio.SocketStream, frame: bytes) -> None:
    """Send without reading any answer, until the connection breaks."""
    try:
        while True:
            await stream.send_all(frame)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return


async def test_a_relay_that_both_sides_have_forgotten_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay, "IDLE_SECONDS", 0.2)
    relays = Relays()
    async with relayed(relays, Echo()) as (_nursery, port):
        stream = await trio.open_tcp_stream(HERE, port)
        with trio.fail_after(5):
            assert await stream.receive_some() == b""
        await stream.aclose()


# --- the header at the server that serves ---------------------------------------------------------


async def test_a_header_counts_only_from_a_trusted_host(caplog: pytest.LogCaptureFixture) -> None:
    header = encode_proxy_header(Address("10.1.2.3", 4), Address(HERE, 5))
    for trusts, peers in ((True, [Address("10.1.2.3", 4)]), (False, None)):
        echo = Echo()
        async with trio.open_nursery() as nursery:
            port = await started(nursery, echo, trusts_proxy=trusts_all if trusts else None)
            stream = await trio.open_tcp_stream(HERE, port)
            await stream.send_all(header + encode_command(Command(1, body=b"x")))
            found = await answers(stream, 1)
            assert bool(found) is trusts  # else it is no frame, and the connection is closed
            assert peers is None or echo.peers == peers
            await stream.aclose()
            nursery.cancel_scope.cancel()


async def test_a_trusted_host_may_be_a_client_itself() -> None:
    echo = Echo()
    async with trio.open_nursery() as nursery:
        port = await started(nursery, echo, trusts_proxy=trusts_all)
        stream = await trio.open_tcp_stream(HERE, port)
        await stream.send_all(encode_command(Command(1, body=b"x")))
        assert len(await answers(stream, 1)) == 1
        assert echo.peers == [Address(*stream.socket.getsockname())]
        await stream.aclose()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n\x00\r\nQUIT\n\x31\x11\x00\x0c" + bytes(12),
        b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\xff\xff" + bytes(MAX_HEADER_BYTES),
        b"\r\n\r\n\x00\r\nQUIX\n\x21\x11\x00\x0c" + bytes(12),
        b"\r\n\r\n",
    ],
)
async def test_a_malformed_header_closes_its_connection_and_no_other(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with trio.open_nursery() as nursery:
        port = await started(nursery, Echo(), trusts_proxy=trusts_all)
        with caplog.at_level(logging.WARNING):
            stream = await trio.open_tcp_stream(HERE, port)
            with trio.fail_after(5), suppress(trio.BrokenResourceError):  # what is unread resets it
                await stream.send_all(data)
                await stream.send_eof()
                assert await stream.receive_some() == b""
        assert "no PROXY header of version 2" in caplog.text
        other = await trio.open_tcp_stream(HERE, port)
        await other.send_all(encode_command(Command(1)))
        assert len(await answers(other, 1)) == 1
        await stream.aclose()
        await other.aclose()
        nursery.cancel_scope.cancel()


async def test_connections_that_are_passed_on_count_twice() -> None:
    async def gate(stream: trio.SocketStream, peer: Address) -> bool:
        assert peer.host == HERE
        await stream.receive_some()
        return True

    async with trio.open_nursery() as nursery:
        port = await started(nursery, Echo(), gate=gate, limits=ServerLimits(max_connections=4))
        kept = [await trio.open_tcp_stream(HERE, port) for _ in range(2)]
        third = await trio.open_tcp_stream(HERE, port)
        with trio.fail_after(5):
            assert await third.receive_some() == b""
        await kept[0].aclose()
        await trio.testing.wait_all_tasks_blocked(0.05)
        fourth = await trio.open_tcp_stream(HERE, port)
        await trio.testing.wait_all_tasks_blocked(0.05)
        with trio.move_on_after(0.1) as waited:
            await fourth.receive_some()
        assert waited.cancelled_caught  # it is there
        for stream in (kept[1], third, fourth):
            await stream.aclose()
        nursery.cancel_scope.cancel()


# --- a shared port --------------------------------------------------------------------------------


async def test_a_port_is_shared_only_by_those_that_say_so() -> None:
    (first,) = await listen(HERE, 0, is_shared=True)
    port = first.socket.getsockname()[1]
    (second,) = await listen(HERE, port, is_shared=True)
    with pytest.raises(PortInUse):
        await listen(HERE, port)
    await first.aclose()
    await second.aclose()
