"""What topics and groups may do, at each moment at which it changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import trio

from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from tests.broker.one_broker import Client, Clock, running_broker, served, until
from tests.broker.pop.popping_broker import popping

CODE = RequestCode
FORBIDDEN = ResponseCode.NO_PERMISSION


async def permit(client: Client, permission: int, topic: str = "T") -> None:
    """Give a topic of one queue its permission."""
    fields: dict[str, Any] = {"topic": topic, "readQueueNums": 1, "writeQueueNums": 1}
    reply = await client.ask(CODE.UPDATE_AND_CREATE_TOPIC, perm=permission, **fields)
    assert reply.code == 0


async def test_each_kind_of_send_stops_and_goes_on_with_the_topics_permission(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as client:
        await permit(client, 6)
        for permission in (6, 4, 6):
            await permit(client, permission)
            allowed = permission == 6
            plain = await client.send("T", b"x")
            delayed = await client.send("T", b"x", i="DELAY\x011\x02")
            half = await client.send(
                "T", b"x", f=4, i="TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01u\x02"
            )
            for reply in (plain, delayed, half):
                assert reply.code == (0 if allowed else FORBIDDEN)
                assert allowed or "sending message to topic T is forbidden" in str(reply.remark)
        assert len(await client.messages("T")) == 2


async def test_what_was_stored_is_read_while_nothing_more_may_be_sent(tmp_path: Path) -> None:
    clock = Clock()
    async with running_broker(tmp_path, clock=clock) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        await permit(client, 6)
        await client.send("T", b"now")
        await client.send("T", b"later", i="DELAY\x011\x02")
        await permit(client, 4)
        clock.now_ms += 1_000

        async def both_are_there() -> bool:
            return [one.body for one in await client.messages("T")] == [b"now", b"later"]

        await until(both_are_there)


async def test_a_waiting_pull_is_refused_when_its_topic_was_closed_meanwhile(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as client, trio.open_nursery() as nursery:
        await permit(client, 6)
        replies: list[Command] = []

        async def wait() -> None:
            replies.append(await client.pull("T", 0, sysFlag=6))

        nursery.start_soon(wait)
        await until_waiting(client)
        await permit(client, 2)
        assert (await client.send("T", b"x")).code == 0
        await until(lambda: given(replies))
        assert replies[0].code == FORBIDDEN
        assert not replies[0].body
        assert (await client.pull("T", 0)).code == FORBIDDEN
        await permit(client, 6)
        assert len(await client.messages("T")) == 1


async def test_a_waiting_pull_is_refused_when_its_group_was_switched_off_meanwhile(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as client, trio.open_nursery() as nursery:
        await permit(client, 6)
        replies: list[Command] = []

        async def wait() -> None:
            replies.append(await client.pull("T", 0, sysFlag=6))

        nursery.start_soon(wait)
        await until_waiting(client)
        await put_group(client, consumeEnable=False)
        await client.send("T", b"x")
        await until(lambda: given(replies))
        assert replies[0].code == FORBIDDEN
        assert (await client.heartbeat("c", "g", "T")).code == 0, "as in RocketMQ, it may be there"
        assert (await client.pull("T", 0)).code == FORBIDDEN
        await put_group(client, consumeEnable=True)
        assert len(await client.messages("T")) == 1


async def test_pops_follow_topic_and_group(tmp_path: Path) -> None:
    async with popping(tmp_path) as consumer:
        client = consumer.client
        await permit(client, 6)
        await consumer.send(b"a")
        await permit(client, 2)
        assert (await consumer.ask()).code == FORBIDDEN
        await permit(client, 6)
        await put_group(client, consumeEnable=False)
        assert (await consumer.ask()).code == FORBIDDEN
        await put_group(client, consumeEnable=True)
        assert await consumer.bodies() == [b"a"]


async def test_a_failed_message_goes_to_no_topic_that_is_closed(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        await client.send("T", b"x")
        (stored,) = await client.messages("T")
        await client.heartbeat("c", "g", "T")

        async def send_back(level: int) -> Command:
            back: dict[str, Any] = {"offset": stored.physical_offset, "delayLevel": level}
            return await client.ask(CODE.CONSUMER_SEND_MSG_BACK, group="g", **back)

        await permit(client, 4, "%RETRY%g")
        refused = await send_back(0)
        assert refused.code == FORBIDDEN
        assert "the topic[%RETRY%g] sending message is forbidden" in str(refused.remark)
        await permit(client, 4, "%DLQ%g")
        assert (await send_back(-1)).code == FORBIDDEN
        await permit(client, 6, "%RETRY%g")
        assert (await send_back(0)).code == 0
        await permit(client, 6, "%DLQ%g")
        assert (await send_back(-1)).code == 0


async def given(replies: list[Command]) -> bool:
    return bool(replies)


async def until_waiting(client: Client) -> None:
    """Wait until a pull is held."""

    async def is_held() -> bool:
        reply = await client.ask(CODE.GET_BROKER_RUNTIME_INFO)
        return bool(json.loads(reply.body)["table"]["pullHeld"] == "1")

    await until(is_held)


async def put_group(client: Client, **more: object) -> None:
    body = json.dumps({"groupName": "g", **more}).encode()
    assert (await client.ask(CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)).code == 0
