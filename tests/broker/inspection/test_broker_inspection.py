"""What operators ask about consumer groups."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from broker.inspection import forwarding
from broker.limits import BrokerLimits
from broker.producers import proxies
from remoting.bodies.heartbeat import (
    PROXIES_GROUP,
    ConsumerData,
    Heartbeat,
    MessageModel,
    encode_heartbeat,
)
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from tests.broker.one_broker import START_MS, Client, Clock, running_broker, served

CODE = RequestCode


async def commit(client: Client, offset: int, group: str = "g", topic: str = "T") -> int:
    fields: dict[str, Any] = {"consumerGroup": group, "topic": topic, "queueId": 0}
    return (await client.ask(15, commitOffset=offset, **fields)).code


async def committed(client: Client, group: str, topic: str = "T") -> int | None:
    fields: dict[str, Any] = {"consumerGroup": group, "topic": topic, "queueId": 0}
    reply = await client.ask(14, setZeroIfNotFound="false", **fields)
    return int(reply.fields["offset"]) if reply.code == 0 else None


async def test_a_consumer_answers_for_itself_and_its_words_are_passed_on(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        operator, consumer = (Client(nursery, str(broker.config.address)) for _ in range(2))
        sent = await operator.send("T", b"x")
        await consumer.heartbeat("c1", "g", "T")
        consumer.answers_with = b'{"mqTable":{{"queueId":0}:1}}'
        fields: dict[str, Any] = {"consumerGroup": "g", "clientId": "c1"}
        told = await operator.ask(CODE.GET_CONSUMER_RUNNING_INFO, jstackEnable="false", **fields)
        assert (told.code, told.body) == (0, b'{"mqTable":{{"queueId":0}:1}}')
        asked = consumer.notices[-1]
        assert asked.code == CODE.GET_CONSUMER_RUNNING_INFO
        assert asked.fields["jstackEnable"] == "false"
        told = await operator.ask(
            CODE.CONSUME_MESSAGE_DIRECTLY, msgId=sent.fields["msgId"], **fields
        )
        assert told.code == 0
        asked = consumer.notices[-1]
        assert asked.fields["brokerName"] == "broker-a"
        (message,) = await operator.messages("T")
        assert len(asked.body) == int.from_bytes(asked.body[:4], "big")
        assert message.body in asked.body


@pytest.mark.parametrize(
    ("code", "more"),
    [
        (CODE.GET_CONSUMER_RUNNING_INFO, {"clientId": "other"}),
        (CODE.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "other"}),
        (CODE.CONSUME_MESSAGE_DIRECTLY, {"msgId": "x"}),
        (CODE.CONSUME_MESSAGE_DIRECTLY, {"msgId": "0" * 32}),
        (CODE.CONSUME_MESSAGE_DIRECTLY, {"msgId": "F" * 32}),
    ],
)
async def test_a_consumer_or_a_message_that_is_not_here_is_refused(
    tmp_path: Path, code: int, more: dict[str, Any]
) -> None:
    async with served(tmp_path) as client:
        await client.send("T", b"x")
        await client.heartbeat("c1", "g", "T")
        fields = {"consumerGroup": "g", "clientId": "c1", **more}
        told = await client.ask(code, **fields)
        assert (told.code, bool(told.remark)) == (ResponseCode.SYSTEM_ERROR, True)


async def test_a_consumer_that_does_not_answer_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "FORWARD_S", 0.1)
    async with running_broker(tmp_path) as (broker, nursery):
        operator, consumer = (Client(nursery, str(broker.config.address)) for _ in range(2))
        await consumer.heartbeat("c1", "g", "T")
        fields: dict[str, Any] = {"consumerGroup": "g", "clientId": "c1"}
        told = await operator.ask(CODE.GET_CONSUMER_RUNNING_INFO, **fields)
        assert told.code == ResponseCode.CONSUME_MSG_TIMEOUT


@pytest.mark.parametrize(
    "told", [None, b"", b"{", b"[]", b'{"connectionSet":7}', b'{"connectionSet":[{"clientId":[]}]}']
)
async def test_a_proxy_that_hangs_or_answers_nonsense_hides_no_member(
    told: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxies, "TELL_S", 0.1)
    async with running_broker(tmp_path) as (broker, nursery):
        operator, consumer, proxy = (Client(nursery, str(broker.config.address)) for _ in range(3))
        await consumer.heartbeat("c1", "g", "T")
        await proxy.ask(34, encode_heartbeat(Heartbeat("p", [PROXIES_GROUP], [])))
        proxy.answers_with = told
        reply = await operator.ask(CODE.GET_CONSUMER_CONNECTION_LIST, consumerGroup="g")
        (member,) = json.loads(reply.body)["connectionSet"]
        assert member["clientId"] == "c1"
        assert len(proxy.notices) == 1
        none = await operator.ask(CODE.GET_CONSUMER_CONNECTION_LIST, consumerGroup="other")
        assert none.code == ResponseCode.CONSUMER_NOT_ONLINE


async def test_who_reads_a_topic_and_what_a_group_reads(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        for topic in ("T", "U"):
            await client.send(topic, b"x")
        await commit(client, 1, "offline", "T")
        await client.heartbeat("c1", "online", "T", "U")
        who = json.loads((await client.ask(CODE.QUERY_TOPIC_CONSUME_BY_WHO, topic="T")).body)
        assert who == {"groupList": ["offline", "online"]}
        none = json.loads((await client.ask(CODE.QUERY_TOPIC_CONSUME_BY_WHO, topic="Z")).body)
        assert none == {"groupList": []}
        for group, topics in (("offline", ["T"]), ("online", ["T", "U"]), ("z", [])):
            told = json.loads((await client.ask(CODE.QUERY_TOPICS_BY_CONSUMER, group=group)).body)
            assert told == {"topicList": topics}


async def test_how_old_is_what_a_group_reads_next(tmp_path: Path) -> None:
    clock = Clock()
    async with served(tmp_path, clock=clock) as client:
        for number in range(4):
            clock.now_ms = START_MS + 1000 * number
            await client.send("T", b"x")
        await commit(client, 2)
        clock.now_ms += 5000
        told = await client.ask(CODE.QUERY_CONSUME_TIME_SPAN, topic="T", group="g")
        spans = json.loads(told.body)["consumeTimeSpanSet"]
        assert spans[0] == {
            "consumeTimeStamp": START_MS + 1000,
            "delayTime": 6000,
            "maxTimeStamp": START_MS + 3000,
            "messageQueue": {"brokerName": "broker-a", "queueId": 0, "topic": "T"},
            "minTimeStamp": START_MS,
        }
        assert spans[1]["delayTime"] == spans[1]["maxTimeStamp"] == 0
        absent = await client.ask(CODE.QUERY_CONSUME_TIME_SPAN, topic="Z", group="g")
        assert absent.code == ResponseCode.TOPIC_NOT_EXIST


async def clone(client: Client, source: str = "g", target: str = "h", **more: Any) -> Command:
    fields = {"srcGroup": source, "destGroup": target, "offline": "true", **more}
    return await client.ask(CODE.CLONE_GROUP_OFFSET, **fields)


async def test_a_group_goes_on_where_another_one_is(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        for topic in ("T", "U"):
            await client.send(topic, b"x")
            await commit(client, 1, topic=topic)
        assert (await clone(client, topic="T")).code == 0
        assert [await committed(client, "h", topic) for topic in ("T", "U")] == [1, None]
        assert (await clone(client)).code == 0
        assert await committed(client, "h", "U") == 1
        assert (await clone(client, "absent")).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert (await clone(client, target="a b")).code == ResponseCode.INVALID_PARAMETER
        absent = await clone(client, topic="absent")
        assert absent.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_a_clone_beyond_the_limit_of_offsets_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path, limits=BrokerLimits(max_offset_tables=1)) as client:
        await client.send("T", b"x")
        await commit(client, 1)
        assert (await clone(client)).code == ResponseCode.SYSTEM_BUSY


async def test_the_progress_of_a_group_tells_what_it_has_pulled(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        for _ in range(5):
            await client.send("T", b"x")
        await commit(client, 1)
        told = (await client.ask(CODE.GET_CONSUME_STATS, consumerGroup="g")).body
        assert b'"consumerOffset":1' in told
        assert b'"pullOffset":1' in told
        await client.pull("T", 4)
        told = (await client.ask(CODE.GET_CONSUME_STATS, consumerGroup="g")).body
        assert b'"consumerOffset":1' in told
        assert b'"pullOffset":4' in told


async def test_a_group_that_must_not_broadcast_cannot(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        await client.send("T", b"x")
        group = {"groupName": "g", "consumeBroadcastEnable": False}
        assert (await client.ask(200, json.dumps(group).encode())).code == 0
        assert (await client.pull("T", 0)).code == 0
        data = ConsumerData("g", message_model=MessageModel.BROADCASTING)
        await client.ask(34, encode_heartbeat(Heartbeat("c", [], [data])))
        refused = await client.pull("T", 0)
        assert refused.code == ResponseCode.NO_PERMISSION
        assert "broadcast" in str(refused.remark)


async def test_a_topic_keeps_its_attributes_and_changes_those_that_are_named(
    tmp_path: Path,
) -> None:
    async def put(changes: str) -> int:
        fields: dict[str, Any] = {"topic": "T", "readQueueNums": 1, "writeQueueNums": 1}
        return (await client.ask(17, perm=6, attributes=changes, **fields)).code

    async def attributes() -> dict[str, str]:
        found: dict[str, str] = json.loads((await client.ask(351, topic="T")).body)["attributes"]
        return found

    async with served(tmp_path) as client:
        assert await put("+message.type=FIFO,+queue.type=BatchCQ") == 0
        assert await attributes() == {"message.type": "FIFO", "queue.type": "BatchCQ"}
        assert await put("+message.type=FIFO,+queue.type=SimpleCQ") == 0
        assert await attributes() == {"message.type": "FIFO", "queue.type": "SimpleCQ"}
        assert await put("-queue.type,+message.type=NORMAL") == 0
        assert await attributes() == {"message.type": "NORMAL"}
        assert await put("") == 0
        assert await attributes() == {"message.type": "NORMAL"}
        many = ",".join(f"+n{number}=v" for number in range(20))
        for wrong in ("message.type=FIFO", "+a", "-a=b", "+=b", "+a=\x01", "+a=" + "x" * 99, many):
            assert await put(wrong) == ResponseCode.INVALID_PARAMETER
        assert await attributes() == {"message.type": "NORMAL"}
        with trio.fail_after(5):
            assert (await client.send("T", b"x")).code == 0
