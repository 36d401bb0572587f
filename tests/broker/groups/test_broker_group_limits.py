"""Limits on the numbers of groups and topics bound what is new, not what exists."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from broker.groups.processor import MAX_GROUPS_AT_ONCE
from broker.limits import BrokerLimits
from broker.log.entry import FORMAT_VERSION
from remoting.wire.codes import RequestCode, ResponseCode
from tests.broker.broker_in_memory import broker_in_memory
from tests.broker.one_broker import Client, served
from tests.broker.untimed import Stepped


async def put_groups(client: Client, *names: str) -> None:
    body = json.dumps({"groupConfigList": [{"groupName": name} for name in names]}).encode()
    reply = await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body)
    assert reply.code == 0, reply


async def topics(client: Client) -> dict[str, object]:
    reply = await client.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
    found: dict[str, object] = json.loads(reply.body)["topicConfigTable"]
    return found


async def test_a_group_that_exists_gets_its_retry_topic_when_there_are_no_more_groups_to_make(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, limits=BrokerLimits(max_groups=2)) as client:
        await client.send("T", b"x")
        await put_groups(client, "g", "h")
        assert (await client.heartbeat("c", "g", "T")).code == 0
        assert "%RETRY%g" in await topics(client)
        refused = await client.heartbeat("d", "new", "T")
        assert refused.code == ResponseCode.SYSTEM_BUSY


async def test_a_group_whose_retry_topic_exists_is_made_when_there_are_no_more_topics_to_make(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, limits=BrokerLimits(max_topics=8)) as client:
        await client.send("T", b"x")
        assert (await client.heartbeat("c", "g", "T")).code == 0
        assert (
            await client.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="g", cleanOffset=True)
        ).code == 0
        number = 0
        while (await client.send(f"U{number}", b"x")).code == 0:
            number += 1
        assert len(await topics(client)) == 8
        assert (await client.heartbeat("c", "g", "T")).code == 0
        assert (await client.heartbeat("d", "new", "T")).code == ResponseCode.SYSTEM_BUSY


@pytest.mark.parametrize("kind", ["groups", "topics"])
def test_no_step_of_a_long_list_takes_long(kind: str) -> None:
    kept = [{"filterMode": "TAG", "n": number, "text": "x" * 450} for number in range(8)]
    names = [f"{kind}-{number:03}-{'x' * 90}" for number in range(MAX_GROUPS_AT_ONCE)]
    if kind == "groups":
        code: int = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
        rows: list[dict[str, Any]] = [
            {"groupName": one, "groupRetryPolicy": {"x": kept}, "subscriptionDataSet": kept}
            for one in names
        ]
        body = {"groupConfigList": rows}
    else:
        code = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST
        attributes = {"+message.type": "NORMAL"}
        rows = [{"topicName": one, "attributes": attributes} for one in names]
        body = {"topicConfigList": rows}
    stepped = Stepped()
    with broker_in_memory(format_version=FORMAT_VERSION) as broker:
        client: Any = broker.client
        client.go_on = stepped.go_on
        reply = broker.ask(code, json.dumps(body).encode())
        assert reply.code == 0, reply
    assert stepped.steps > 7
    assert stepped.longest_s < 0.05
