"""Many of the dearest requests in one write, of each code: others are answered beside them.

How long they wait is counted in the processor time of the server's thread: what other processes
and the test itself take of this machine is not the server's doing.
"""

from __future__ import annotations

import gc
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio

from bench.costs.dearest import dearest_requests
from bench.costs.full_broker import TOPIC, FullBroker
from bench.costs.full_nameserver import FullNameServer, Routes, dearest_of_nameserver, register
from bench.costs.fullness import Fullness, evenly_full
from dledger import collect_seldom
from nameserver.server import serve_nameserver
from remoting.net.address import Address, parse_address
from remoting.wire.codes import RequestCode, request_name
from remoting.wire.command import ONEWAY_FLAG, Command
from remoting.wire.frame import FrameDecoder, encode_command
from tests.broker.one_broker import running_broker

Dearest = Mapping[int, Mapping[str, Command]]


class Flood(NamedTuple):
    """How much is sent of each request in one write, and how long others are watched then."""

    requests: int
    flood_s: float


# What holds the loop at once is seen in the first ping.
BRIEF, LONG = Flood(20, 0.02), Flood(1000, 1.0)

MAX_BYTES_AT_ONCE = 8 * 1024 * 1024

# What a ping may wait for, of the server's processor time.
MAX_WAIT_S = 0.25

# The group confirms a ping when it has applied what came before: batches of 8192 messages each.
LONGER_S = {"SEND_BATCH_MESSAGE: many messages": 1.5}


# A server that spends no more on a ping has nothing else to do. Both in its processor time.
CALM_S, SETTLE_S = 0.004, 20.0

