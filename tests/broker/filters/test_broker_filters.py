"""Consumers that filter by SQL92."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from broker.features import REGISTRY, empty_state
from broker.filters import condition as conditions
from broker.filters.changes import MAX_HEARTBEAT_CHARACTERS
from broker.filters.commands import PutFilter
from broker.filters.condition import MAX_CONDITION_CHARACTERS, condition, load_parser
from broker.filters.state import FILTERS, GroupFilter
from broker.groups.commands import DeleteGroup
from broker.limits import MAX_PULL_SCANNED_UNITS, BrokerLimits
from broker.log.entry import encode_log_command
from broker.log.fold import fold
from broker.log.state_snapshot import captured, restored
from broker.pulls import message_filter
from broker.pulls.message_filter import tag_filter
from broker.store.message_reader import MAX_CONDITION_COST
from broker.topics.commands import DeleteTopic
from remoting.bodies.heartbeat import ConsumerData, Heartbeat, SubscriptionData, encode_heartbeat
from remoting.message.batch import BatchMessage, encode_batch_body
from remoting.message.record import decode_records
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from tests.broker.delay.test_broker_delay import folded
from tests.broker.log.test_broker_fold import Log, with_topic
from tests.broker.one_broker import Client, running_broker, served, until


async def subscribe(client: Client, text: str, version: int = 1, group: str = "g") -> Command:
    data = ConsumerData(group, subscriptions=[SubscriptionData("T", text, "SQL92", version)])
    return await client.ask(34, encode_heartbeat(Heartbeat("c", [], [data])))


async def pull(client: Client, offset: int, **more: Any) -> Command:
    """A pull as Java's push consumer makes it: the condition is in the heartbeats."""
    fields = {"sysFlag": 2, "expressionType": "SQL92", "suspendTimeoutMillis": 0, **more}
    return await client.pull("T", offset, **fields)


async def holds_one(client: Client) -> bool:
    """Whether one pull waits."""
    return b'"pullHeld":"1"' in (await client.ask(28)).body


def bodies(reply: Command) -> list[bytes]:
    return [message.body for message in decode_records(reply.body)]


