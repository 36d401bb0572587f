"""Clients with TLS that a member passes on: the leader knows the names in their certificates."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

import pytest
import trio

from dledger.network.tls_config import TlsConfig
from remoting.net.address import Address, parse_address
from remoting.net.client import RemotingClient
from remoting.net.errors import ConnectFailed, ConnectionClosed
from remoting.net.proxy_header import encode_proxy_header
from remoting.net.relay import Relays
from remoting.net.relayed_names import (
    NamesMalformed,
    decode_names,
    encode_names,
    kept_names,
    names_bytes,
)
from remoting.net.server import Server, listen
from remoting.net.tls import MemberTls, ServerTls
from remoting.net.tls_config import ClientAuth, TlsMode
from remoting.wire.command import Command
from remoting.wire.frame import FrameDecoder, encode_command
from tests.remoting.net.certificates import (
    HERE,
    Signed,
    authority,
    client_tls,
    server_config,
    signed,
)
from tests.remoting.net.recording_server import ECHO, Recorder, read_until_closed, wait_for

MEMBERS = {"n0", "n1"}


def member_tls(node_id: str, by: str = "members") -> MemberTls:
    files = signed(node_id, HERE, by=by)
    config = TlsConfig(
        certificate=files.certificate, key=files.key, authorities=authority("members").path
    )
    return MemberTls(config, lambda names: not names.isdisjoint(MEMBERS))


def tls_of(node_id: str, mode: TlsMode = TlsMode.ENFORCING) -> ServerTls:
    """What a member speaks; clients have another authority than members."""
    files: Signed = signed(node_id, HERE, by="members")
    config = server_config(mode=mode, client_auth=ClientAuth.OPTIONAL, files=files)
    return ServerTls(config, member_tls(node_id))


class Group(NamedTuple):
    """Two leaders, and a member that passes clients on to `place`."""

    relays: Relays
    leaders: list[Recorder]
    places: list[Address]
    address: str


@asynccontextmanager
async def group(caller: str = "n1", mode: TlsMode = TlsMode.ENFORCING) -> AsyncIterator[Group]:
    async with trio.open_nursery() as nursery:
        leaders, places = [Recorder(), Recorder()], list[Address]()

        async def serving(server: Server, task_status: trio.TaskStatus[Address]) -> None:
            listeners = await listen(HERE, 0)
            await server.take(listeners, trusts_proxy=lambda _: True, task_status=task_status)

        for leader in leaders:
            server = Server(leader, tls=tls_of("n0", mode))
            nursery.start_soon(server.run)
            places.append(await nursery.start(serving, server))
        own = member_tls(caller)

        async def to_server(stream: trio.SocketStream) -> trio.abc.Stream:
            return await own.dialled(stream, "n0")

        async def find() -> Address:
            return places[0]

        relays = Relays(to_server=to_server)
        door = Server(Recorder(), tls=tls_of("n1", mode))
        nursery.start_soon(door.run)

        async def gate(stream: trio.SocketStream, peer: Address) -> bool:
            secured = await door.secured(stream, peer)
            if secured is not None:
                await relays.relay(stream, peer, find, secured)
            return True

        async def passing_on(task_status: trio.TaskStatus[Address]) -> None:
            await door.take(await listen(HERE, 0), gate=gate, task_status=task_status)

        address = await nursery.start(passing_on)
        yield Group(relays, leaders, places, str(address))
        nursery.cancel_scope.cancel()


async def test_the_leader_knows_the_names_of_a_client_that_is_passed_on() -> None:
    async with group() as made, trio.open_nursery() as nursery:
        tls = client_tls(signed("orders", "billing"), believed="members")
        client = RemotingClient(nursery, tls=tls)
        body = bytes(300_000)
        reply = await client.request(made.address, Command(ECHO, {}, body), 20)
        assert reply.body == body
        assert made.leaders[0].opened[0].names == frozenset({"orders", "billing"})
        client.close()
        await wait_for(lambda: len(made.leaders[0].closed) == 1)
        await wait_for(lambda: not made.relays)
        nursery.cancel_scope.cancel()


async def test_the_next_leader_is_told_the_names_as_well() -> None:
    async with group() as made, trio.open_nursery() as nursery:
        tls = client_tls(signed("orders", "billing"), believed="members")
        client = RemotingClient(nursery, tls=tls)
        await client.request(made.address, Command(ECHO), 20)
        made.places.reverse()
        made.relays.move_all()
        await wait_for(lambda: len(made.leaders[1].opened) == 1)
        await client.request(made.address, Command(ECHO), 20)
        assert made.leaders[1].opened[0].names == frozenset({"orders", "billing"})
        nursery.cancel_scope.cancel()


async def test_a_client_without_a_certificate_is_passed_on_without_names() -> None:
    async with group(mode=TlsMode.PERMISSIVE) as made, trio.open_nursery() as nursery:
        for tls in (client_tls(believed="members"), None):
            client = RemotingClient(nursery, tls=tls)
            await client.request(made.address, Command(ECHO), 20)
        assert [one.names for one in made.leaders[0].opened] == [frozenset(), frozenset()]
        nursery.cancel_scope.cancel()


async def test_a_plain_client_is_not_passed_on_where_tls_is_required() -> None:
    async with group() as made, trio.open_nursery() as nursery:
        with pytest.raises((ConnectFailed, ConnectionClosed)):
            await RemotingClient(nursery).request(made.address, Command(ECHO), 20)
        assert not made.leaders[0].opened
        nursery.cancel_scope.cancel()


async def test_only_a_member_is_believed_the_names_of_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "remoting")
    async with group() as made:
        for tls, reason in (
            (member_tls("tool"), "its certificate is that of tool, and of no member of the group"),
            (member_tls("n1", by="authority"), "its certificate is not believed"),
        ):
            caplog.clear()
            async with await trio.open_tcp_stream(*made.places[0]) as plain:
                here = Address(HERE, 1)
                await plain.send_all(encode_proxy_header(here, here, by_member=True))
                secure = await tls.dialled(plain, "n0")
                with suppress(trio.BrokenResourceError), trio.fail_after(5):
                    await secure.send_all(encode_names(frozenset({"admin"})))
                    assert await secure.receive_some(1) == b""
            await wait_for(lambda reason=reason: reason in caplog.text)  # type: ignore[misc]
        assert not any(one.names for one in made.leaders[0].opened)


async def test_a_member_that_tells_no_names_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "remoting")
    async with group() as made:
        async with await trio.open_tcp_stream(*made.places[0]) as plain:
            here = Address(HERE, 1)
            await plain.send_all(encode_proxy_header(here, here, by_member=True))
            secure = await member_tls("n1").dialled(plain, "n0")
            await secure.send_all(b"\xff\xff")
            with suppress(trio.BrokenResourceError), trio.fail_after(5):
                assert await secure.receive_some(1) == b""
        await wait_for(lambda: "it did not say whom it passes on" in caplog.text)


async def test_a_member_that_passes_a_client_on_speaks_tls(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "remoting")
    async with group(mode=TlsMode.PERMISSIVE) as made:
        async with await trio.open_tcp_stream(*made.places[0]) as plain:
            here = parse_address(made.address)
            header = encode_proxy_header(here, here, by_member=True)
            await plain.send_all(header + bytes(8))
            with trio.fail_after(5):
                await read_until_closed(plain)
        await wait_for(lambda: "only TLS is taken here" in caplog.text)


async def test_another_relay_may_pass_tls_through_behind_a_header() -> None:
    async with group() as made:
        client = Address("10.1.2.3", 4711)
        async with await trio.open_tcp_stream(*made.places[0]) as plain:
            await plain.send_all(encode_proxy_header(client, Address("10.0.0.1", 10911)))
            tls = client_tls(signed("orders", "billing"), believed="members")
            secure = await tls.dialled(plain, HERE)
            await secure.send_all(encode_command(Command(ECHO, body=b"x", opaque=7)))
            decoder = FrameDecoder()
            found = list[Command]()
            with trio.fail_after(5):
                while not found:
                    found = decoder.feed(bytes(await secure.receive_some()))
        assert (found[0].opaque, found[0].body) == (7, b"x")
        (served,) = made.leaders[0].opened
        assert (served.peer, served.names) == (client, frozenset({"orders", "billing"}))


def test_names_are_told_and_read() -> None:
    names = kept_names(["b", "a", "ü", "", "x\ny"])
    assert names == {"a", "b", "ü"}
    told = encode_names(names)
    assert names_bytes(told[:2]) == len(told) - 2
    assert decode_names(told[2:]) == names
    assert decode_names(b"") == frozenset()
    with pytest.raises(NamesMalformed):
        names_bytes(b"\xff\xff")
    with pytest.raises(NamesMalformed):
        decode_names(b"\xff")
