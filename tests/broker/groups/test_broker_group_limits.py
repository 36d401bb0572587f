"""Limits on the numbers of groups and topics bound what is new, not what exists."""

from __future__ import annotations

import json
from pathlib import Path

from broker.limits import BrokerLimits
from remoting.wire.codes import RequestCode, ResponseCode
from tests.broker.one_broker import Client, served


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
