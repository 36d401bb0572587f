from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
import trio

from bench.costs.asker import Asker
from broker.sends.sends import SENDS
from dledger.free_ports import free_ports
from nameserver.server import serve_nameserver
from remoting.bodies.route import TopicRoute, decode_route
from remoting.message.batch import MAX_BATCH_MESSAGES, BatchMessage, encode_batch_body
from remoting.message.record import decode_records
from remoting.net.client import RemotingClient
from remoting.net.server import serve
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from tests.broker.one_broker import Client, running_broker, send_fields, until
from tests.broker.three_brokers import group_of_three


@pytest.mark.feature("F21", "F22")
async def test_a_new_leader_goes_on_with_the_messages_and_offsets_of_the_old_one(
    tmp_path: Path,
) -> None:
    async with group_of_three(tmp_path) as group:
        first, client = await group.leader()
        for number in range(5):
            assert (await client.send("T", b"%d" % number)).code == 0
        await client.heartbeat("c", "g", "T")
        await client.ask(15, consumerGroup="g", topic="T", queueId=0, commitOffset=3)
        group.stop(first)
        second, client = await group.leader()
        assert second != first
        assert (await client.send("T", b"5")).fields["queueOffset"] == "5"
        assert [m.body for m in await client.messages("T")] == [b"%d" % n for n in range(6)]
        reply = await client.ask(14, consumerGroup="g", topic="T", queueId=0)
        assert reply.fields == {"offset": "3"}
        await group.start(first)
        back = group.brokers[first]

        async def has_caught_up() -> bool:
            return back.machine.state == group.brokers[second].machine.state

        await until(has_caught_up)


