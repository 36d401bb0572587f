"""What operators ask for when they make topics (17) and groups (200): kept and told, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from broker.features import REGISTRY, empty_state
from broker.groups.commands import PutGroup
from broker.groups.config import ConsumerGroup
from broker.groups.state import GROUPS
from broker.log.entry import GROUP_ATTRIBUTES_VERSION, encode_log_command, read_log_command
from broker.log.fold import fold
from broker.log.state_snapshot import captured, restored
from broker.machine import BrokerMachine
from remoting.message.properties import encode_properties
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from tests.broker.log.test_broker_fold import Log
from tests.broker.one_broker import Client, served

CODE = RequestCode

TOPIC = {
    "topic": "T",
    "defaultTopic": "TBW102",
    "readQueueNums": 3,
    "writeQueueNums": 2,
    "perm": 6,
    "topicFilterType": "MULTI_TAG",
    "topicSysFlag": 3,
    "order": "true",
}

GROUP: dict[str, Any] = {
    "attributes": {},
    "brokerId": 2,
    "consumeBroadcastEnable": False,
    "consumeEnable": True,
    "consumeFromMinEnable": False,
    "consumeMessageOrderly": True,
    "consumeTimeoutMinute": 7,
    "groupName": "g",
    "groupRetryPolicy": {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1000, 5000]}},
    "groupSysFlag": 3,
    "notifyConsumerIdsChangedEnable": False,
    "retryMaxTimes": 4,
    "retryQueueNums": 2,
    "subscriptionDataSet": [{"topic": "T", "expression": "*", "expressionType": "TAG"}],
    "whichBrokerWhenConsumeSlowly": 3,
}


async def put_topic(client: Client, **more: Any) -> Command:
    return await client.ask(CODE.UPDATE_AND_CREATE_TOPIC, **{**TOPIC, **more})


async def put_group(client: Client, **more: Any) -> Command:
    body = json.dumps({**GROUP, **more}).encode()
    return await client.ask(CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)


@pytest.mark.feature("F10")
async def test_all_settings_of_a_topic_are_told_as_they_were_given(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        assert (
            await put_topic(client, attributes="+message.type=MIXED,+reserve.time=-1")
        ).code == 0
        told = json.loads((await client.ask(CODE.GET_TOPIC_CONFIG, topic="T")).body)
        wanted = {
            "attributes": {"message.type": "MIXED", "reserve.time": "-1"},
            "order": True,
            "perm": 6,
            "readQueueNums": 3,
            "topicFilterType": "MULTI_TAG",
            "topicName": "T",
            "topicSysFlag": 3,
            "writeQueueNums": 2,
        }
        assert told == wanted
        table = json.loads((await client.ask(CODE.GET_ALL_TOPIC_CONFIG)).body)
        assert table["topicConfigTable"]["T"] == wanted


async def test_all_settings_of_a_group_are_told_as_they_were_given_also_after_a_restart(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as client:
        assert (await put_group(client)).code == 0
        assert (await put_group(client, groupName="plain", brokerId=None)).code == 0
    async with served(tmp_path) as client:
        told = await client.ask(CODE.GET_SUBSCRIPTIONGROUP_CONFIG, group="g")
        assert json.loads(told.body) == GROUP
        table = json.loads((await client.ask(CODE.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)).body)
        assert table["subscriptionGroupTable"]["g"] == GROUP


async def test_attributes_of_a_group_are_changed_one_by_one(tmp_path: Path) -> None:
    async def attributes(client: Client) -> dict[str, str]:
        told = await client.ask(CODE.GET_SUBSCRIPTIONGROUP_CONFIG, group="g")
        found: dict[str, str] = json.loads(told.body)["attributes"]
        return found

    lite = {
        "lite.bind.topic": "x" * 127,
        "lite.sub.model": "Exclusive",
        "lite.sub.client.quota": "-1",
        "lite.sub.client.max.event.cnt": "400",
        "lite.sub.reset.offset.exclusive": "true",
        "lite.sub.reset.offset.unsubscribe": "false",
        "lite.sub.wildcard": "true",
    }
    async with served(tmp_path) as client:
        asked = {"+priority.factor": "50", **{f"+{name}": value for name, value in lite.items()}}
        assert (await put_group(client, attributes=asked)).code == 0
        assert await attributes(client) == {"priority.factor": "50", **lite}
        assert (await put_group(client, attributes={"-priority.factor": ""})).code == 0
        assert await attributes(client) == lite
    async with served(tmp_path) as client:
        assert await attributes(client) == lite
        assert (await put_group(client, attributes=lite)).code == 0  # as they were read
        assert (await put_group(client, attributes=None)).code == 0
        assert await attributes(client) == lite


async def test_groups_have_no_attributes_until_all_members_know_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BrokerMachine, "machine_version", GROUP_ATTRIBUTES_VERSION - 1)
    async with served(tmp_path) as client:
        refused = await put_group(client, attributes={"+priority.factor": "50"})
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert "upgrade" in str(refused.remark)
        assert (await put_group(client)).code == 0


@pytest.mark.parametrize(
    "attribute",
    [
        *("max.bytes=5", "queue.type=RocksDBConsumeQueue", "cleanup.policy=COMPACTION"),
        *("reserve.time=1000", "message.type=EVENT", "a=b", "lite.topic.expiration=43201"),
        *("lite.topic.expiration=-2", "lite.topic.expiration=x", "lite.topic.expiration="),
    ],
)
async def test_a_topic_attribute_that_would_not_be_obeyed_is_refused_by_name(
    tmp_path: Path, attribute: str
) -> None:
    async with served(tmp_path) as client:
        refused = await put_topic(client, attributes=f"+{attribute}")
        assert refused.code == ResponseCode.INVALID_PARAMETER
        assert attribute.partition("=")[0] in str(refused.remark)
        assert (await client.ask(CODE.GET_TOPIC_CONFIG, topic="T")).code == 17


async def test_a_setting_of_a_group_that_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    refused_members: list[dict[str, Any]] = [
        {"attributes": {"+priority.factor": "101"}},
        {"attributes": {"+priority.factor": "1e1"}},
        {"attributes": {"+priority.level": "1"}},
        {"attributes": {"+lite.bind.topic": "a b"}},
        {"attributes": {"+lite.bind.topic": "x" * 128}},
        {"attributes": {"+lite.sub.model": "shared"}},
        {"attributes": {"+lite.sub.client.max.event.cnt": "9"}},
        {"attributes": {"+lite.sub.client.quota": str(1 << 63)}},
        {"groupRetryPolicy": {"type": "x" * 5000}},
        {"groupSysFlag": 1 << 40},
        {"subscriptionDataSet": ["x" * 5000]},
        {"retryQueueNums": 17},
        {"consumeTimeoutMinute": -1},
    ]
    async with served(tmp_path) as client:
        for member in refused_members:
            refused = await put_group(client, **member)
            is_of_its_type = "groupSysFlag" not in member
            assert refused.code == (
                ResponseCode.INVALID_PARAMETER if is_of_its_type else ResponseCode.SYSTEM_ERROR
            ), member
            assert refused.remark
        table = json.loads((await client.ask(CODE.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)).body)
        assert "g" not in table["subscriptionGroupTable"]


@pytest.mark.parametrize(
    "kept",
    [
        *("NaN", "[Infinity]", '{"next":[-Infinity]}', "1e999"),
        *("[" * levels + "]" * levels for levels in (17, 700)),
        '{"a":' * 17 + "1" + "}" * 17,
    ],
)
async def test_a_value_that_a_tool_or_a_fold_could_not_read_again_is_refused(
    tmp_path: Path, kept: str
) -> None:
    async with served(tmp_path) as client:
        for name, value in (
            ("groupRetryPolicy", f'{{"a":{kept}}}'),
            ("subscriptionDataSet", f"[{kept}]"),
        ):
            body = f'{{"groupName":"g","{name}":{value}}}'.encode()
            reply = await client.ask(CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
            assert reply.code == ResponseCode.INVALID_PARAMETER, name
        nested = "[" * 15 + "]" * 15
        body = f'{{"groupName":"h","subscriptionDataSet":[{nested}]}}'.encode()
        assert (await client.ask(CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)).code == 0
        table = json.loads((await client.ask(CODE.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)).body)
        assert list(table["subscriptionGroupTable"]) == ["h"]


def test_groups_are_written_in_the_first_format_that_can_hold_them() -> None:
    plain, full = ConsumerGroup("p"), ConsumerGroup("g", slow_broker_id=3, retry_policy="{}")
    newest = ConsumerGroup("n", attributes={"priority.factor": "1"})
    versions = [
        read_log_command(encode_log_command(PutGroup(one, max_groups=9))).version
        for one in (plain, full, newest)
    ]
    assert versions == [3, 4, 8]
    log, state = Log(), empty_state()
    for one in (plain, full, newest):
        log.append(encode_log_command(PutGroup(one, max_groups=9)))
    log.append(encode_log_command(PutGroup(ConsumerGroup("h", retry_policy="{"), max_groups=9)))
    folded = fold(state, log.entries)
    assert [one is None for one in folded.results] == [True, True, True, False]
    assert state[GROUPS].configs == {"p": plain, "g": full, "n": newest}
    assert restored(captured(state), REGISTRY) == state


KINDS = {
    "NORMAL": {"TAGS": "a"},
    "FIFO": {"__SHARDINGKEY": "k"},
    "DELAY": {"DELAY": "3"},
    "TIMER": {"TIMER_DELAY_SEC": "5"},
    "TRANSACTION": {"TRAN_MSG": "true", "PGROUP": "p"},
}


@pytest.mark.parametrize(
    "message_type", ["NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "PRIORITY"]
)
async def test_a_topic_of_any_type_takes_messages_of_every_type(
    tmp_path: Path, message_type: str
) -> None:
    async with served(tmp_path) as client:
        assert (await put_topic(client, attributes=f"+message.type={message_type}")).code == 0
        for pairs in KINDS.values():
            assert (await client.send("T", b"x", i=encode_properties(pairs).decode())).code == 0
