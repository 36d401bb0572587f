"""What operators ask of a broker: lists of topics and groups, queues, progress, cleaning."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from broker.admin import statistics
from broker.delay.deliveries import DELIVERIES
from broker.delay.state import DELAYS
from broker.errors import RequestRefused
from broker.features import REGISTRY, empty_state
from broker.groups.changes import MAX_FORBIDDEN
from broker.groups.commands import DeleteGroup, Forbid
from broker.groups.state import GROUPS
from broker.inspection import consumer_status
from broker.limits import BrokerLimits
from broker.log.entry import encode_log_command
from broker.log.state_snapshot import captured, restored
from broker.retention.keeper import LOG_KEEPER
from broker.topics.commands import DeleteTopic
from broker.topics.state import TOPICS
from remoting.bodies.heartbeat import ConsumerData, Heartbeat, SubscriptionData, encode_heartbeat
from remoting.bodies.message_queue import MessageQueue, decode_queue_keyed, encode_queue_keyed
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.loose_json import parse_json
from tests.broker.delay.test_broker_delay import folded
from tests.broker.inspection.test_broker_inspection import commit
from tests.broker.log.test_broker_fold import Log, with_topic
from tests.broker.one_broker import START_MS, Client, Clock, running_broker, served, until
from tests.broker.retention.test_broker_retention import HOUR_MS, SMALL, Surroundings, minimum, send
from tests.broker.three_brokers import group_of_three

CODE = RequestCode


async def told(client: Client, code: int, body: bytes = b"", **fields: Any) -> Any:
    """The JSON body of a reply."""
    reply = await client.ask(code, body, **fields)
    assert reply.code == 0, reply
    return json.loads(reply.body)


# --- topics and groups ----------------------------------------------------------------------------


async def test_many_topics_are_made_and_changed_at_once_or_none(tmp_path: Path) -> None:
    async with served(tmp_path, limits=BrokerLimits(max_topics=9)) as client:
        known = {"topicName": "A", "readQueueNums": 2, "writeQueueNums": 3, "perm": 4}
        new = {"topicName": "B", "attributes": {"+message.type": "FIFO", "-gone": ""}}

        async def put(*topics: object) -> int:
            body = json.dumps({"topicConfigList": topics}).encode()
            return (await client.ask(CODE.UPDATE_AND_CREATE_TOPIC_LIST, body)).code

        assert await put({"topicName": "A"}) == 0
        assert await put(known, known, new) == 0
        table = (await told(client, CODE.GET_ALL_TOPIC_CONFIG))["topicConfigTable"]
        assert (table["A"]["readQueueNums"], table["A"]["perm"]) == (2, 4)
        assert table["B"]["attributes"] == {"message.type": "FIFO"}
        assert await put({"topicName": "C"}, {"topicName": "a b"}) == 29
        assert await put() == 29
        assert await put(*[{"topicName": f"D{number}"} for number in range(2)]) == 2
        assert await put(*[{"topicName": f"D{number}"} for number in range(501)]) == 1
        after = (await told(client, CODE.GET_ALL_TOPIC_CONFIG))["topicConfigTable"]
        assert after == table


async def test_many_groups_are_made_at_once_or_none(tmp_path: Path) -> None:
    async with served(tmp_path, limits=BrokerLimits(max_groups=3)) as client:

        async def put(*groups: object) -> int:
            body = json.dumps({"groupConfigList": groups}).encode()
            return (await client.ask(CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body)).code

        assert await put({"groupName": "g", "retryMaxTimes": 3}, {"groupName": "h"}) == 0
        table = (await told(client, 201))["subscriptionGroupTable"]
        assert {name: one["retryMaxTimes"] for name, one in table.items()} == {"g": 3, "h": 16}
        assert await put({"groupName": "i"}, {"groupName": "j", "retryMaxTimes": -1}) == 29
        assert await put({"groupName": "i"}, {"groupName": "j"}) == 2
        assert await put() == 29
        assert sorted((await told(client, 201))["subscriptionGroupTable"]) == ["g", "h"]


async def test_topics_of_the_system_are_listed(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        body = await told(client, CODE.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
        assert body["brokerAddr"] == str(broker.config.address)
        assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "broker-a", "DefaultCluster"} <= set(
            body["topicList"]
        )


async def test_a_group_is_kept_from_a_topic_and_let_in_again(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        await client.send("T", b"x")
        await client.heartbeat("c", "g", "T")

        async def forbidden(**more: Any) -> dict[str, Any]:
            fields: dict[str, Any] = {"group": "g", "topic": "T", **more}
            found: dict[str, Any] = await told(
                client, CODE.UPDATE_AND_GET_GROUP_FORBIDDEN, **fields
            )
            return found

        assert await forbidden() == {"group": "g", "topic": "T", "readable": True}
        assert (await forbidden(readable="false"))["readable"] is False
        refused = await client.pull("T", 0)
        assert (refused.code, refused.remark) == (
            ResponseCode.NO_PERMISSION,
            "the consumer group[g] is forbidden for topic[T]",
        )
        assert (await client.pull("T", 0, consumerGroup="h")).code == 0
        assert (await told(client, 201))["forbiddenTable"] == {"g": {"T": 4}}
    async with served(tmp_path) as client:
        assert (await client.pull("T", 0)).code == ResponseCode.NO_PERMISSION
        fields: dict[str, Any] = {"group": "g", "topic": "T", "readable": "true"}
        await told(client, CODE.UPDATE_AND_GET_GROUP_FORBIDDEN, **fields)
        assert (await client.pull("T", 0)).code == 0


def test_who_is_kept_from_what_is_bounded_and_goes_with_group_and_topic() -> None:
    log, state = Log(), empty_state()
    with_topic(log)
    for group, topic in (("g", "A"), ("h", "A"), ("h", "B"), ("i", "B")):
        log.append(encode_log_command(Forbid(group, topic, True, 3)))
    assert folded(log, state)[1:] == [True, True, True, False]
    assert restored(captured(state), REGISTRY) == state
    log.entries.clear()
    log.append(encode_log_command(DeleteTopic("A", 1, with_locks=True)))
    assert folded(log, state) == [True]
    assert state[GROUPS].forbidden.keys() == {("h", "B")}
    log.entries.clear()
    log.append(encode_log_command(DeleteGroup("h", True, with_locks=True)))
    log.append(encode_log_command(Forbid("x", "y", False, MAX_FORBIDDEN)))
    assert folded(log, state) == [True, True]
    assert not state[GROUPS].forbidden


# --- cleaning -------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [CODE.DELETE_EXPIRED_COMMITLOG, CODE.TRIGGER_DELETE_FILES])
async def test_an_operator_has_old_messages_dropped_at_any_hour(tmp_path: Path, code: int) -> None:
    around = Surroundings()
    around.hour = 12
    async with running_broker(tmp_path, **around.settings()) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        await send(client, 60)
        around.clock.now_ms += 73 * HOUR_MS
        await send(client, 20)
        await broker.parts[LOG_KEEPER].look()
        assert (await client.ask(CODE.CLEAN_EXPIRED_CONSUMEQUEUE)).code == 0
        assert (await client.ask(CODE.CLEAN_UNUSED_TOPIC)).code == 0
        assert await minimum(client) == 0
        assert (await client.ask(code)).code == 0
        assert await minimum(client) > 30  # it is decided when the reply comes
        first = await minimum(client)
        assert (await client.ask(code)).code == 0
        assert await minimum(client) == first


async def test_requests_for_cleaning_are_bounded(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, _nursery):
        keeper = broker.parts[LOG_KEEPER]
        called: list[int] = []
        for _ in range(100):
            keeper.look_soon(lambda: called.append(1), drops=False)
        with pytest.raises(RequestRefused, match="ask later"):
            keeper.look_soon(lambda: called.append(1), drops=False)
        await until(lambda: _is(len(called) == 100))


async def _is(fact: bool) -> bool:
    return fact


# --- progress -------------------------------------------------------------------------------------


@pytest.mark.feature("F55")
async def test_the_progress_of_all_groups_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        for topic in ("T", "U"):
            for _ in range(3):
                await client.send(topic, b"x")
        await client.heartbeat("c", "g", "T", "U")
        await client.heartbeat("c", "h", "T")
        await commit(client, 1, "g", "T")
        await commit(client, 3, "g", "U")
        await commit(client, 2, "h", "T")
        await commit(client, 2, "h", "U")  # it subscribes to that no more
        await commit(client, 1, "unknown", "T")
        await client.pull("T", 2)
        reply = await client.ask(CODE.GET_BROKER_CONSUME_STATS, isOrder="false")
        body = parse_json("stats", reply.body)
        assert isinstance(body, dict)
        assert body["brokerAddr"] == str(broker.config.address)
        assert (body["totalDiff"], body["totalInflightDiff"]) == (2 + 0 + 1, 1)
        found: dict[str, list[int]] = {}
        assert isinstance(body["consumeStatsList"], list)
        for entry in body["consumeStatsList"]:
            assert isinstance(entry, dict)
            for group, stats in entry.items():
                assert isinstance(stats, list)
                found[group] = [len(one["offsetTable"]) for one in stats]  # type: ignore[index,arg-type,call-overload]
        assert found == {"g": [4, 4], "h": [4]}
        reply = await client.ask(CODE.GET_BROKER_CONSUME_STATS, isOrder="true")
        assert b'"consumeStatsList":[]' in reply.body
        monkeypatch.setattr(statistics, "MAX_TOLD_QUEUES", 11)
        reply = await client.ask(CODE.GET_BROKER_CONSUME_STATS, isOrder="false")
        assert reply.code == ResponseCode.SYSTEM_BUSY


async def test_the_progress_of_a_group_is_told_for_the_topics_that_are_named(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as client:
        for topic in ("T", "U", "V"):
            await client.send(topic, b"x")
        await commit(client, 1, "g", "T")
        await commit(client, 1, "g", "U")

        async def topics(**more: Any) -> set[str]:
            reply = await client.ask(CODE.GET_CONSUME_STATS, consumerGroup="g", **more)
            return {one.topic for one in decode_queue_keyed("stats", "offsetTable", reply.body)}

        assert await topics() == {"T", "U"}
        assert await topics(topic="T") == {"T"}
        assert await topics(topic="V") == {"V"}
        assert await topics(topicList="T;V;absent") == {"T", "V"}
        await client.heartbeat("c", "g", "T")
        assert await topics() == {"T"}
        assert await topics(topic="U") == set()
        assert await topics(topicList="U") == {"U"}


async def test_the_slowest_group_is_found_and_nothing_is_deleted(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        for _ in range(9):
            await client.send("T", b"x")
        for group, offset in (("a", 3), ("b", 5), ("c", 8)):
            await commit(client, offset, group)

        async def slowest(compared: str, left_out: str = "") -> dict[str, int]:
            fields: dict[str, Any] = {
                "topic": "T",
                "compareGroup": compared,
                "filterGroups": left_out,
            }
            body = await told(client, CODE.QUERY_CORRECTION_OFFSET, **fields)
            found: dict[str, int] = body["correctionOffsets"]
            return found

        assert await slowest("c") == {"0": 3}
        assert await slowest("c", "a,x") == {"0": 5}
        assert await slowest("a", "a") == {"0": (1 << 63) - 1}
        assert await slowest("a", "a,b,c") == {}
        assert await slowest("unknown") == {"0": 3}
        assert len((await told(client, 43))["offsetTable"]) == 3


async def test_what_waits_next_tells_for_how_long(tmp_path: Path) -> None:
    clock = Clock()
    async with served(tmp_path, clock=clock) as client:
        for number in range(3):
            clock.now_ms = START_MS + 1000 * number
            await client.send("T", b"x")
        await commit(client, 1)
        clock.now_ms = START_MS + 60_000
        body = await told(client, CODE.QUERY_CONSUME_TIME_SPAN, topic="T", group="g")
        assert body["consumeTimeSpanSet"][0]["delayTime"] == 59_000
        assert body["consumeTimeSpanSet"][0]["consumeTimeStamp"] == START_MS
        assert body["consumeTimeSpanSet"][1]["delayTime"] == 0
        await commit(client, 3)
        body = await told(client, CODE.QUERY_CONSUME_TIME_SPAN, topic="T", group="g")
        assert body["consumeTimeSpanSet"][0]["delayTime"] == 0


# --- queues and consumers -------------------------------------------------------------------------


async def test_the_units_of_a_queue_are_shown_and_whether_a_group_wants_them(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as client:
        for tag in ("A", "B"):
            await client.send("T", b"x", tags=tag)
        asked: dict[str, Any] = {"topic": "T", "queueId": 0, "index": 0, "count": 10}
        body = await told(client, CODE.QUERY_CONSUME_QUEUE, **asked)
        assert (body["minQueueIndex"], body["maxQueueIndex"]) == (0, 2)
        assert body["filterData"] is body["subscriptionData"] is None
        assert [row["tagsCode"] for row in body["queueData"]] == [65, 66]
        (first, second) = await client.messages("T")
        places = [row["physicOffset"] for row in body["queueData"]]
        assert places == [first.physical_offset, second.physical_offset]
        body = await told(client, CODE.QUERY_CONSUME_QUEUE, **asked, consumerGroup="g")
        assert body["filterData"] == "g@T is not online!"
        data = ConsumerData("g", subscriptions=[SubscriptionData("T", "B || C")])
        assert (await client.ask(34, encode_heartbeat(Heartbeat("c", [], [data])))).code == 0
        body = await told(client, CODE.QUERY_CONSUME_QUEUE, **asked, consumerGroup="g")
        assert [row["eval"] for row in body["queueData"]] == [False, True]
        assert body["subscriptionData"]["subString"] == "B || C"
        body = await told(client, CODE.QUERY_SUBSCRIPTION_BY_CONSUMER, topic="T", group="g")
        assert body["subscriptionData"]["subString"] == "B || C"
        body = await told(client, CODE.QUERY_SUBSCRIPTION_BY_CONSUMER, topic="T", group="h")
        assert body == {"group": "h", "subscriptionData": None, "topic": "T"}
        reply = await client.ask(CODE.QUERY_CONSUME_QUEUE, **{**asked, "index": 5})
        assert (reply.code, reply.remark) == (0, "Index 5 of 0@T is not exist!")
        wrong: list[tuple[dict[str, Any], int]] = [
            ({"topic": "absent"}, 1),
            ({"queueId": 99}, 1),
            ({"count": 1001}, 29),
            ({"index": -1}, 29),
        ]
        for more, code in wrong:
            assert (await client.ask(CODE.QUERY_CONSUME_QUEUE, **{**asked, **more})).code == code


async def test_the_members_of_a_group_tell_how_far_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_status, "ASK_S", 0.2)
    async with running_broker(tmp_path) as (broker, nursery):
        address = str(broker.config.address)
        operator, java, silent = (Client(nursery, address) for _ in range(3))
        queue = MessageQueue("T", "broker-a", 1)
        java.answers_with = encode_queue_keyed("messageQueueTable", [(queue, 7)])
        await java.heartbeat("java", "g", "T")
        await silent.heartbeat("silent", "g", "T")
        asked: dict[str, Any] = {"group": "g", "topic": "T"}
        reply = await operator.ask(CODE.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, **asked)
        assert reply.code == 0
        assert reply.body == (
            b'{"consumerTable":{"java":{{"brokerName":"broker-a","queueId":1,"topic":"T"}:7}}}'
        )
        assert java.notices[-1].code == CODE.GET_CONSUMER_STATUS_FROM_CLIENT
        assert java.notices[-1].fields == {"group": "g", "topic": "T"}
        before = len(java.notices)
        silent.answers_with = b"no JSON"
        reply = await operator.ask(
            CODE.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, **asked, clientAddr="silent"
        )
        assert (reply.body, len(java.notices)) == (b'{"consumerTable":{}}', before)
        for more in ({"group": "h"}, {"clientAddr": "other"}):
            reply = await operator.ask(
                CODE.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, **{**asked, **more}
            )
            assert reply.code == ResponseCode.SYSTEM_ERROR
        monkeypatch.setattr(consumer_status, "MAX_MEMBERS", 1)
        reply = await operator.ask(CODE.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, **asked)
        assert reply.code == ResponseCode.SYSTEM_BUSY


async def test_an_operator_sees_how_far_delayed_messages_are(tmp_path: Path) -> None:
    clock = Clock()
    async with running_broker(tmp_path, clock=clock) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        assert (await told(client, CODE.GET_ALL_DELAY_OFFSET))["offsetTable"] == {}
        for _ in range(2):
            assert (await client.send("T", b"x", i="DELAY\x011\x02UNIQ_KEY\x01k\x02")).code == 0
        clock.now_ms += 500
        assert (await client.send("T", b"x", i="DELAY\x011\x02UNIQ_KEY\x01k\x02")).code == 0
        assert (
            await client.send("T", b"x", i="TIMER_DELAY_SEC\x0160\x02UNIQ_KEY\x01k\x02")
        ).code == 0
        assert (await told(client, CODE.GET_ALL_DELAY_OFFSET))["offsetTable"] == {"1": 0}
        clock.now_ms = START_MS + 1000
        await client.send("U", b"x")
        waiting = broker.machine.state[DELAYS].waiting
        broker.parts[DELIVERIES].on_sooner()
        await until(lambda: _is(len(waiting) == 2))
        assert (await told(client, CODE.GET_ALL_DELAY_OFFSET))["offsetTable"] == {"1": 2}
        metrics = await told(client, CODE.GET_TIMER_METRICS)
        assert metrics["timingCount"]["rmq_sys_wheel_timer"]["count"] == 2
        body = (await client.ask(CODE.GET_TIMER_CHECK_POINT)).body
        numbers = struct.unpack(">7q", body)
        assert (numbers[0], numbers[2:4]) == (START_MS + 1000, (1, 1))


async def test_an_operator_sees_how_far_the_members_are(tmp_path: Path) -> None:
    async with group_of_three(tmp_path, **SMALL) as group:
        leader, client = await group.leader()
        await client.send("T", b"x")

        async def all_have_it() -> bool:
            body = await told(client, CODE.GET_BROKER_HA_STATUS)
            assert body["master"] is True
            assert len(body["haConnectionInfo"]) == 2
            return bool(body["inSyncSlaveNums"] == 2)

        await until(all_have_it)
        other = next(name for name in group.brokers if name != leader)
        follower = Client(group.nursery, str(group.configs[other].listen))
        body = await told(follower, CODE.GET_BROKER_HA_STATUS)
        assert (body["master"], body["haConnectionInfo"]) == (False, [])
        assert body["haClientRuntimeInfo"]["masterAddr"] == group.configs[leader].peers[leader]


async def test_a_broker_has_topics_named_like_its_cluster_and_itself_and_one_for_traces(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, auto_create_topics=False) as client:
        for topic, queues, permission in (
            ("DefaultCluster", 16, 7),
            ("broker-a", 1, 7),
            ("RMQ_SYS_TRACE_TOPIC", 1, 6),
        ):
            config = await told(client, CODE.GET_TOPIC_CONFIG, topic=topic)
            assert (config["writeQueueNums"], config["perm"]) == (queues, permission)
            assert (await client.send(topic, b"probe")).code == 0
            reply = await client.ask(CODE.DELETE_TOPIC_IN_BROKER, topic=topic)
            assert reply.code == 29, "a tool would find no route, and take the cluster for gone"


async def test_a_cluster_whose_name_no_topic_may_have_is_no_topic(tmp_path: Path) -> None:
    async with running_broker(tmp_path, cluster="my.cluster") as (broker, _nursery):
        topics = broker.machine.state[TOPICS].configs
        assert "broker-a" in topics
        assert "my.cluster" not in topics


async def test_standing_topics_are_made_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        await client.send("T", b"x")
        changes = broker.machine.state[TOPICS].topic_changes
    async with running_broker(tmp_path) as (broker, _nursery):
        assert broker.machine.state[TOPICS].topic_changes == changes
