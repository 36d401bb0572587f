"""Every request code with every field at hostile values: each is answered, and the broker lives.

The fields of a code are those that its processors read: a request is sent first with all of them
well-formed, then with one of them hostile at a time, and at last with a hostile body.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.limits import BrokerLimits
from broker.log.guarded_log import GuardedLog
from remoting.wire.codes import RequestCode
from tests.broker.one_broker import Client, running_broker, send_fields

MISSING = object()
PLACE = object()  # stands for the place of a message in the log
NEW_NAME = object()  # stands for another name in each request

# What a field that should hold a name, a number or a truth value may hold instead.
HOSTILE_VALUES = (
    MISSING,
    "",
    " ",
    "abc",
    "-1",
    "0",
    "1.5",
    "1e9",
    "NaN",
    "null",
    "true",
    str(2**31),
    str(2**63 - 1),
    str(2**63),
    str(-(2**63)),
    "9" * 5000,
    "x" * 128,
    "x" * 100_000,
    "../../etc/passwd",
    "a/b",
    "%RETRY%",
    "%DLQ%%RETRY%g",
    "a\0b",
    "a\nb",
    "\u202e\u0301",
    "\U0001f40d" * 50,
    "TBW102",
    "SCHEDULE_TOPIC_XXXX",
)

HOSTILE_BODIES = (
    b"",
    b"\0",
    b"\xff" * 100,
    b"[" * 10_000,
    b"{}",
    b"[]",
    b"null",
    b'"text"',
    b"1",
    b'{"a":',
    b'{"groupName":1}',
    b'{"groupName":"g","retryQueueNums":1e400}',
    b'{"groupName":"g","retryMaxTimes":' + b"9" * 4000 + b"}",
    b'{"groupName":"\xed\xa0\x80"}',
    b'{"clientID":[],"consumerDataSet":{}}',
    b'{"clientID":"c","consumerDataSet":[{"groupName":"g"}]}',
    b'{"clientID":"c","consumerDataSet":[null,1,"x",[]]}',
    b'{"consumerGroup":"g","clientId":"c","mqSet":[{"topic":"../x","queueId":-1}]}',
    b'{"consumerGroup":"g","clientId":"c","mqSet":[{"topic":"T","queueId":99999999999999999999}]}',
    json.dumps({"consumerGroup": "g", "clientId": "c" * 100_000, "mqSet": []}).encode(),
)

SEND = send_fields("T", 0)
OF_A_QUEUE = {"topic": "T", "queueId": 0}
PULL = {
    **OF_A_QUEUE,
    "consumerGroup": "g",
    "queueOffset": 0,
    "maxMsgNums": 32,
    "sysFlag": 4,
    "commitOffset": 0,
    "suspendTimeoutMillis": 0,
    "subVersion": 0,
    "subscription": "*",
    "expressionType": "TAG",
}
HEARTBEAT = {
    "clientID": "c",
    "consumerDataSet": [
        {
            "groupName": "g",
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [{"topic": "T", "subString": "*", "subVersion": 1}],
            "unitMode": False,
        }
    ],
    "producerDataSet": [{"groupName": "p"}],
}
LOCK = {
    "consumerGroup": "g",
    "clientId": "c",
    "mqSet": [{"topic": "T", "brokerName": "b", "queueId": 0}],
}
TOPIC = {
    "topic": "T",
    "defaultTopic": "TBW102",
    "readQueueNums": 4,
    "writeQueueNums": 4,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
    "order": "false",
    "attributes": "",
}
GROUP = {"groupName": "g", "retryQueueNums": 1, "retryMaxTimes": 16, "consumeTimeoutMinute": 15}
ASKED_GROUP = {"consumerGroup": "g"}

CODE = RequestCode
# Every code that a broker answers: its fields, and a well-formed body.
REQUESTS: dict[int, tuple[dict[str, Any], bytes]] = {
    CODE.SEND_MESSAGE: (
        {
            "producerGroup": "p",
            "topic": "T",
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": 4,
            "queueId": 0,
            "sysFlag": 0,
            "bornTimestamp": 1,
            "flag": 0,
            "properties": "",
            "reconsumeTimes": 0,
            "unitMode": "false",
            "batch": "false",
            "maxReconsumeTimes": 16,
        },
        b"x",
    ),
    CODE.SEND_MESSAGE_V2: (SEND, b"x"),
    CODE.SEND_BATCH_MESSAGE: (SEND, b"x"),
    CODE.CONSUMER_SEND_MSG_BACK: (
        {
            "group": NEW_NAME,
            "offset": PLACE,
            "delayLevel": 0,
            "maxReconsumeTimes": 3,
            "originMsgId": "",
            "originTopic": "T",
            "unitMode": "false",
        },
        b"",
    ),
    CODE.PULL_MESSAGE: (PULL, b""),
    CODE.LITE_PULL_MESSAGE: (PULL, b""),
    CODE.HEART_BEAT: ({}, json.dumps(HEARTBEAT).encode()),
    CODE.UNREGISTER_CLIENT: ({"clientID": "c", "consumerGroup": "g", "producerGroup": "p"}, b""),
    CODE.GET_CONSUMER_LIST_BY_GROUP: (ASKED_GROUP, b""),
    CODE.LOCK_BATCH_MQ: ({}, json.dumps(LOCK).encode()),
    CODE.UNLOCK_BATCH_MQ: ({}, json.dumps(LOCK).encode()),
    CODE.CHECK_CLIENT_CONFIG: ({}, b'{"clientId":"c","group":"g","subscriptionData":{}}'),
    CODE.QUERY_CONSUMER_OFFSET: ({**OF_A_QUEUE, **ASKED_GROUP, "setZeroIfNotFound": "true"}, b""),
    CODE.UPDATE_CONSUMER_OFFSET: ({**OF_A_QUEUE, **ASKED_GROUP, "commitOffset": 1}, b""),
    CODE.SEARCH_OFFSET_BY_TIMESTAMP: (
        {**OF_A_QUEUE, "timestamp": 1, "boundaryType": "LOWER"},
        b"",
    ),
    CODE.GET_MAX_OFFSET: (OF_A_QUEUE, b""),
    CODE.GET_MIN_OFFSET: (OF_A_QUEUE, b""),
    CODE.GET_EARLIEST_MSG_STORETIME: (OF_A_QUEUE, b""),
    CODE.GET_ALL_CONSUMER_OFFSET: ({}, b""),
    CODE.UPDATE_AND_CREATE_TOPIC: (TOPIC, b""),
    CODE.DELETE_TOPIC_IN_BROKER: ({"topic": "other"}, b""),
    CODE.GET_TOPIC_CONFIG: ({"topic": "T"}, b""),
    CODE.GET_ALL_TOPIC_CONFIG: ({}, b""),
    CODE.GET_TOPIC_STATS_INFO: ({"topic": "T"}, b""),
    CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: ({}, json.dumps(GROUP).encode()),
    CODE.DELETE_SUBSCRIPTIONGROUP: ({"groupName": "other", "cleanOffset": "true"}, b""),
    CODE.GET_SUBSCRIPTIONGROUP_CONFIG: ({"group": "g"}, b""),
    CODE.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: ({}, b""),
    CODE.GET_CONSUMER_CONNECTION_LIST: (ASKED_GROUP, b""),
    CODE.GET_CONSUME_STATS: ({**ASKED_GROUP, "topic": "T"}, b""),
    CODE.GET_BROKER_RUNTIME_INFO: ({}, b""),
    CODE.GET_BROKER_CONFIG: ({}, b""),
    CODE.UPDATE_BROKER_CONFIG: ({}, b"a=b"),
    CODE.VIEW_MESSAGE_BY_ID: ({"offset": PLACE}, b""),
}


def json_with_one_hostile_value(body: bytes) -> Iterator[bytes]:
    """The same object with each member, at each depth, at hostile values."""
    try:
        whole = json.loads(body)
    except ValueError:
        return
    values: tuple[object, ...] = (
        None,
        -1,
        2**63,
        1.5,
        True,
        "",
        "x" * 100_000,
        "a/b",
        [],
        {},
        [[]],
    )

    def changed(value: Any) -> Iterator[Any]:
        yield from values
        if isinstance(value, dict):
            for name, member in value.items():
                yield {other: one for other, one in value.items() if other != name}
                for hostile in changed(member):
                    yield {**value, name: hostile}
        elif isinstance(value, list):
            for at, member in enumerate(value):
                for hostile in changed(member):
                    yield [*value[:at], hostile, *value[at + 1 :]]

    for one in changed(whole):
        yield json.dumps(one).encode()


def attacks(code: int) -> Iterator[tuple[dict[str, Any], bytes]]:
    fields, body = REQUESTS[code]
    yield fields, body
    yield {}, body
    for name in fields:
        for value in HOSTILE_VALUES:
            hostile = {**fields, name: value}
            yield {key: one for key, one in hostile.items() if one is not MISSING}, body
    for hostile_body in (*HOSTILE_BODIES, *json_with_one_hostile_value(body)):
        yield fields, hostile_body


@asynccontextmanager
async def served(directory: Path) -> AsyncIterator[Client]:
    limits = BrokerLimits(max_topics=400, max_groups=400)
    async with running_broker(directory, limits=limits) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        assert (await client.send("T", b"x")).code == 0
        yield client


async def test_each_code_that_is_answered_is_attacked(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, _nursery):
        assert REQUESTS.keys() == broker.requests.handlers.keys()


@pytest.mark.parametrize("code", sorted(REQUESTS))
async def test_each_hostile_request_is_answered_and_the_broker_lives(
    tmp_path: Path, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(tmp_path) as client:
        (message,) = await client.messages("T")
        for number, (fields, body) in enumerate(attacks(code)):
            stands_for = {PLACE: message.physical_offset, NEW_NAME: f"group-{number}"}
            await client.ask(
                code, body, **{name: stands_for.get(one, one) for name, one in fields.items()}
            )
        assert (await client.send("T", b"still here")).code == 0
        topics = json.loads((await client.ask(CODE.GET_ALL_TOPIC_CONFIG)).body)
        assert len(topics["topicConfigTable"]) <= 400
    # A traceback is a defect of the broker, whatever the request was.
    assert [record.message for record in caplog.records if record.exc_info] == []


async def test_a_message_sent_back_with_a_malformed_number_ends_no_node(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        (first,) = await client.messages("T")
        fields: dict[str, Any] = {
            "group": "unheard-of",
            "offset": first.physical_offset,
            "delayLevel": 0,
        }
        assert (await client.ask(36, **fields, maxReconsumeTimes="abc")).code == 1
        assert (await client.ask(36, **fields, maxReconsumeTimes="3")).code == 0


def test_what_a_request_raises_when_its_append_ends_does_not_reach_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Log:
        is_ready_leader, term, begin_position = True, 1, 0

        def submit(self, bodies: object, done: Any) -> None:
            done([])

        def read_bytes(self, pos: int, size: int) -> bytes:
            return b""

    def fails(_outcome: object) -> None:
        raise RuntimeError("a defect")

    GuardedLog(Log()).submit([b"x"], fails)
    assert "a defect" in caplog.text
