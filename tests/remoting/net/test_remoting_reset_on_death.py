"""A connection that dies with its server is reset; one that a server ends comes to an end in order.

Java's clients of version 4 fail what waits on a connection at a reset only: after an end in order
they wait 30 s for a pull.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from remoting.net.address import Address, parse_address
from remoting.net.proxy_header import encode_proxy_header
from remoting.wire.command import ONEWAY_FLAG, Command
from remoting.wire.frame import FrameDecoder, encode_command
from tests.remoting.net.certificates import client_tls, server_tls
from tests.remoting.net.recording_server import (
    ECHO,
    SILENT,
    Recorder,
    raw_stream,
    start,
    wait_for,
)

pytestmark = pytest.mark.forked_programs

ROOT = Path(__file__).parents[3]

# Serves at a free port, which it prints, and believes PROXY headers.
SERVER = """
import trio
from remoting.net.server import Server, listen
from tests.remoting.net.recording_server import Recorder

async def main() -> None:
    (listener,) = await listen("127.0.0.1", 0)
    print(*listener.socket.getsockname(), sep=":", flush=True)
    server = Server(Recorder())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run)
        await server.take([listener], trusts_proxy=lambda host: True)

trio.run(main)
"""


@contextmanager
def killed_when_answered(first: bytes = b"") -> Iterator[socket.socket]:
    """A connection on which two requests were sent, whose server was killed after one answer."""
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert server.stdout is not None
        with server.stdout, socket.socket() as connection:
            connection.settimeout(20)
            connection.connect(tuple(parse_address(server.stdout.readline().strip())))
            connection.sendall(first + encode_command(Command(SILENT, opaque=1)))
            connection.sendall(encode_command(Command(ECHO, opaque=2)))
            assert connection.recv(1)
            server.kill()
            server.wait()
            yield connection
    finally:
        server.kill()
        server.wait()


def read_to_the_end(connection: socket.socket) -> bytes:
    received = b""
    while data := connection.recv(65536):
        received += data
    return received


def test_a_connection_is_reset_when_its_server_is_killed() -> None:
    with killed_when_answered() as connection, pytest.raises(ConnectionResetError):
        read_to_the_end(connection)


def test_a_relay_gets_the_last_answers_of_a_server_that_is_killed_and_then_the_end() -> None:
    header = encode_proxy_header(Address("10.1.2.3", 4), Address("127.0.0.1", 5))
    with killed_when_answered(header) as connection:
        assert read_to_the_end(connection)


async def ended_by_the_server(*commands: Command, eof: bool = False) -> bytes:
    """What a client receives whose server ends when it has seen these requests.

    Raises trio.BrokenResourceError: the connection was reset.
    """
    handler = Recorder()
    async with trio.open_nursery() as nursery:
        address = await start(nursery, handler)
        stream = await raw_stream(address)
        marker = Command(ECHO, opaque=99)
        await stream.send_all(b"".join(map(encode_command, (*commands, marker))))
        received = bytes(await stream.receive_some())
        if eof:
            await stream.send_eof()
            await wait_for(lambda: len(handler.closed) == 1)
        nursery.cancel_scope.cancel()
    async with stream:
        while data := await stream.receive_some():
            received += data
    return received


async def test_a_connection_without_waiting_requests_ends_in_order() -> None:
    assert await ended_by_the_server()
    assert await ended_by_the_server(Command(SILENT, flag=ONEWAY_FLAG))


async def test_a_connection_whose_requests_wait_is_reset() -> None:
    with pytest.raises(trio.BrokenResourceError):
        await ended_by_the_server(Command(SILENT))


async def test_a_connection_that_its_client_has_ended_is_not_reset() -> None:
    assert await ended_by_the_server(Command(SILENT), eof=True)


@pytest.mark.parametrize("is_secured", [False, True])
async def test_a_client_gets_all_that_was_sent_before_the_end(
    nursery: trio.Nursery, *, is_secured: bool
) -> None:
    handler = Recorder()
    address = await start(nursery, handler, tls=server_tls() if is_secured else None)
    made = trio.socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await made.connect(tuple(parse_address(address)))
    plain = trio.SocketStream(made)
    stream: trio.abc.Stream = plain
    if is_secured:
        stream = await client_tls().dialled(plain, "localhost")
    # The server's side of the system takes it, and the client's does not yet.
    body = bytes(12_000)
    await stream.send_all(encode_command(Command(ECHO, body=body)))
    decoder = FrameDecoder()
    decoder.feed(bytes(await stream.receive_some(1)))
    await wait_for(lambda: not handler.opened[0].unsent_bytes)
    handler.opened[0].close_when_sent("test")
    await wait_for(lambda: len(handler.closed) == 1)
    with trio.fail_after(20):
        while not (found := decoder.feed(bytes(await stream.receive_some(65536)))):
            pass
    assert found[0].body == body
    await trio.aclose_forcefully(stream)
