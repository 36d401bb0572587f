"""A member that is asked to end hands leadership over, and leaves no client without an answer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import trio

from broker.offsets.state import OFFSETS
from broker.serving import ending
from dledger.free_ports import free_addresses
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from remoting.wire.frame import FrameDecoder, encode_command
from tests.broker.one_broker import Client, running_broker, send_fields, until
from tests.broker.three_brokers import group_of_three


async def send_all(client: Client, count: int, replies: list[Command]) -> None:
    """Send so many messages without waiting for their answers, which go into `replies`."""

    async def send(number: int) -> None:
        replies.append(await client.send("T", b"%d" % number))

    async with trio.open_nursery() as nursery:
        for number in range(count):
            nursery.start_soon(send, number)


async def stored_at(client: Client) -> int:
    return int((await client.ask(30, topic="T", queueId=0)).fields["offset"])


async def test_a_leader_that_ends_answers_each_request_and_another_one_leads(
    tmp_path: Path,
) -> None:
    async with group_of_three(tmp_path) as group:
        old, client = await group.leader()
        assert (await client.send("T", b"first")).code == 0
        replies: list[Command] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_all, client, 3000, replies)
            await until_some(replies)
            term = group.brokers[old].node.term
            await group.brokers[old].end()
        group.stop(old)
        new, client = await group.leader()
        assert new != old
        # It was not elected because the old one was missed: leadership was handed to it.
        assert group.brokers[new].node.term == term + 1
        codes = [reply.code for reply in replies]
        assert len(codes) == 3000
        assert set(codes) <= {ResponseCode.SUCCESS, ResponseCode.SERVICE_NOT_AVAILABLE}
        assert await stored_at(client) == 1 + codes.count(ResponseCode.SUCCESS)


async def until_some(replies: list[Command]) -> None:
    async def has_some() -> bool:
        return len(replies) >= 100

    await until(has_some)


async def test_a_pull_that_waits_is_answered_when_its_broker_ends(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        await client.send("T", b"x")
        reply: list[Command] = []

        async def pull() -> None:
            reply.append(await client.pull("T", 1, sysFlag=6))

        async with trio.open_nursery() as pulls:
            pulls.start_soon(pull)
            await until_held(client)
            await broker.end()
        assert reply[0].code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert reply[0].fields["nextBeginOffset"] == "1"
        assert (await client.pull("T", 0)).code == ResponseCode.SERVICE_NOT_AVAILABLE


async def until_held(client: Client) -> None:
    async def is_held() -> bool:
        return b'"pullHeld":"1"' in (await client.ask(28)).body

    await until(is_held)


async def test_a_request_that_comes_too_late_is_sent_elsewhere(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        assert (await client.send("T", b"x")).code == 0
        broker.requests.begin_ending()
        assert (await client.send("T", b"y")).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert (await client.ask(28)).code == 0  # its figures are still to be had


async def test_a_leader_whose_group_is_gone_ends_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "TRANSFER_S", 0.3)
    monkeypatch.setattr(ending, "APPEND_S", 0.3)
    async with group_of_three(tmp_path) as group:
        leader, client = await group.leader()
        assert (await client.send("T", b"x")).code == 0
        for node_id in list(group.brokers):
            if node_id != leader:
                group.stop(node_id)
        with trio.fail_after(10):
            await group.brokers[leader].end()


async def test_a_pull_is_answered_while_its_broker_ends_and_commits_nothing(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        await client.send("T", b"x")
        await client.heartbeat("c", "g", "T")
        offsets = broker.machine.state[OFFSETS]

        async def is_committed() -> bool:
            return offsets.committed("g", "T", 0) == 1

        assert (await client.pull("T", 0, sysFlag=1, commitOffset=1)).code == 0
        await until(is_committed)
        broker.requests.begin_ending()
        # There is no other leader to pull from yet.
        assert (await client.pull("T", 0, sysFlag=1, commitOffset=0)).code == 0
        await broker.end()
        assert await is_committed()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_process_ends_well_at_a_signal_with_requests_under_way(
    tmp_path: Path, number: signal.Signals
) -> None:
    peer, listen = free_addresses(2)
    command = ["-m", "broker", "--group", "b", "--node", "n0", "--peers", f"n0={peer}"]
    places = ["--listen", listen, "--dir", str(tmp_path)]
    process = await trio.lowlevel.open_process(
        [sys.executable, *command, *places], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    said = b""
    while b"leader of term" not in said or said.endswith(b"not ready yet\n"):
        said += await process.stdout.receive_some()
    host, port = listen.split(":")
    stream = await trio.open_tcp_stream(host, int(port))
    fields = {name: str(value) for name, value in send_fields("T").items()}
    sends = [encode_command(Command(310, fields, b"x", opaque=at)) for at in range(3000)]
    await stream.send_all(b"".join(sends))
    os.kill(process.pid, number)
    decoder, codes = FrameDecoder(), Counter[int]()
    with trio.fail_after(30):
        while data := await stream.receive_some():
            codes.update(reply.code for reply in decoder.feed(bytes(data)))
        assert await process.wait() == 0
    assert codes.total() == 3000
    assert codes.keys() <= {ResponseCode.SUCCESS, ResponseCode.SERVICE_NOT_AVAILABLE}
    await stream.aclose()
    await process.stdout.aclose()
