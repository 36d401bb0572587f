"""Lite topics: messages of each come in order, to the clients that have subscribed to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from broker.features import empty_state
from broker.lite import popping as lite_popping
from broker.lite import processor as lite_processor
from broker.lite.keeper import LiteKeeper
from broker.lite.limits import SUBSCRIPTION_EXPIRY_S
from broker.lite.popping import LITE_POPPING, SUBSCRIPTIONS
from broker.lite.state import LITE, LiteGroup, LiteParent
from broker.lite.subscribing import Subscribing
from broker.log.entry import LITE_VERSION
from broker.log.folded import Folded
from broker.log.state import Deletion
from broker.machine import BrokerMachine
from broker.pop.state import InFlight, PopQueue
from broker.serving.waiting_requests import WaitingRequests
from dledger import LogFull
from remoting.message.batch import BatchMessage, encode_batch_body
from remoting.message.properties import encode_properties
from remoting.wire.codes import RequestCode, ResponseCode
from tests.broker.broker_in_memory import broker_in_memory
from tests.broker.lite.lite_broker import GROUP, PARENT, LiteClient, lite_broker
from tests.broker.one_broker import Client, Clock, send_fields, until


@pytest.mark.feature("F59")
async def test_a_client_is_given_messages_of_its_lite_topics_in_order(tmp_path: Path) -> None:
    async with lite_broker(tmp_path) as one:
        await one.make()
        await one.send("a", b"a0", b"a1", queue_id=1)
        await one.send("b", b"b0", queue_id=2)
        await one.send("other", b"o0")
        assert await one.bodies() == []
        assert (await one.subscribe("c", "a", "b")).code == 0
        messages = await one.pop()
        assert [(at.lite_topic, at.body, at.record.queue_offset) for at in messages] == [
            ("a", b"a0", 0),
            ("a", b"a1", 1),
            ("b", b"b0", 0),
        ]
        assert messages[0].record.topic == PARENT
        await one.send("a", b"a2")
        assert await one.bodies() == [], "the messages before it are in flight"
        assert [await one.ack(at) for at in messages[1:]] == [0, 0]
        assert await one.bodies() == []
        assert await one.ack(messages[0]) == 0
        assert await one.bodies() == [b"a2"]
        assert await one.ack(messages[0]) == 0, "it was acknowledged before"


async def test_a_pop_waits_for_a_message(tmp_path: Path) -> None:
    async with lite_broker(tmp_path) as one, trio.open_nursery() as nursery:
        await one.make()
        await one.subscribe("c", "a")
        got: list[bytes] = []

        async def wait(client_id: str) -> None:
            got.extend(await one.bodies(client_id, pollTime=15_000))

        nursery.start_soon(wait, "c")
        nursery.start_soon(wait, "late")
        await until(lambda: waits(one, 2))
        await one.send("b", b"not wanted")
        await one.send("a", b"a0")
        await until(lambda: _is(got == [b"a0"]))
        await one.subscribe("late", "b")
        await until(lambda: _is(got == [b"a0", b"not wanted"]))


async def _is(so: bool) -> bool:
    return so


async def waits(one: LiteClient, count: int) -> bool:
    return one.broker.parts.figures()["dledgerLitePopsWaiting"] == str(count)


async def test_what_is_not_acknowledged_comes_again_and_the_old_handle_is_refused(
    tmp_path: Path,
) -> None:
    async with lite_broker(tmp_path) as one, trio.open_nursery() as nursery:
        await one.make()
        await one.subscribe("c", "a")
        await one.send("a", b"0", b"1")
        zero, _first = await one.pop(invisibleTime=10_000)
        got: list[Any] = []

        async def wait() -> None:
            got.extend(await one.pop(pollTime=15_000))

        nursery.start_soon(wait)
        await until(lambda: waits(one, 1))
        one.at(11)
        await until(lambda: _is(bool(got)))
        assert [(at.body, at.record.reconsume_times) for at in got] == [(b"0", 1), (b"1", 1)]
        assert await one.ack(zero) == ResponseCode.NO_MESSAGE
        assert (await one.hide(zero, 5)).code == ResponseCode.NO_MESSAGE
        assert [await one.ack(at) for at in got] == [0, 0]
        one.at(1000)
        assert await one.bodies() == []


async def test_changed_times_keep_the_handle_and_suspended_deliveries_do_not_count(
    tmp_path: Path,
) -> None:
    async with lite_broker(tmp_path) as one:
        await one.make()
        await one.subscribe("c", "a")
        await one.send("a", b"0", b"1")
        messages = await one.pop(invisibleTime=10_000)
        one.at(1)
        for message in messages:
            reply = await one.hide(message, 60_000)
            assert sum(reply.integer(name) for name in ("popTime", "invisibleTime")) == (
                one.clock.now_ms + 60_000
            )
        one.at(11)
        assert await one.bodies() == []
        assert (await one.hide(messages[0], 1000, suspend="true")).code == 0
        one.at(13)
        again = await one.pop(invisibleTime=10_000)
        assert [(at.body, at.record.reconsume_times) for at in again] == [(b"0", 0), (b"1", 0)]
        assert [await one.ack(at) for at in messages] == [ResponseCode.NO_MESSAGE] * 2
        acknowledged = await one.client.ask(RequestCode.ACK_LITE_MESSAGE, **again[0].fields)
        assert acknowledged.code == 0
        one.at(24)
        (last,) = await one.pop()
        assert (last.body, last.record.reconsume_times) == (b"1", 1)


async def test_a_client_that_lost_the_answer_gets_it_again(tmp_path: Path) -> None:
    async with lite_broker(tmp_path) as one:
        await one.make()
        await one.subscribe("c", "a", "b")
        await one.send("a", b"a")
        await one.send("b", b"b")
        assert await one.bodies(attemptId="1") == [b"a", b"b"]
        assert await one.bodies(attemptId="2") == []
        await one.subscribe("c", "a", "b", action="COMPLETE_ADD")
        dispatched = await one.client.ask(RequestCode.TRIGGER_LITE_DISPATCH, group=GROUP)
        assert dispatched.code == 0
        again = await one.pop(attemptId="1")
        assert [at.body for at in again] == [b"a", b"b"]
        assert [await one.ack(at) for at in again] == [0, 0]


async def test_groups_have_offsets_of_their_own_and_everything_is_known_after_a_restart(
    tmp_path: Path,
) -> None:
    clock = Clock()
    async with lite_broker(tmp_path, clock=clock) as one:
        await one.make()
        await one.make_group("others")
        await one.send("a", b"0", b"1", b"2")
        await one.subscribe("c", "a")
        await one.subscribe("c", "a", group="others")
        out = await one.pop(maxMsgNum=2)
        assert await one.ack(out[0]) == 0
        assert await one.bodies(consumerGroup="others", maxMsgNum=1) == [b"0"]
    async with lite_broker(tmp_path, clock=clock) as one:
        assert await one.bodies() == []
        await one.subscribe("c", "a")
        assert await one.bodies() == []
        assert await one.ack(out[1]) == 0
        assert await one.bodies() == [b"2"]


async def test_subscriptions_are_added_removed_and_set(tmp_path: Path) -> None:
    async with lite_broker(tmp_path) as one:
        await one.make()

        async def wanted(client_id: str = "c") -> list[str] | None:
            told = await one.client.ask(
                RequestCode.GET_LITE_CLIENT_INFO,
                parentTopic=PARENT,
                group=GROUP,
                clientId=client_id,
            )
            body = json.loads(told.body)
            names: list[str] | None = body.get("liteTopicSet")
            assert body["liteTopicCount"] == (-1 if names is None else len(names))
            return None if names is None else sorted(names)

        assert await wanted() is None
        await one.subscribe("c", "a", "b", version=1)
        await one.subscribe("c", "b", "d", version=2)
        assert await wanted() == ["a", "b", "d"]
        await one.subscribe("c", "a", "x", action="PARTIAL_REMOVE", version=3)
        assert await wanted() == ["b", "d"]
        await one.subscribe("c", "e", "b", action="COMPLETE_ADD", version=5)
        assert await wanted() == ["b", "e"]
        await one.subscribe("c", "late", action="COMPLETE_ADD", version=4)
        assert await wanted() == ["b", "e"], "an older set came late"
        await one.subscribe("other", "b")
        await one.subscribe("c", action="COMPLETE_REMOVE")
        assert await wanted() is None
        assert await wanted("other") == ["b"]
        told = await one.client.ask(
            RequestCode.GET_LITE_TOPIC_INFO, parentTopic=PARENT, liteTopic="b"
        )
        assert json.loads(told.body)["subscriber"] == [{"clientId": "other", "group": GROUP}]


async def test_clients_that_do_not_repeat_their_subscriptions_have_none(tmp_path: Path) -> None:
    async with lite_broker(tmp_path) as one:
        await one.make()
        await one.subscribe("c", "a", "b")
        await one.subscribe("d", "a")
        subscriptions = one.broker.parts[SUBSCRIPTIONS]
        client = subscriptions.client((GROUP, "c"))
        assert client is not None
        client.told_s -= SUBSCRIPTION_EXPIRY_S
        subscribing = Subscribing(one.broker.parts)
        subscribing.look_over()
        assert subscriptions.client((GROUP, "c")) is None
        assert (subscriptions.count, len(subscriptions)) == (1, 1)


async def test_the_newest_subscriber_of_an_exclusive_group_takes_over(tmp_path: Path) -> None:
    async with lite_broker(tmp_path) as one, trio.open_nursery() as nursery:
        await one.make(model="Exclusive", reset_offset_exclusive="true")
        second = one.another(nursery)
        await one.send("a", b"0")
        await one.subscribe("old", "a", "b")
        (message,) = await one.pop("old")
        assert await one.ack(message) == 0
        await one.subscribe("new", "a", client=second)
        await until(lambda: _noticed(one.client))
        (notice,) = one.client.notices
        assert notice.code == RequestCode.NOTIFY_UNSUBSCRIBE_LITE
        assert notice.fields == {"clientId": "old", "consumerGroup": GROUP, "liteTopic": "a"}
        assert await one.bodies("old") == []
        assert await one.bodies("new") == [b"0"], "it begins anew"
        nursery.cancel_scope.cancel()


async def test_a_repeated_set_does_not_win_a_lite_topic_back(tmp_path: Path) -> None:
    """The connection by which its client was told may have been gone by then."""
    async with lite_broker(tmp_path) as one, trio.open_nursery() as nursery:
        await one.make(model="Exclusive")
        second = one.another(nursery)
        await one.subscribe("new", "a")
        repeated = await one.subscribe("old", "a", "b", action="COMPLETE_ADD", client=second)
        assert repeated.code == 0
        await until(lambda: _noticed(second))
        (notice,) = second.notices
        assert notice.fields == {"clientId": "old", "consumerGroup": GROUP, "liteTopic": "a"}
        assert not one.client.notices
        await one.send("a", b"a0")
        await one.send("b", b"b0")
        assert await one.bodies("old") == [b"b0"]
        assert await one.bodies("new") == [b"a0"]
        await one.subscribe("new", "a", action="COMPLETE_ADD")
        await one.subscribe("old", "b", action="COMPLETE_ADD", client=second)
        assert len(second.notices) == 1
        assert not one.client.notices
        nursery.cancel_scope.cancel()


async def _noticed(client: Client) -> bool:
    return bool(client.notices)


@pytest.mark.parametrize(
    ("option", "bodies"),
    [
        ({"type": "POLICY", "value": 0}, [b"3", b"4"]),
        ({"type": "POLICY", "value": 1}, [b"0", b"1", b"2", b"3", b"4"]),
        ({"type": "POLICY", "value": 2}, []),
        ({"type": "OFFSET", "value": 1}, [b"1", b"2", b"3", b"4"]),
        ({"type": "OFFSET", "value": 99}, []),
        ({"type": "TAIL_N", "value": 3}, [b"2", b"3", b"4"]),
        ({"type": "TAIL_N", "value": 99}, [b"0", b"1", b"2", b"3", b"4"]),
        ({"type": "TIMESTAMP", "value": 1}, [b"3", b"4"]),
    ],
)
async def test_a_subscription_says_where_the_group_goes_on(
    tmp_path: Path, option: dict[str, Any], bodies: list[bytes]
) -> None:
    async with lite_broker(tmp_path) as one:
        await one.make()
        await one.send("a", *[b"%d" % at for at in range(5)])
        await one.subscribe("before", "a")
        for message in await one.pop("before", maxMsgNum=3):
            await one.ack(message)
        await one.subscribe("before", action="COMPLETE_REMOVE")
        assert (await one.subscribe("c", "a", offsetOption=option)).code == 0
        assert await one.bodies() == bodies


async def test_an_unsubscription_may_have_the_group_begin_anew(tmp_path: Path) -> None:
    async with lite_broker(tmp_path) as one:
        await one.make(reset_offset_unsubscribe="true")
        await one.send("a", b"0")
        await one.subscribe("c", "a")
        (message,) = await one.pop()
        await one.ack(message)
        await one.subscribe("c", "a", action="PARTIAL_REMOVE")
        await one.subscribe("c", "a")
        assert await one.bodies() == [b"0"]


async def test_quotas_are_refused_with_their_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with lite_broker(tmp_path) as one:
        await one.make(client_quota="2")
        refused = await one.subscribe("c", "a", "b", "c")
        assert refused.code == ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
        assert (await one.subscribe("c", "a", "b")).code == 0
        assert (await one.subscribe("c", "b", "d", action="COMPLETE_ADD")).code == 0
        await one.make_group(GROUP, client_quota="-1")
        assert (await one.subscribe("c", "a", "e", "f")).code == 0
        monkeypatch.setattr("broker.lite.subscribing.MAX_SUBSCRIPTIONS", 5)
        refused = await one.subscribe("d", "a")
        assert refused.code == ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
        monkeypatch.setattr("broker.lite.sends.MAX_LITE_TOPICS", 1)
        await one.send("a", b"0")
        assert (await one.try_send("b")).code == ResponseCode.LMQ_QUOTA_EXCEEDED
        monkeypatch.setattr("broker.lite.sends.MAX_LITE_MESSAGES", 1)
        assert (await one.try_send("a")).code == ResponseCode.LMQ_QUOTA_EXCEEDED


async def test_clients_of_a_wildcard_group_read_all_lite_topics(tmp_path: Path) -> None:
    async with lite_broker(tmp_path) as one, trio.open_nursery() as nursery:
        await one.make(wildcard="true")
        for number in range(20):
            await one.send(f"s{number}", b"%d" % number)
        assert (await one.subscribe("c", "a")).code == ResponseCode.ILLEGAL_OPERATION
        assert (await one.subscribe("c", action="COMPLETE_ADD")).code == 0
        got = {at.body for at in await one.pop(pollTime=5000)}
        while more := await one.bodies():
            got.update(more)
        assert got == {b"%d" % number for number in range(20)}
        late: list[bytes] = []

        async def wait() -> None:
            late.extend(await one.bodies(pollTime=15_000))

        nursery.start_soon(wait)
        await until(lambda: waits(one, 1))
        await one.send("new", b"new")
        await until(lambda: _is(late == [b"new"]))


async def test_clients_that_subscribe_are_limited_whether_they_name_lite_topics_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes memory until it was silent for three minutes."""
    monkeypatch.setattr("broker.lite.subscribing.MAX_SUBSCRIBERS", 2)
    async with lite_broker(tmp_path) as one:
        await one.make(wildcard="true")
        codes = [
            (await one.subscribe(f"c{number}", action="COMPLETE_ADD")).code
            for number in (0, 1, 0, 2)
        ]
        refused = ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
        assert codes == [0, 0, 0, refused]
        assert (await one.subscribe("c1", action="COMPLETE_REMOVE")).code == 0
        assert (await one.subscribe("c2", action="COMPLETE_ADD")).code == 0


