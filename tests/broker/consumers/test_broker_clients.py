from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from broker.groups.state import GROUPS
from broker.limits import BrokerLimits
from broker.topics.state import TOPICS
from remoting.bodies.consumer_group import (
    QueueLock,
    decode_consumer_list,
    decode_locked_queues,
    encode_queue_lock,
)
from remoting.bodies.heartbeat import Heartbeat, encode_heartbeat
from remoting.bodies.message_queue import MessageQueue
from remoting.bodies.table import decode_table
from remoting.wire.codes import RequestCode, ResponseCode
from tests.broker.one_broker import Client, running_broker, served, until


async def members(client: Client, group: str = "g") -> list[str]:
    return decode_consumer_list((await client.ask(38, consumerGroup=group)).body)


async def until_noticed(client: Client, count: int) -> None:
    with trio.fail_after(5):
        while len(client.notices) < count:
            await client.noticed.wait()


async def test_a_member_is_listed_as_soon_as_its_heartbeat_is_answered(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        reply = await client.ask(38, consumerGroup="g")
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert (await client.heartbeat("c1", "g", "T")).code == 0
        assert await members(client) == ["c1"]


async def test_a_heartbeat_makes_the_group_and_its_retry_topic(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        await client.heartbeat("c1", "g", "T")
        state = broker.machine.state
        assert state[GROUPS].configs["g"].retry_max_times == 16
        assert state[TOPICS].configs["%RETRY%g"].read_queue_count == 1
        applied = broker.node.status().applied
        await client.heartbeat("c1", "g", "T")
        assert broker.node.status().applied == applied, "a known group needs no entry"


async def test_all_members_are_told_when_one_comes_and_when_one_goes(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        first, second, third = (Client(nursery, str(broker.config.address)) for _ in range(3))
        await first.heartbeat("c1", "g", "T")
        await until_noticed(first, 1)
        await second.heartbeat("c2", "g", "T")
        await until_noticed(first, 2)
        await until_noticed(second, 1)
        notice = first.notices[-1]
        assert notice.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        assert (notice.fields, notice.is_oneway) == ({"consumerGroup": "g"}, True)
        await third.heartbeat("c3", "other group", "T")
        await third.heartbeat("c3", "h", "T")
        await first.heartbeat("c1", "g", "T")  # nothing new: nobody is told
        second.close()
        await until_noticed(first, 3)
        assert await members(first) == ["c1"]
        assert len(first.notices) == 3


async def test_a_member_that_unregisters_is_gone_and_the_others_are_told(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        first, second = (Client(nursery, str(broker.config.address)) for _ in range(2))
        await first.heartbeat("c1", "g", "T")
        await second.heartbeat("c2", "g", "T")
        await until_noticed(first, 2)
        assert (await second.ask(35, clientID="c2", consumerGroup="g", producerGroup="")).code == 0
        await until_noticed(first, 3)
        assert await members(first) == ["c1"]
        reply = await second.ask(35, clientID="p", consumerGroup="", producerGroup="p")
        assert reply.code == 0


async def test_one_connection_has_many_clients(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        proxy, other = (Client(nursery, str(broker.config.address)) for _ in range(2))
        for client_id in ("c1", "c2"):
            producing = Heartbeat(client_id, [f"P-{client_id}", "P"], [])
            assert (await proxy.ask(34, encode_heartbeat(producing))).code == 0
            assert (await proxy.heartbeat(client_id, "g", "T")).code == 0
        await other.heartbeat("c3", "g", "T")
        assert await members(proxy) == ["c1", "c2", "c3"]
        told = json.loads((await proxy.ask(203, consumerGroup="g")).body)
        assert sorted(one["clientId"] for one in told["connectionSet"]) == ["c1", "c2", "c3"]
        told = json.loads((await proxy.ask(204, producerGroup="P")).body)
        assert sorted(one["clientId"] for one in told["connectionSet"]) == ["c1", "c2"]
        before = len(proxy.notices)
        left = await proxy.ask(35, clientID="c1", consumerGroup="g", producerGroup="P")
        assert left.code == 0
        await until_noticed(proxy, before + 1)  # once, not for each of its clients
        assert await members(proxy) == ["c2", "c3"]
        told = json.loads((await proxy.ask(204, producerGroup="P")).body)
        assert [one["clientId"] for one in told["connectionSet"]] == ["c2"]
        assert (await proxy.ask(204, producerGroup="P-c1")).code == 0
        proxy.close()
        await until(lambda: _lists(other, ["c3"]))
        for group in ("P", "P-c1", "P-c2"):
            assert (await other.ask(204, producerGroup=group)).code == ResponseCode.SYSTEM_ERROR


async def _lists(client: Client, client_ids: list[str]) -> bool:
    return await members(client) == client_ids


async def test_one_client_with_two_connections_is_listed_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        one, other = (Client(nursery, str(broker.config.address)) for _ in range(2))
        await one.heartbeat("c1", "g", "T")
        await other.heartbeat("c1", "g", "T")
        assert await members(one) == ["c1"]


async def test_a_member_with_other_topics_is_a_change(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        await client.heartbeat("c1", "g", "T")
        await until_noticed(client, 1)
        await client.heartbeat("c1", "g", "T", "U")
        await until_noticed(client, 2)


async def test_a_bad_heartbeat_is_refused_and_the_connection_lives(tmp_path: Path) -> None:
    limits = BrokerLimits(max_clients=1, max_subscriptions=2)
    async with served(tmp_path, limits=limits) as client:
        assert (await client.ask(34, b"{nonsense")).code == ResponseCode.SYSTEM_ERROR
        reply = await client.heartbeat("c1", "bad name", "T")
        assert reply.code == ResponseCode.INVALID_PARAMETER
        assert (await client.heartbeat("c1", "g", "A", "B", "C")).code == ResponseCode.SYSTEM_BUSY
        assert (await client.heartbeat("c1", "g", "A")).code == 0
        assert (await client.heartbeat("c1", "h", "A")).code == ResponseCode.SYSTEM_BUSY
        assert (await client.heartbeat("c1", "g", "A")).code == 0, "a member may go on"


async def test_a_queue_is_locked_by_one_client_at_a_time(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        queues = [MessageQueue("T", "as given", queue_id) for queue_id in range(2)]

        async def lock(client_id: str, wanted: list[MessageQueue]) -> list[MessageQueue]:
            body = encode_queue_lock(QueueLock("g", client_id, wanted))
            return decode_locked_queues((await client.ask(41, body)).body)

        assert await lock("c1", queues[:1]) == queues[:1]
        assert await lock("c2", queues) == queues[1:]
        assert await lock("c1", queues) == queues[:1]
        unlock = encode_queue_lock(QueueLock("g", "c2", queues))
        assert (await client.ask(42, unlock)).code == 0
        assert await lock("c1", queues) == queues, "c2 could give up only its own"


async def test_an_unknown_request_is_answered_as_not_supported(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        reply = await client.ask(12345)
        assert (reply.code, reply.remark) == (3, " request type 12345 not supported")
        assert (await client.ask(46, b"{}")).code == ResponseCode.SYSTEM_ERROR


# --- administration -------------------------------------------------------------------------------


async def put_topic(client: Client, topic: str, queues: int = 2, perm: int = 6) -> int:
    reply = await client.ask(
        17,
        topic=topic,
        defaultTopic="TBW102",
        readQueueNums=queues,
        writeQueueNums=queues,
        perm=perm,
        topicFilterType="SINGLE_TAG",
        order="false",
    )
    return reply.code


@pytest.mark.feature("F10")
async def test_a_topic_is_made_changed_read_and_deleted(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        assert await put_topic(client, "T", 2) == 0
        assert await put_topic(client, "T", 3) == 0
        config = json.loads((await client.ask(351, topic="T")).body)
        assert (config["readQueueNums"], config["perm"]) == (3, 6)
        assert "T" in json.loads((await client.ask(21)).body)["topicConfigTable"]
        await client.send("T", b"x", 2)
        assert (await client.ask(215, topic="T")).code == 0
        assert (await client.ask(215, topic="T")).code == 0
        assert (await client.ask(351, topic="T")).code == ResponseCode.TOPIC_NOT_EXIST
        assert (await client.send("T", b"new", 2)).fields["queueOffset"] == "1"
        assert [message.body for message in await client.messages("T", 2)] == [b"new"]


@pytest.mark.parametrize(("topic", "queues", "perm"), [("a b", 1, 6), ("T", 0, 6), ("T", 1, 77)])
async def test_a_topic_that_cannot_be_is_refused(
    tmp_path: Path, topic: str, queues: int, perm: int
) -> None:
    async with served(tmp_path) as client:
        assert await put_topic(client, topic, queues, perm) == ResponseCode.INVALID_PARAMETER


async def test_nobody_sends_to_a_read_only_topic_or_pulls_from_a_write_only_one(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as client:
        await put_topic(client, "R", perm=4)
        await put_topic(client, "W", perm=2)
        assert (await client.send("R", b"x")).code == ResponseCode.NO_PERMISSION
        assert (await client.pull("W", 0)).code == ResponseCode.NO_PERMISSION


async def test_what_was_read_of_a_queue_that_was_taken_away_may_be_committed(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as client:
        await put_topic(client, "T", queues=4)
        await client.send("T", b"x", 3)
        await put_topic(client, "T", queues=1)
        # As RocketMQ: nothing is sent there or read, but a member tells how far it has come.
        assert (await client.send("T", b"x", 3)).code == ResponseCode.INVALID_PARAMETER
        assert (await client.pull("T", 0, 3)).code == ResponseCode.INVALID_PARAMETER
        of: dict[str, Any] = {"consumerGroup": "g", "topic": "T"}
        assert (await client.ask(15, queueId=3, commitOffset=1, **of)).code == 0
        for queue_id in (-1, 1024):
            refused = await client.ask(15, queueId=queue_id, commitOffset=1, **of)
            assert refused.code == ResponseCode.INVALID_PARAMETER
        await put_topic(client, "T", queues=4)
        assert (await client.ask(14, queueId=3, **of)).fields["offset"] == "1"


async def test_the_brokers_own_topics_cannot_be_deleted(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        reply = await client.ask(215, topic="TBW102")
        assert reply.code == ResponseCode.INVALID_PARAMETER


async def test_more_topics_or_groups_than_allowed_are_refused(tmp_path: Path) -> None:
    limits = BrokerLimits(max_topics=8, max_groups=1)
    async with served(tmp_path, limits=limits) as client:
        assert await put_topic(client, "A") == 0
        assert (await client.heartbeat("c", "g", "A")).code == 0
        assert await put_topic(client, "B") == ResponseCode.SYSTEM_BUSY
        assert (await client.send("C", b"x")).code == ResponseCode.SYSTEM_BUSY
        assert (await client.heartbeat("c", "h", "A")).code == ResponseCode.SYSTEM_BUSY
        assert (await client.send("A", b"x")).code == 0


async def test_a_group_is_made_switched_off_and_deleted_with_its_offsets(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        await client.send("T", b"x")
        body = json.dumps({"groupName": "g", "consumeEnable": False, "retryMaxTimes": 3}).encode()
        assert (await client.ask(200, body)).code == 0
        config = json.loads((await client.ask(352, group="g")).body)
        assert (config["retryMaxTimes"], config["retryQueueNums"]) == (3, 1)
        assert "g" in json.loads((await client.ask(201)).body)["subscriptionGroupTable"]
        assert (await client.pull("T", 0)).code == ResponseCode.NO_PERMISSION
        await client.ask(15, consumerGroup="g", topic="T", queueId=0, commitOffset=1)
        assert json.loads((await client.ask(43)).body) == {"offsetTable": {"T@g": {"0": 1}}}
        assert (await client.ask(207, groupName="g", cleanOffset="true")).code == 0
        assert json.loads((await client.ask(43)).body) == {"offsetTable": {}}
        assert "g" not in json.loads((await client.ask(201)).body)["subscriptionGroupTable"]


async def test_a_question_for_the_configuration_of_a_group_makes_it_where_groups_make_themselves(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as client:
        for _ in range(2):
            config = json.loads((await client.ask(352, group="g")).body)
            assert (config["groupName"], config["consumeEnable"]) == ("g", True)
        assert "g" in json.loads((await client.ask(201)).body)["subscriptionGroupTable"]
        refused = await client.ask(352, group="no/name")
        assert refused.code == ResponseCode.INVALID_PARAMETER
        await client.ask(25, b"autoCreateSubscriptionGroup=false\n")
        refused = await client.ask(352, group="h")
        assert refused.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_figures_settings_connections_and_lag_can_be_read(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        await client.send("T", b"x")
        figures = decode_table((await client.ask(28)).body)
        assert (figures["dledgerRole"], figures["msgPutTotalTodayNow"]) == ("leader", "1")
        assert b"brokerName=broker-a\n" in (await client.ask(26)).body
        assert (await client.ask(25, b"brokerName=b")).code == ResponseCode.NO_PERMISSION
        reply = await client.ask(203, consumerGroup="g")
        assert reply.code == ResponseCode.CONSUMER_NOT_ONLINE
        await client.heartbeat("c1", "g", "T")
        body = json.loads((await client.ask(203, consumerGroup="g")).body)
        assert body["connectionSet"][0]["clientId"] == "c1"
        assert body["connectionSet"][0]["language"] == "PYTHON"
        lag = (await client.ask(208, consumerGroup="g")).body.decode()
        assert '"queueId":0,"topic":"T"}:{"brokerOffset":1,"consumerOffset":0' in lag
        stats = (await client.ask(202, topic="T")).body.decode()
        assert '"maxOffset":1,"minOffset":0' in stats