async def test_a_pull_gives_what_meets_the_condition_of_the_heartbeat(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        for number in range(10):
            await client.send("T", b"%d" % number, i=f"n\x01{number}\x02")
        assert (await subscribe(client, "n BETWEEN 3 AND 5")).code == 0
        reply = await pull(client, 0, subVersion=1)
        assert bodies(reply) == [b"3", b"4", b"5"]
        assert reply.fields["nextBeginOffset"] == "10"
        some = await pull(client, 0, subVersion=1, maxMsgNums=2)
        assert (bodies(some), some.fields["nextBeginOffset"]) == ([b"3", b"4"], "5")
        none = await pull(client, 6, subVersion=1)
        assert none.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert none.fields["nextBeginOffset"] == "10"


async def test_a_pull_may_bring_its_condition_itself(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        for number in range(4):
            await client.send("T", b"%d" % number, i=f"n\x01{number}\x02")
        reply = await pull(client, 0, sysFlag=4, subscription="n > 1")
        assert bodies(reply) == [b"2", b"3"]
        wrong = await pull(client, 0, sysFlag=4, subscription="n >")
        assert wrong.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        other = await client.pull("T", 0, expressionType="XPATH")
        assert other.code == ResponseCode.SYSTEM_ERROR


async def test_a_condition_that_is_not_known_yet_gives_nothing(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        await client.send("T", b"x")
        assert (await pull(client, 0)).code == ResponseCode.SUBSCRIPTION_NOT_LATEST
        await subscribe(client, "n > 1", version=7)
        assert (await pull(client, 0, subVersion=8)).code == ResponseCode.SUBSCRIPTION_NOT_LATEST
        assert (await pull(client, 0, subVersion=7)).code == ResponseCode.PULL_RETRY_IMMEDIATELY


async def test_a_new_leader_knows_the_condition_before_the_next_heartbeat(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        for number in range(4):
            await client.send("T", b"%d" % number, i=f"n\x01{number}\x02")
        await subscribe(client, "n = 1", version=1)
        await subscribe(client, "n = 2", version=2)
        await subscribe(client, "n = 3", version=1)  # an older one
        assert bodies(await pull(client, 0, subVersion=2)) == [b"2"]
        await client.ask(28)
    async with served(tmp_path) as client:
        assert bodies(await pull(client, 0, subVersion=2)) == [b"2"]
        assert (await pull(client, 0, subVersion=3)).code == ResponseCode.SUBSCRIPTION_NOT_LATEST


async def test_a_waiting_pull_is_answered_by_the_first_message_that_it_wants(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        client, sender = (Client(nursery, str(broker.config.address)) for _ in range(2))
        await sender.send("T", b"first")
        await subscribe(client, "n = 1")
        found: list[Command] = []

        async def wait() -> None:
            found.append(await pull(client, 1, subVersion=1, suspendTimeoutMillis=10_000))

        async with trio.open_nursery() as waiting:
            waiting.start_soon(wait)
            await until(lambda: holds_one(sender))
            for number in (2, 2, 2):
                await sender.send("T", b"no", i=f"n\x01{number}\x02")
            assert not found
            await sender.send("T", b"yes", i="n\x011\x02")
        (reply,) = found
        assert bodies(reply) == [b"yes"]
        assert reply.fields["nextBeginOffset"] == "5"


async def test_a_waiting_pull_whose_time_is_over_goes_on_behind_what_it_did_not_want(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        client, sender = (Client(nursery, str(broker.config.address)) for _ in range(2))
        await sender.send("T", b"first")
        await subscribe(client, "n = 1")
        found: list[Command] = []

        async def wait() -> None:
            found.append(await pull(client, 1, subVersion=1, suspendTimeoutMillis=700))

        async with trio.open_nursery() as waiting:
            waiting.start_soon(wait)
            await until(lambda: holds_one(sender))
            await sender.send("T", b"no")
            await sender.send("T", b"no")
        (reply,) = found
        assert reply.code == ResponseCode.PULL_NOT_FOUND
        assert reply.fields["nextBeginOffset"] == "3"


async def test_one_pull_judges_so_many_messages_and_so_many_bytes_at_most(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        batch = encode_batch_body(BatchMessage(b"x") for _ in range(2 * MAX_PULL_SCANNED_UNITS))
        await client.send("T", batch, m="true")
        text = "y" * 20_000
        looks = MAX_CONDITION_COST // len(text) // 2 + 1
        for _ in range(4):
            await client.send("U", b"x", i=f"a\x01{text}\x02")
            await client.send("V", bytes(4 * 1024 * 1024 - 1000), i="n\x010\x02")
        some = await pull(client, 0, sysFlag=4, subscription="n = 1")
        assert some.fields["nextBeginOffset"] == str(MAX_PULL_SCANNED_UNITS)
        dear = " OR ".join(["a CONTAINS 'z'"] * looks)
        few = await client.pull("U", 0, sysFlag=4, subscription=dear, expressionType="SQL92")
        assert few.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert few.fields["nextBeginOffset"] == "2"
        # What is not looked at counts nothing: the bodies are not read.
        all_ = await client.pull("V", 0, sysFlag=4, subscription="n = 1", expressionType="SQL92")
        assert all_.fields["nextBeginOffset"] == "4"


@pytest.mark.parametrize("text", ["n >", "", "n = '" + "x" * MAX_CONDITION_CHARACTERS + "'"])
async def test_a_wrong_condition_is_told_at_the_subscription(tmp_path: Path, text: str) -> None:
    async with served(tmp_path) as client:
        await client.send("T", b"x")
        told = await subscribe(client, text)
        assert told.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        body = {
            "clientId": "c",
            "group": "g",
            "subscriptionData": {"topic": "T", "subString": text, "expressionType": "SQL92"},
        }
        asked = await client.ask(RequestCode.CHECK_CLIENT_CONFIG, json.dumps(body).encode())
        assert asked.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


async def test_a_good_condition_is_answered_with_success_and_so_are_tags(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        for kind, text in (("SQL92", "n > 1 AND c = 'even'"), ("TAG", "a || b")):
            wanted = {"topic": "T", "subString": text, "expressionType": kind}
            body = {"clientId": "c", "group": "g", "subscriptionData": wanted}
            asked = await client.ask(RequestCode.CHECK_CLIENT_CONFIG, json.dumps(body).encode())
            assert asked.code == 0


async def test_conditions_of_one_heartbeat_are_bounded_together(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        text = "n = '" + "x" * 1500 + "'"
        wanted = [
            SubscriptionData(f"T{number}", text, "SQL92", 1)
            for number in range(MAX_HEARTBEAT_CHARACTERS // len(text) + 1)
        ]
        data = ConsumerData("g", subscriptions=wanted)
        told = await client.ask(34, encode_heartbeat(Heartbeat("c", [], [data])))
        assert told.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


async def test_a_group_that_turns_to_tags_gets_messages_by_tags(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        await client.send("T", b"a", tags="A")
        await client.send("T", b"b", tags="B")
        await subscribe(client, "n = 1")
        data = ConsumerData("g", subscriptions=[SubscriptionData("T", "A", version=2)])
        await client.ask(34, encode_heartbeat(Heartbeat("c", [], [data])))
        reply = await client.pull("T", 0, sysFlag=2, subVersion=2, suspendTimeoutMillis=0)
        assert bodies(reply) == [b"a"]


async def test_more_conditions_than_are_kept_count_at_this_leader(tmp_path: Path) -> None:
    async with served(tmp_path, limits=BrokerLimits(max_filters=1)) as client:
        for number in range(3):
            await client.send("T", b"%d" % number, i=f"n\x01{number}\x02")
        for number in (1, 2):
            await subscribe(client, f"n = {number}", group=f"g{number}")
        for number in (1, 2):
            reply = await pull(client, 0, subVersion=1, consumerGroup=f"g{number}")
            assert bodies(reply) == [b"%d" % number]


async def test_a_condition_with_a_version_that_no_clock_shows_is_not_kept(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        await client.send("T", b"x")
        assert (await subscribe(client, "n = 1", version=-1)).code == 0
        assert (await client.send("T", b"x")).code == 0
        assert (await pull(client, 0, subVersion=-1)).code == ResponseCode.PULL_RETRY_IMMEDIATELY


# --- the fold -------------------------------------------------------------------------------------


def test_the_newest_condition_of_a_group_counts_and_goes_with_its_topic_and_group() -> None:
    log, state = Log(), empty_state()
    with_topic(log)
    for command in (
        PutFilter("g", "A", "n = 1", 5, 2),
        PutFilter("g", "A", "n = 2", 4, 2),
        PutFilter("h", "A", "n = 3", 1, 2),
        PutFilter("i", "A", "n = 4", 1, 2),  # one too many
        PutFilter("g", "absent", "n = 5", 1, 9),
    ):
        log.append(encode_log_command(command))
    assert folded(log, state)[1:] == [True, True, True, False, False]
    tables = state[FILTERS].tables
    assert tables == {("g", "A"): GroupFilter("n = 1", 5), ("h", "A"): GroupFilter("n = 3", 1)}
    assert restored(captured(state), REGISTRY) == state
    log.entries.clear()
    log.append(encode_log_command(DeleteGroup("h", True)))
    fold(state, log.entries)
    assert set(tables) == {("g", "A")}
    log.entries.clear()
    log.append(encode_log_command(DeleteTopic("A", 1, with_locks=True)))
    fold(state, log.entries)
    assert not tables


def filters_of(kind: str) -> list[Callable[[int], object]]:
    """Make different filters that take much memory: short ones and long ones."""
    if kind == "tags":
        tags = [chr(0x4E00 + at) for at in range(256)]
        return [lambda number: tag_filter("||".join(tags[number:] + tags[:number]))]
    return [
        lambda number: condition(f"b={number}" + " or a=1" * 34),
        lambda number: condition(f"b={number}" + " or a=1" * 190),
    ]


@pytest.mark.parametrize(("kind", "limit"), [("tags", 20_000_000), ("conditions", 50_000_000)])
def test_remembered_filters_take_little_memory_whatever_clients_send(kind: str, limit: int) -> None:
    module = {"tags": message_filter, "conditions": conditions}[kind]
    caches = [one for one in vars(module).values() if hasattr(one, "cache_parameters")]
    load_parser()
    most = 0.0
    for make in filters_of(kind):
        for cache in caches:
            if cache.cache_parameters()["maxsize"] is not None:
                cache.cache_clear()
        make(0)
        tracemalloc.start()
        for number in range(1, 9):
            make(number)
        taken = tracemalloc.get_traced_memory()[0] / 8
        tracemalloc.stop()
        (filled,) = [one for one in caches if one.cache_info().currsize == 9]
        most += taken * filled.cache_parameters()["maxsize"]
    assert most < limit
