"""Of clients that send at the same moment, each pass of the loop serves a few."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest
import trio
import trio.testing

from dledger.network.secure_stream import SecureStream
from remoting.net import client_work
from remoting.net.address import Address
from remoting.net.server import Server, listen
from remoting.net.tls import ServerTls
from remoting.wire.codes import RequestCode
from remoting.wire.command import ONEWAY_FLAG, Command
from remoting.wire.frame import encode_command
from tests.remoting.net.certificates import HERE, client_tls, server_tls
from tests.remoting.net.recording_server import Recorder, wait_for

CLIENTS = 150
# A client that is served takes a few steps, some of them of tasks of its own.
MOST_STEPS_A_PASS = 75

ONEWAY = encode_command(Command(RequestCode.UPDATE_CONSUMER_OFFSET, flag=ONEWAY_FLAG))


class Passes(trio.abc.Instrument):
    """Counts the steps of tasks in each pass of the loop.

    Attributes:
        most: in one pass.
        most_reads: how often records of TLS were decrypted, in one pass.
    """

    def __init__(self) -> None:
        self.most = self._steps = self.most_reads = self._reads = 0

    def after_io_wait(self, timeout: float) -> None:
        self._steps = self._reads = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._steps += 1
        self.most = max(self.most, self._steps)

    def note_read(self) -> None:
        self._reads += 1
        self.most_reads = max(self.most_reads, self._reads)


async def started(nursery: trio.Nursery, handler: Recorder, tls: ServerTls | None) -> int:
    """Serve clients of a trusted host; return the port."""
    server = Server(handler, tls=tls)
    nursery.start_soon(server.run)
    listeners = await listen(HERE, 0)

    async def take(task_status: trio.TaskStatus[Address]) -> None:
        await server.take(
            listeners, trusts_proxy=lambda _host: tls is None, task_status=task_status
        )

    return int((await nursery.start(take)).port)


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def dialled(opened: ExitStack, port: int) -> list[socket.socket]:
    return [opened.enter_context(socket.create_connection((HERE, port))) for _ in range(CLIENTS)]


async def at_once(
    clients: Sequence[socket.socket], data: bytes, handled: Sequence[object]
) -> Passes:
    await trio.testing.wait_all_tasks_blocked(0.01)
    passes = Passes()
    trio.lowlevel.add_instrument(passes)
    for client in clients:
        client.sendall(data)
    await wait_for(lambda: len(handled) == CLIENTS)
    trio.lowlevel.remove_instrument(passes)
    return passes


async def test_the_first_bytes_of_clients_of_a_trusted_host(
    nursery: trio.Nursery, opened: ExitStack
) -> None:
    handler = Recorder()
    clients = dialled(opened, await started(nursery, handler, tls=None))
    passes = await at_once(clients, ONEWAY, handler.oneways)
    assert passes.most <= MOST_STEPS_A_PASS


async def test_the_first_bytes_of_clients_with_tls(
    nursery: trio.Nursery, opened: ExitStack
) -> None:
    handler = Recorder()
    clients = dialled(opened, await started(nursery, handler, server_tls(required=True)))
    await wait_for(lambda: len(handler.opened) == CLIENTS)
    passes = await at_once(clients, b"\x16 and no more", handler.closed)
    assert passes.most <= MOST_STEPS_A_PASS


async def test_the_requests_of_clients_with_tls(
    nursery: trio.Nursery, opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = Recorder()
    port = await started(nursery, handler, server_tls(required=True))

    def secured() -> list[socket.socket]:
        context = client_tls()._context
        return [
            opened.enter_context(context.wrap_socket(one, server_hostname=HERE))
            for one in dialled(opened, port)
        ]

    clients = await trio.to_thread.run_sync(secured)
    reads = Passes()
    decrypted = SecureStream._decrypted

    def noted(stream: SecureStream, max_bytes: int) -> bytes | None:
        reads.note_read()
        return decrypted(stream, max_bytes)

    monkeypatch.setattr(SecureStream, "_decrypted", noted)
    trio.lowlevel.add_instrument(reads)
    await at_once(clients, ONEWAY, handler.oneways)
    assert 0 < reads.most_reads <= client_work._COST_A_SLICE
