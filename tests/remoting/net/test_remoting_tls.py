"""TLS and plain connections on one port."""

import ssl
from pathlib import Path

import pytest
import trio
import trio.lowlevel
import trio.testing

from remoting.net.client import RemotingClient
from remoting.net.errors import ConnectFailed, ConnectionClosed
from remoting.net.server import ServerTls
from remoting.wire.command import Command
from tests.remoting.net.recording_server import (
    ECHO,
    Recorder,
    raw_stream,
    start,
    until,
    wait_for,
)

DATA = Path(__file__).parents[1] / "data"


def server_tls(*, required: bool = False) -> ServerTls:
    """A certificate for localhost made for these tests only."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(DATA / "tls-test-certificate.pem", DATA / "tls-test-key.pem")
    return ServerTls(context, required)


def client_tls() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(DATA / "tls-test-certificate.pem"))


@pytest.mark.feature("F19")
async def test_tls_and_plain_clients_share_one_port(nursery: trio.Nursery) -> None:
    address = await start(nursery, Recorder(), tls=server_tls())
    body = bytes(300_000)
    for client in (RemotingClient(nursery, tls=client_tls()), RemotingClient(nursery)):
        reply = await client.request(address, Command(ECHO, {}, body))
        assert reply.body == body


async def test_a_server_that_requires_tls_closes_plain_connections(nursery: trio.Nursery) -> None:
    address = await start(nursery, Recorder(), tls=server_tls(required=True))
    with pytest.raises(ConnectionClosed):
        await RemotingClient(nursery).request(address, Command(ECHO))
    reply = await RemotingClient(nursery, tls=client_tls()).request(address, Command(ECHO))
    assert reply.code == 0


async def test_a_tls_client_of_a_plain_server_fails_to_connect(nursery: trio.Nursery) -> None:
    handler = Recorder()
    address = await start(nursery, handler)
    with pytest.raises(ConnectFailed):
        await RemotingClient(nursery, tls=client_tls()).request(address, Command(ECHO))
    await wait_for(lambda: len(handler.closed) == 1)


async def test_a_tls_handshake_that_is_never_finished_is_given_up(
    mock_clock: trio.testing.MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        handler = Recorder()
        address = await start(nursery, handler, tls=server_tls())
        stream = await raw_stream(address)
        await stream.send_all(b"\x16\x03")
        await until(lambda: len(handler.opened) == 1)
        for _ in range(3):
            await trio.lowlevel.checkpoint()
            await trio.testing.wait_all_tasks_blocked(0.01)
        mock_clock.jump(10.1)
        await until(lambda: len(handler.closed) == 1)
        await stream.aclose()
        nursery.cancel_scope.cancel()


async def test_a_certificate_nobody_vouches_for_is_refused(nursery: trio.Nursery) -> None:
    handler = Recorder()
    address = await start(nursery, handler, tls=server_tls())
    client = RemotingClient(nursery, tls=ssl.create_default_context())
    with pytest.raises(ConnectFailed, match="certificate"):
        await client.request(address, Command(ECHO))
    await wait_for(lambda: len(handler.closed) == 1)