PING_A_BROKER = Command(RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"})
PING_A_NAMESERVER = Command(RequestCode.BROKER_HEARTBEAT, {"brokerAddr": "10.9.9.9:1"})


@pytest.fixture(autouse=True)
def collected_as_in_a_broker() -> Iterator[None]:
    """The collector does not look at what tests before have left: that takes 0.1 s, as often as not
    in the server's thread.
    """
    thresholds = gc.get_threshold()
    collect_seldom()
    yield
    gc.set_threshold(*thresholds)


class Thread:
    """A server in a thread of its own.

    Args:
        serve: runs it until cancelled; is started with `nursery.start`, and tells what it is asked.

    Attributes:
        address: where it listens.
        dearest: what it is flooded with.
    """

    def __init__(self, serve: Callable[..., Any]) -> None:
        self._serve = serve
        self._ready = threading.Event()
        self._scope = trio.CancelScope()
        self._thread = threading.Thread(target=trio.run, args=(self._run,))
        self.address = ""
        self.dearest: Dearest = {}

    async def _run(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    self.address, self.dearest = await nursery.start(self._serve)
                    self._ready.set()
        finally:
            self._ready.set()

    @contextmanager
    def running(self) -> Iterator[Thread]:
        self._thread.start()
        self._ready.wait()
        try:
            yield self
        finally:
            self._token.run_sync_soon(self._scope.cancel)
            self._thread.join()

    def processor_s(self) -> float:
        assert self._thread.ident is not None
        return time.clock_gettime(time.pthread_getcpuclockid(self._thread.ident))


class BlockingClient:
    """One connection."""

    def __init__(self, address: str) -> None:
        host, port = parse_address(address)
        self._socket = socket.create_connection((host, port), 30)
        self._socket.settimeout(30)
        self._decoder = FrameDecoder()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> None:
        """Wait for one reply."""
        while True:
            data = self._socket.recv(1 << 20)
            assert data, "the server has closed the connection"
            if any(command.is_response for command in self._decoder.feed(data)):
                return

    def shut(self) -> None:
        """End what another thread sends."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()


def flood(server: Thread, command: Command, ping: Command, size: Flood) -> float:
    """The longest wait of a ping beside a flood of a request, in the server's processor time."""
    frame = encode_command(
        Command(command.code, dict(command.fields), command.body, flag=ONEWAY_FLAG)
    )
    count = max(1, min(size.requests, MAX_BYTES_AT_ONCE // len(frame)))
    ping_frame = encode_command(Command(ping.code, dict(ping.fields), opaque=1))
    longest = 0.0
    with (
        closing(BlockingClient(server.address)) as attacker,
        closing(BlockingClient(server.address)) as other,
    ):
        settle(server, other, ping_frame)
        writing = threading.Thread(target=send_what_is_taken, args=(attacker, frame * count))
        writing.start()
        end = time.monotonic() + size.flood_s
        while time.monotonic() < end:
            before = server.processor_s()
            other.send(ping_frame)
            other.receive()
            longest = max(longest, server.processor_s() - before)
            time.sleep(0.002)
        attacker.shut()
        writing.join()
    return longest


def settle(server: Thread, other: BlockingClient, ping_frame: bytes) -> None:
    """Wait until the server has worked off what was sent before."""
    end = server.processor_s() + SETTLE_S
    before = -math.inf
    while server.processor_s() - before > CALM_S and server.processor_s() < end:
        before = server.processor_s()
        other.send(ping_frame)
        other.receive()


def send_what_is_taken(attacker: BlockingClient, data: bytes) -> None:
    """Send all of it, unless the connection is closed before."""
    with suppress(OSError):
        attacker.send(data)


def flooded(server: Thread, ping: Command, size: Flood) -> dict[str, float]:
    """The waits beside floods that were too long, by what was sent."""
    waits = {
        f"{request_name(code)}: {what}": flood(server, command, ping, size)
        for code, requests in server.dearest.items()
        for what, command in requests.items()
    }
    for name in sorted(waits, key=waits.__getitem__, reverse=True)[:10]:
        print(f"{name}: {1000 * waits[name]:.1f} ms")
    return {
        name: wait_s for name, wait_s in waits.items() if wait_s >= LONGER_S.get(name, MAX_WAIT_S)
    }


async def serve_full_broker(
    folder: Path, fullness: Fullness, *, task_status: trio.TaskStatus[tuple[str, Dearest]]
) -> None:
    async with running_broker(folder) as (broker, _nursery):
        full = FullBroker(broker, fullness)
        await full.fill()
        task_status.started((str(broker.config.address), dearest_requests(full)))
        await trio.sleep_forever()


async def serve_full_nameserver(
    routes: Routes, *, task_status: trio.TaskStatus[tuple[str, Dearest]]
) -> None:
    async with trio.open_nursery() as nursery:
        address: Address = await nursery.start(partial(serve_nameserver, "127.0.0.1", 0))
        task_status.started((str(address), dearest_of_nameserver(FullNameServer(routes))))


@pytest.mark.long
def test_many_of_each_request_hold_up_nobody_at_a_broker(tmp_path: Path) -> None:
    with Thread(partial(serve_full_broker, tmp_path, evenly_full(100))).running() as server:
        assert flooded(server, PING_A_BROKER, BRIEF) == {}


@pytest.mark.long
def test_a_thousand_of_each_request_hold_up_nobody_at_a_full_broker(tmp_path: Path) -> None:
    with Thread(partial(serve_full_broker, tmp_path, Fullness())).running() as server:
        assert flooded(server, PING_A_BROKER, LONG) == {}


@pytest.mark.slow
def test_many_of_each_request_hold_up_nobody_at_a_name_server() -> None:
    routes = Routes(brokers=200, topics=10_000, topics_of_broker=5_000)
    with (
        Thread(partial(serve_full_nameserver, routes)).running() as server,
        closing(BlockingClient(server.address)) as brokers,
    ):
        for number in range(routes.brokers):
            brokers.send(encode_command(register(number, ["everywhere"])))
            brokers.receive()
        assert flooded(server, PING_A_NAMESERVER, BRIEF) == {}
