"""Every connection of servers, clients and relays has limits for silence on both sides."""

from __future__ import annotations

import socket

import pytest
import trio

from dledger.sockets import ACCEPTED, DIALLED
from remoting.net.address import Address, parse_address
from remoting.net.client import RemotingClient
from remoting.net.relay import Relays
from remoting.net.server import Server, listen
from remoting.wire.command import Command
from tests.open_connections import limits_of_open_connections
from tests.remoting.net.certificates import client_tls, server_tls
from tests.remoting.net.recording_server import ECHO, Recorder, start

HERE = "127.0.0.1"

pytestmark = pytest.mark.skipif(
    not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux has this limit"
)


async def relaying(nursery: trio.Nursery, target: str) -> str:
    """A server that shares its port, and passes every connection on."""
    server = Server(Recorder())
    relays = Relays()

    async def find() -> Address:
        return parse_address(target)

    async def pass_on(stream: trio.SocketStream, peer: Address) -> bool:
        await relays.relay(stream, peer, find)
        return True

    async def take(task_status: trio.TaskStatus[Address]) -> None:
        listeners = await listen(HERE, 0, is_shared=True)
        await server.take(listeners, gate=pass_on, task_status=task_status)

    nursery.start_soon(server.run)
    return str(await nursery.start(take))


async def trusting_relays(nursery: trio.Nursery) -> str:
    """A server that believes what relays say of their clients."""
    server = Server(Recorder())

    async def take(task_status: trio.TaskStatus[Address]) -> None:
        listeners = await listen(HERE, 0)
        await server.take(listeners, trusts_proxy=lambda _host: True, task_status=task_status)

    nursery.start_soon(server.run)
    return str(await nursery.start(take))


async def test_servers_clients_and_relays_notice_that_the_other_side_is_gone(
    nursery: trio.Nursery,
) -> None:
    before = limits_of_open_connections()
    with_tls = await start(nursery, Recorder(), tls=server_tls())
    relay = await relaying(nursery, await trusting_relays(nursery))
    for address, tls in ((with_tls, None), (with_tls, client_tls()), (relay, None)):
        reply = await RemotingClient(nursery, tls=tls).request(address, Command(ECHO, {}, b"x"))
        assert reply.body == b"x"
    # Plain, with TLS, to the relay, and from there to the server.
    assert limits_of_open_connections() - before == {DIALLED: 4, ACCEPTED: 4}