async def test_a_follower_refuses_what_only_the_leader_may_answer(tmp_path: Path) -> None:
    async with group_of_three(tmp_path) as group:
        leader, _client = await group.leader()
        follower = next(node_id for node_id in group.brokers if node_id != leader)
        client = Client(group.nursery, str(group.configs[follower].address))
        unavailable = ResponseCode.SERVICE_NOT_AVAILABLE
        assert (await client.send("T", b"x")).code == unavailable
        assert (await client.pull("T", 0, sysFlag=6)).code == unavailable
        assert (await client.heartbeat("c", "g", "T")).code == unavailable
        assert (await client.ask(38, consumerGroup="g")).code == unavailable
        assert (await client.ask(12345)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert b'"dledgerRole":"follower"' in (await client.ask(28)).body


async def test_a_leader_that_loses_its_quorum_answers_its_waiting_pulls_and_serves_no_more(
    tmp_path: Path,
) -> None:
    async with group_of_three(tmp_path) as group:
        leader, client = await group.leader()
        await client.send("T", b"x")
        replies: list[Command] = []

        async def pull() -> None:
            replies.append(await client.pull("T", 1, sysFlag=6))

        async with trio.open_nursery() as waiting:
            waiting.start_soon(pull)
            for node_id in list(group.brokers):
                if node_id != leader:
                    group.stop(node_id)
        assert replies[0].code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert (await client.send("T", b"y")).code == ResponseCode.SERVICE_NOT_AVAILABLE


# --- name servers ---------------------------------------------------------------------------------


async def route(client: RemotingClient, nameserver: str, topic: str) -> TopicRoute | None:
    with trio.fail_after(5):
        reply = await client.request(nameserver, Command(105, {"topic": topic}))
    return decode_route(reply.body) if reply.code == 0 else None


@pytest.mark.feature("F11")
async def test_the_route_follows_the_leader_and_knows_a_topic_before_its_first_send_is_answered(
    tmp_path: Path,
) -> None:
    async with trio.open_nursery() as nursery:
        address = await nursery.start(serve_nameserver, "127.0.0.1", 0)
        nameserver = str(address)
        asking = RemotingClient(nursery)
        async with group_of_three(tmp_path, (nameserver,)) as group:
            first, client = await group.leader()
            assert (await client.send("T", b"x")).code == 0
            found = await route(asking, nameserver, "T")
            assert found is not None
            assert found.queues[0].write_queue_count == 4
            assert found.brokers[0].addresses == {0: str(group.configs[first].address)}
            group.stop(first)
            second, _client = await group.leader()

            async def is_new() -> bool:
                now = await route(asking, nameserver, "T")
                expected = {0: str(group.configs[second].address)}
                return now is not None and now.brokers[0].addresses == expected

            await until(is_new)
        nursery.cancel_scope.cancel()


async def test_a_name_server_that_is_not_there_holds_nobody_up_and_is_told_when_it_comes(
    tmp_path: Path,
) -> None:
    [port] = free_ports(1)
    nameserver = f"127.0.0.1:{port}"
    async with (
        trio.open_nursery() as nursery,
        running_broker(tmp_path, nameservers=(nameserver,)) as (broker, inner),
    ):
        client = Client(inner, str(broker.config.address))
        with trio.fail_after(3):
            assert (await client.send("T", b"x")).code == 0
        await nursery.start(serve_nameserver, "127.0.0.1", port)
        asking = RemotingClient(nursery)

        async def is_known() -> bool:
            return await route(asking, nameserver, "T") is not None

        await until(is_known)
        nursery.cancel_scope.cancel()


async def test_a_name_server_that_never_answers_delays_a_new_topic_by_a_second_at_most(
    tmp_path: Path,
) -> None:
    class Silent:
        def on_open(self, connection: object) -> None: ...
        def on_commands(self, connection: object, commands: Sequence[object]) -> int:
            return len(commands)

        def on_close(self, connection: object) -> None: ...

    async with trio.open_nursery() as nursery:
        address = await nursery.start(partial(serve, "127.0.0.1", 0, Silent()))
        async with running_broker(tmp_path, nameservers=(str(address),)) as (broker, inner):
            client = Client(inner, str(broker.config.address))
            with trio.fail_after(4):
                assert (await client.send("T", b"x")).code == 0
            assert len(decode_records((await client.pull("T", 0)).body)) == 1
        nursery.cancel_scope.cancel()


# --- answers in steps -----------------------------------------------------------------------------


class StepByStep(Asker):
    """A client whose answers in steps are taken by the test."""

    def __init__(self) -> None:
        super().__init__(1)
        self.steps: list[Iterator[object]] = []

    def go_on(self, steps: Iterator[object]) -> None:
        self.steps.append(steps)


def long_batch() -> Command:
    body = encode_batch_body([BatchMessage(b"x")] * MAX_BATCH_MESSAGES)
    fields = {name: str(value) for name, value in send_fields("T", 0).items()}
    return Command(320, fields | {"m": "true"}, body)


async def test_a_long_batch_is_taken_in_steps_and_stored_without_another_request(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        assert (await client.send("T", b"first")).code == 0
        reply = await client.ask(320, long_batch().body, **long_batch().fields)
        assert (reply.code, reply.fields["queueOffset"]) == (0, "1")
        assert len(set(reply.fields["msgId"].split(","))) == MAX_BATCH_MESSAGES
        asker = StepByStep()
        broker.requests.on_commands(asker, [long_batch()])  # type: ignore[arg-type]
        assert len(list(asker.steps[0])) > MAX_BATCH_MESSAGES // 2048
        assert broker.parts[SENDS].waiting_messages == 0


async def test_an_answer_in_steps_ends_when_this_member_leads_no_more(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        assert (await client.send("T", b"first")).code == 0
        asker = StepByStep()
        broker.requests.on_commands(asker, [long_batch()])  # type: ignore[arg-type]
        (steps,) = asker.steps
        next(steps)
        assert asker.last is None
        broker.requests.let_go()
        for _step in steps:
            pass
        assert asker.last is not None
        assert asker.last.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert broker.parts[SENDS].waiting_messages == 0
