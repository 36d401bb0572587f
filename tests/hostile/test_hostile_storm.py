"""As many consumers as come after a failover, all at once: the leader goes on leading."""

from __future__ import annotations

import resource
import time
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from remoting.bodies.heartbeat import ConsumerData, Heartbeat, SubscriptionData, encode_heartbeat
from remoting.bodies.table import decode_table
from remoting.net.address import parse_address
from remoting.net.client import RemotingClient
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from remoting.wire.errors import RemotingError
from remoting.wire.frame import encode_command
from tests.hostile.watched_group import watched_group

CONSUMERS = 10_000
MEMBERS_OF_A_GROUP = 10
TOPICS_OF_A_CONSUMER = 10

# Descriptors of this process and of each broker, besides those of the consumers.
SPARE_DESCRIPTORS = 1_000


async def leader(client: RemotingClient, addresses: list[str]) -> tuple[str, int]:
    """Where the leader serves, and its term."""
    with trio.fail_after(60):
        while True:
            for address in addresses:
                try:
                    asked = Command(RequestCode.GET_BROKER_RUNTIME_INFO)
                    figures = decode_table((await client.request(address, asked, 10)).body)
                except RemotingError:
                    continue
                if figures["dledgerReady"] == "true":
                    return address, int(figures["dledgerTerm"])
            await trio.sleep(0.1)


def heartbeat(number: int) -> bytes:
    """The frame of one consumer."""
    topics = [SubscriptionData(f"t{topic}") for topic in range(TOPICS_OF_A_CONSUMER)]
    data = ConsumerData(f"g{number // MEMBERS_OF_A_GROUP}", subscriptions=topics)
    body = encode_heartbeat(Heartbeat(f"c{number}", [], [data]))
    return encode_command(Command(RequestCode.HEART_BEAT, {}, body, opaque=1))


@pytest.mark.long
async def test_ten_thousand_consumers_that_come_at_once_depose_nobody(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < CONSUMERS + SPARE_DESCRIPTORS:
        pytest.skip(f"{hard} descriptors a process are too few for {CONSUMERS} connections")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        await come_at_once(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def come_at_once(folder: Path) -> None:
    with watched_group(folder, brokers=3) as group:
        addresses = [broker.address for broker in group.brokers]
        async with trio.open_nursery() as nursery:
            client = RemotingClient(nursery)
            await trio.sleep(5)  # processes that begin take turns of this machine's processors
            address, term = await leader(client, addresses)
            host, port = parse_address(address)
            streams = [await trio.open_tcp_stream(host, port) for _ in range(CONSUMERS)]
            frames = [heartbeat(number) for number in range(CONSUMERS)]
            answered = 0

            async def come(stream: trio.SocketStream, frame: bytes) -> None:
                nonlocal answered
                with suppress(trio.BrokenResourceError):
                    await stream.send_all(frame)
                    received = await stream.receive_some(1 << 16)
                    answered += bool(received)

            began = time.monotonic()
            with trio.move_on_after(120):
                async with trio.open_nursery() as consumers:
                    for stream, frame in zip(streams, frames, strict=True):
                        consumers.start_soon(come, stream, frame)
            print("".join(line for one in group.brokers for line in one.last_errors(5)))
            print(f"{answered} answered in {time.monotonic() - began:.1f} s")
            after = await leader(client, addresses)
            for stream in streams:
                await trio.aclose_forcefully(stream)
            nursery.cancel_scope.cancel()
        assert after == (address, term)
        assert answered == CONSUMERS
