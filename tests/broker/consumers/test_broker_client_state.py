"""What is kept of a client is bounded, and goes with its connection."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from broker.consumers.members import Consumers, Member
from broker.limits import BrokerLimits
from broker.producers.members import Producer, Producers
from broker.serving.memberships import MEMBER_EXPIRY_S
from remoting.bodies.heartbeat import ConsumerData, MessageModel, SubscriptionData
from remoting.wire.codes import RequestCode, ResponseCode, language_named
from tests.broker.one_broker import served
from tests.hostile.broker_requests import HEARTBEAT, LOCK

LONG = "x" * 100_000


class Connection:
    """Stands for a connection."""

    is_closed = False


def consumer(client_id: str, group: str, *topics: str) -> Member:
    data = ConsumerData(group, subscriptions=[SubscriptionData(topic) for topic in topics])
    return Member(client_id, 0.0, data)


def held(value: Any, seen: set[int]) -> int:
    """How many texts, numbers and containers are reachable in tables."""
    if id(value) in seen:
        return 0
    seen.add(id(value))
    if isinstance(value, dict):
        return sum(held(one, seen) for pair in value.items() for one in pair) + 1
    if isinstance(value, set | list | tuple):
        return sum(held(one, seen) for one in value) + 1
    return 1


def test_a_connection_has_one_client_id_among_producers_and_leaves_nothing_behind() -> None:
    producers: Any = Producers()
    stays: Any = Connection()
    producers.register(stays, "p", Producer("stays", 0.0))
    before = held(vars(producers), set())
    goes: Any = Connection()
    for number in range(100):
        for group in ("p", "q"):
            producers.register(goes, group, Producer(f"id-{number}", 0.0))
        assert producers.client(f"id-{number}") is goes
        assert producers.client(f"id-{number - 1}") is None
    producers.unregister(goes, "q")
    assert producers.client("id-99") is goes
    producers.drop(goes)
    assert held(vars(producers), set()) == before
    assert (producers.client("id-99"), producers.client("stays")) == (None, stays)


def test_an_id_that_another_connection_has_taken_over_stays_its_own() -> None:
    producers: Any = Producers()
    first, second = Connection(), Connection()
    producers.register(first, "p", Producer("id", 0.0))
    producers.register(second, "p", Producer("id", 0.0))
    producers.drop(first)
    assert producers.client("id") is second


def test_consumers_know_how_much_they_keep_of_each_connection() -> None:
    consumers: Any = Consumers()
    stays, goes = Connection(), Connection()
    consumers.register(stays, consumer("stays", "g", "T"))
    before, size = held(vars(consumers), set()), consumers.size
    assert size > 0
    for number in range(50):
        for group in ("g", "h"):
            consumers.register(goes, consumer(f"id-{number}", group, "T", f"U{number}"))
    assert consumers.size_of(goes) == consumers.size - size == consumers.size_in(goes, {"g", "h"})
    assert consumers.size_of(goes) < 10 * size, "what was said before counts no more"
    consumers.unregister(goes, "g")
    assert consumers.size_of(goes) == consumers.size - size > 0
    consumers.drop(goes)
    consumers.register(stays, consumer("stays", "g", "T"))
    assert (held(vars(consumers), set()), consumers.size) == (before, size)


@pytest.mark.parametrize("client_id", [LONG, "x" * 256, "a\nb", "\x1b[2J", "a\u202eb", "a\0"])
@pytest.mark.parametrize(
    ("code", "body", "member"),
    [
        (RequestCode.HEART_BEAT, HEARTBEAT, "clientID"),
        (RequestCode.LOCK_BATCH_MQ, LOCK, "clientId"),
        (RequestCode.UNLOCK_BATCH_MQ, LOCK, "clientId"),
    ],
)
async def test_a_client_id_that_is_no_name_is_refused(
    tmp_path: Path, code: int, body: dict[str, Any], member: str, client_id: str
) -> None:
    async with served(tmp_path) as client:
        assert (await client.ask(code, json.dumps(body).encode())).code == 0
        hostile = {**body, member: client_id}
        reply = await client.ask(code, json.dumps(hostile).encode())
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert member in (reply.remark or "")
        assert len(reply.remark or "") <= 300


async def test_one_connection_cannot_fill_the_memory_by_heartbeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.consumers.processor.MAX_CLIENT_BYTES", 1_000_000)

    def heartbeat(group: str, text: str) -> bytes:
        topic = {"topic": "T", "subString": text, "subVersion": 1}
        consumers = [{"groupName": group, "subscriptionDataSet": [topic]}]
        return json.dumps({"clientID": "c", "consumerDataSet": consumers}).encode()

    async with served(tmp_path) as client:
        codes = [(await client.ask(34, heartbeat(f"g{number}", LONG))).code for number in range(12)]
        assert codes == [0] * 9 + [ResponseCode.SYSTEM_BUSY] * 3
        # What it says again counts once, and others are not touched.
        assert (await client.ask(34, heartbeat("g0", LONG))).code == 0
        assert (await client.ask(34, heartbeat("g0", "*"))).code == 0
        assert (await client.ask(34, heartbeat("g10", LONG))).code == 0


async def test_all_connections_together_cannot_either(tmp_path: Path) -> None:
    async with served(tmp_path, limits=BrokerLimits(max_client_bytes=4000)) as client:
        assert (await client.heartbeat("c", "g", "T", "U")).code == 0
        assert (await client.heartbeat("c", "h", "T", "U")).code == ResponseCode.SYSTEM_BUSY
        assert (await client.heartbeat("c", "g", "T")).code == 0


def test_a_language_is_a_name() -> None:
    assert language_named("KLINGON") == "KLINGON"
    assert language_named(LONG) == language_named("OTHER")


def broadcaster(client_id: str, group: str) -> Member:
    data = ConsumerData(group, message_model=MessageModel.BROADCASTING)
    return Member(client_id, 0.0, data)


def test_a_group_broadcasts_as_long_as_one_of_its_members_does() -> None:
    consumers, one, other = Consumers(), cast(Any, Connection()), cast(Any, Connection())
    consumers.register(other, consumer("other", "g", "T"))
    for leave in (
        lambda: consumers.unregister(one, "g"),
        lambda: consumers.drop(one),
        lambda: consumers.register(one, consumer("one", "g", "T")),
        lambda: consumers.register(one, consumer("renamed", "g", "T")),
    ):
        consumers.register(one, broadcaster("one", "g"))
        assert consumers.is_broadcasting("g")
        leave()
        assert not consumers.is_broadcasting("g")


def test_consumers_that_were_cleared_are_as_new_ones() -> None:
    consumers = Consumers()
    for number in range(3):
        connection: Any = Connection()
        for group in ("g", "h"):
            consumers.register(connection, consumer("same id", group, "T"))
            consumers.register(connection, broadcaster(f"c{number}", group))
            consumers.register(connection, consumer("same id", group, "T", f"T{number}"))
    consumers.clear()
    assert vars(consumers) == vars(Consumers())


def test_a_member_that_was_heard_of_again_keeps_no_silent_one() -> None:
    consumers, first, second = Consumers(), cast(Any, Connection()), cast(Any, Connection())
    for connection, group, now in ((first, "g", 0.0), (second, "h", 1.0), (first, "g", 100.0)):
        consumers.register(connection, replace(consumer("c", group, "T"), last_heartbeat=now))
    assert consumers.expire(1.0 + MEMBER_EXPIRY_S) == ["h"]
    assert consumers.expire(100.0 + MEMBER_EXPIRY_S) == ["g"]