def test_a_message_does_not_look_at_all_clients_that_want_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Most of them may be busy, so that none of many waits."""
    asked = 0

    def count(_self: object, _group: str, _client_id: str) -> int:
        nonlocal asked
        asked += 1
        return 0

    monkeypatch.setattr(WaitingRequests, "count", count)
    with broker_in_memory() as broker:
        subscriptions = broker.parts[SUBSCRIPTIONS]
        for number in range(5_000):
            origin: Any = broker.client
            client = subscriptions.heard("g", f"c{number}", "P", origin, 0.0)
            subscriptions.be_wild(client)
        folded = Folded()
        folded.lite_arrivals += [("P", b"a"), ("P", b"b")] * 100
        broker.parts[LITE_POPPING].applied(folded)
        wanted = subscriptions.group("P", "g")
        assert wanted is not None
        assert [*wanted.ready] == [b"a", b"b"]
    assert asked < 10


async def test_lite_topics_end_after_their_last_message(tmp_path: Path) -> None:
    async with lite_broker(tmp_path) as one:
        await one.make({"+lite.topic.expiration": "20"})
        await one.subscribe("c", "a", "b")
        await one.send("a", b"0")
        await one.send("b", b"0")
        (message, _) = await one.pop()
        one.at(15 * 60)
        await one.send("b", b"1")
        one.at(20 * 60 + 1)
        keeper = LiteKeeper(one.broker.parts)
        keeper.look_over()
        await until(lambda: _has(one, 1))
        assert one.lite.in_flight_count == 1
        assert await one.ack(message) == ResponseCode.NO_MESSAGE
        await one.send("a", b"new")
        (again,) = await one.pop(maxMsgNum=1)
        assert (again.body, again.record.queue_offset) == (b"new", 0)
    async with lite_broker(tmp_path, clock=one.clock) as one:
        assert one.lite.topic_count == 2


async def _has(one: LiteClient, count: int) -> bool:
    return one.lite.topic_count == count


def test_what_is_in_flight_of_a_deleted_parent_or_group_is_freed_a_little_at_a_time() -> None:
    """There may be half a million messages, and a deletion is one entry of the log."""
    lite = empty_state()[LITE]
    for parent in ("P", "Q"):
        of = lite.parents[parent] = LiteParent()
        for name in ("g", "h"):
            group = of.groups[name] = LiteGroup()
            for number in range(3_000):
                key = b"s%d" % number
                group.out.put(key, PopQueue(1, {0: InFlight(1, 2, 1)}))
            lite.count_in_flight(group, 3_000)
    kept = [table.captured() for table in (lite.parents["P"].groups["h"].out,)]
    LITE.group_deleted(lite, Deletion("g", with_offsets=False, with_locks=True))
    assert (lite.in_flight_count, len(lite.parents["P"].groups["g"].out)) == (6_000, 0)
    LITE.topic_deleted(lite, Deletion("P", with_offsets=True, with_locks=True))
    assert lite.in_flight_count == lite.parents["Q"].groups["h"].in_flight_count == 3_000
    freed = 0
    while lite.ended:
        lite.sweep()
        freed += 1
    assert freed > 3_000
    assert sum(len(shard) for shard in kept[0]) == 3_000  # what a snapshot has stays


async def test_a_deleted_parent_or_group_leaves_nothing(tmp_path: Path) -> None:
    async with lite_broker(tmp_path) as one:
        await one.make()
        await one.subscribe("c", "a")
        await one.send("a", b"0", b"1")
        (zero, _) = await one.pop()
        await one.ack(zero)
        assert one.lite.in_flight_count == 1
        assert (await one.client.ask(207, groupName=GROUP, cleanOffset="true")).code == 0
        assert (one.lite.in_flight_count, one.lite.parents[PARENT].groups) == (0, {})
        await one.make()
        assert await one.bodies() == [b"0", b"1"]
        assert (await one.client.ask(215, topic=PARENT)).code == 0
        lite = one.lite
        assert (lite.parents, lite.topic_count, lite.message_count) == ({}, 0, 0)
        assert lite.in_flight_count == 0


async def test_operators_are_told_of_lite_topics(tmp_path: Path) -> None:
    async with lite_broker(tmp_path) as one:
        await one.make({"+lite.topic.expiration": "30"})
        await one.subscribe("c", "a")
        await one.send("a", b"0", b"1", b"2")
        await one.ack((await one.pop(maxMsgNum=1))[0])

        async def told(code: int, **fields: Any) -> Any:
            reply = await one.client.ask(code, **fields)
            assert reply.code == 0, reply
            return json.loads(reply.body)

        info = await told(RequestCode.GET_BROKER_LITE_INFO)
        assert (info["currentLmqNum"], info["liteSubscriptionCount"]) == (1, 1)
        assert (info["topicMeta"], info["groupMeta"]) == ({PARENT: 30}, {PARENT: [GROUP]})
        info = await told(RequestCode.GET_PARENT_TOPIC_INFO, topic=PARENT)
        assert (info["liteTopicCount"], info["ttl"], info["groups"]) == (1, 30, [GROUP])
        info = await told(RequestCode.GET_LITE_TOPIC_INFO, parentTopic=PARENT, liteTopic="a")
        assert info["topicOffset"]["maxOffset"] == 3
        info = await told(RequestCode.GET_LITE_GROUP_INFO, group=GROUP, liteTopic="a", topK=1)
        assert info["totalLagCount"] == 2
        assert info["liteTopicOffsetWrapper"]["consumerOffset"] == 1


async def test_a_lite_topic_with_more_subscribers_than_are_told_of_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lite_processor, "MAX_TOLD", 1)
    async with lite_broker(tmp_path) as one:
        await one.make()
        for number in range(3):
            await one.make_group(f"all{number}", wildcard="true")
            await one.subscribe("w", action="COMPLETE_ADD", group=f"all{number}")
        await one.subscribe("c", "a")
        asked = RequestCode.GET_LITE_TOPIC_INFO
        reply = await one.client.ask(asked, parentTopic=PARENT, liteTopic="a")
        assert reply.code == 0, reply
        assert json.loads(reply.body)["subscriber"] == [{"clientId": "*", "group": "all0"}]


async def test_a_batch_goes_to_its_lite_topics(tmp_path: Path) -> None:
    async with lite_broker(tmp_path) as one:
        await one.make()

        def batch(*names: str) -> bytes:
            return encode_batch_body(
                BatchMessage(
                    name.encode(), encode_properties({"__LITE_TOPIC": name} if name else {})
                )
                for name in names
            )

        async def send(*names: str) -> int:
            reply = await one.client.ask(
                RequestCode.SEND_BATCH_MESSAGE, batch(*names), **send_fields(PARENT, m="true", i="")
            )
            return reply.code

        assert await send("a", "b", "a") == 0
        assert await send("a", "") == ResponseCode.INVALID_PARAMETER
        await one.subscribe("c", "a", "b")
        assert await one.bodies() == [b"a", b"a", b"b"]


@pytest.mark.parametrize("name", ["a b", "x" * 65, "\u00e4", "a/b", "%", "a\x00"])
async def test_a_name_that_is_not_allowed_is_refused(tmp_path: Path, name: str) -> None:
    async with lite_broker(tmp_path) as one:
        await one.make()
        invalid = ResponseCode.INVALID_PARAMETER
        assert (await one.try_send(name)).code == invalid
        assert (await one.subscribe("c", "ok", name)).code == invalid
        await one.send("ok", b"0")
        await one.subscribe("c", "ok")
        (message,) = await one.pop()
        assert await one.ack(message, liteTopic=name) == invalid


async def test_what_the_log_refused_once_is_done_when_it_is_asked_again(tmp_path: Path) -> None:
    async with lite_broker(tmp_path) as one:
        await one.make()
        await one.send("a", b"0", b"1")
        log = one.broker.parts.log
        submit = log.submit

        def refuse_once(_bodies: object, _done: object) -> None:
            log.submit = submit  # type: ignore[method-assign]
            raise LogFull(1, 1)

        def refusing() -> None:
            log.submit = refuse_once  # type: ignore[assignment,method-assign]

        busy = ResponseCode.SYSTEM_BUSY
        start = {"type": "POLICY", "value": 2}
        await one.subscribe("c", "a")
        refusing()
        assert (await one.ask(maxMsgNum=1)).code == busy
        (message,) = await one.pop(maxMsgNum=1)
        refusing()
        assert (await one.hide(message, 5000)).code == busy
        assert (await one.hide(message, 5000)).code == 0
        refusing()
        assert await one.ack(message) == busy
        assert await one.ack(message) == 0
        refusing()
        assert (await one.subscribe("d", "a", offsetOption=start)).code == busy
        assert await one.bodies("d") == [b"1"]


async def test_what_found_no_room_in_flight_is_given_when_there_is_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lite_popping, "MAX_LITE_IN_FLIGHT", 1)
    async with lite_broker(tmp_path) as one:
        await one.make()
        await one.subscribe("c", "a")
        await one.send("a", b"a0")
        (message,) = await one.pop()
        await one.subscribe("d", "b")
        await one.send("b", b"b0")
        assert await one.bodies("d") == []
        assert await one.ack(message) == 0
        one.at(10)
        assert await one.bodies("d", pollTime=5_000) == [b"b0"]


async def test_requests_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    async with lite_broker(tmp_path) as one:
        assert (await one.ask()).code == ResponseCode.TOPIC_NOT_EXIST
        await one.make()
        for code, more in (
            (29, {"maxMsgNum": 33}),
            (29, {"maxMsgNum": 0}),
            (29, {"invisibleTime": 0}),
            (29, {"attemptId": "x" * 65}),
            (26, {"consumerGroup": "nobody"}),
            (17, {"topic": "nothing"}),
        ):
            assert (await one.ask(**more)).code == code, more
        for code, change in (
            (604, {"action": "DANCE"}),
            (604, {"offsetOption": {"type": "OFFSET", "value": -1}}),
            (604, {"offsetOption": {"type": "?"}}),
            (29, {"group": "no/name"}),
            (26, {"group": "nobody"}),
            (17, {"topic": "nothing"}),
        ):
            assert (await one.subscribe("c", "a", **change)).code == code, change
        empty = await one.client.ask(RequestCode.LITE_SUBSCRIPTION_CTL, b"{}")
        assert empty.code == ResponseCode.ILLEGAL_OPERATION
        odd: list[dict[str, Any]] = [{"DELAY": "3"}, {"TRAN_MSG": "true", "PGROUP": "p"}]
        for pairs in odd:
            assert (await one.try_send("a", **pairs)).code == ResponseCode.MESSAGE_ILLEGAL
        assert one.lite.topic_count == 0


async def test_an_ordinary_topic_takes_the_property_as_any_other(tmp_path: Path) -> None:
    async with lite_broker(tmp_path) as one:
        properties = encode_properties({"__LITE_TOPIC": "a b"}).decode()
        assert (await one.client.send("T", b"x", i=properties)).code == 0
        assert one.lite.topic_count == 0


async def test_no_lite_topics_until_all_members_know_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BrokerMachine, "machine_version", LITE_VERSION - 1)
    async with lite_broker(tmp_path) as one:
        fields = {"topic": PARENT, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
        await one.client.ask(17, **fields, attributes="+message.type=LITE")  # type: ignore[arg-type]
        assert (await one.try_send("a")).code == ResponseCode.SYSTEM_ERROR
