"""What is kept of a client is bounded, and goes with its connection."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.consumers.members import Consumers, Member
from broker.limits import BrokerLimits
from broker.producers.members import Producer, Producers
from broker.serving.memberships import DROPPED_AT_ONCE, MEMBER_EXPIRY_S, Client
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


def test_a_connection_has_many_producers_and_leaves_nothing_behind() -> None:
    producers: Any = Producers()
    stays: Any = Connection()
    producers.register(stays, "p", Producer("stays", 0.0))
    before = held(vars(producers), set())
    goes: Any = Connection()
    for number in range(100):
        for group in ("p", "q"):
            producers.register(goes, group, Producer(f"id-{number}", 0.0))
    assert producers.client("id-0") is producers.client("id-99") is goes
    assert (producers.count_of(goes), producers.group_count(Client(goes, "id-7"))) == (200, 2)
    for group in ("p", "q"):
        producers.unregister(Client(goes, "id-0"), group)
    assert (producers.client("id-0"), producers.client("id-1")) == (None, goes)
    while producers.drop_some(goes):
        pass
    assert held(vars(producers), set()) == before
    assert (producers.client("id-99"), producers.client("stays")) == (None, stays)


def test_an_id_that_another_connection_has_taken_over_stays_its_own() -> None:
    producers: Any = Producers()
    first, second = Connection(), Connection()
    producers.register(first, "p", Producer("id", 0.0))
    producers.register(second, "p", Producer("id", 0.0))
    producers.drop_some(first)
    assert producers.client("id") is second


def test_consumers_know_how_much_they_keep_of_each_connection() -> None:
    consumers: Any = Consumers()
    stays, goes = cast(Any, Connection()), cast(Any, Connection())
    consumers.register(stays, consumer("stays", "g", "T"))
    before, size = held(vars(consumers), set()), consumers.size
    assert size > 0
    for number in range(50):
        for group in ("g", "h"):
            consumers.register(goes, consumer("id-0", group, "T", f"U{number}"))
    client = Client(goes, "id-0")
    assert consumers.size_of(goes) == consumers.size - size == consumers.size_in(client, {"g", "h"})
    assert consumers.size_of(goes) < 10 * size, "what was said before counts no more"
    consumers.unregister(client, "g")
    assert consumers.size_of(goes) == consumers.size - size > 0
    for number in range(200):
        consumers.register(goes, consumer(f"id-{number}", "h", "T"))
    assert consumers.size_of(goes) > 200 * size - 1000
    assert consumers.size_in(client, {"g", "h"}) == consumers.size_in(Client(goes, "id-9"), {"h"})
    while consumers.drop_some(goes):
        pass
    consumers.register(stays, consumer("stays", "g", "T"))
    assert (held(vars(consumers), set()), consumers.size) == (before, size)


@pytest.mark.parametrize(
    ("code", "body", "member"),
    [
        (RequestCode.HEART_BEAT, HEARTBEAT, "clientID"),
        (RequestCode.LOCK_BATCH_MQ, LOCK, "clientId"),
        (RequestCode.UNLOCK_BATCH_MQ, LOCK, "clientId"),
    ],
)
async def test_a_client_id_that_is_no_name_is_refused(
    tmp_path: Path, code: int, body: dict[str, Any], member: str
) -> None:
    async with served(tmp_path) as client:
        assert (await client.ask(code, json.dumps(body).encode())).code == 0
        for client_id in (LONG, "x" * 256, "a\nb", "\x1b[2J", "a\u202eb", "a\0"):
            hostile = {**body, member: client_id}
            reply = await client.ask(code, json.dumps(hostile).encode())
            assert reply.code == ResponseCode.SYSTEM_ERROR, client_id
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


async def test_one_connection_has_no_more_producers_than_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.consumers.processor.MAX_CONNECTION_PRODUCERS", 5)

    def heartbeat(client_id: str, *groups: str) -> bytes:
        producers = [{"groupName": group} for group in groups]
        return json.dumps({"clientID": client_id, "producerDataSet": producers}).encode()

    async with served(tmp_path) as client:
        assert (await client.ask(34, heartbeat("a", "P", "Q", "R"))).code == 0
        refused = await client.ask(34, heartbeat("b", "P", "Q", "R"))
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert (await client.ask(34, heartbeat("a", "P", "Q", "R"))).code == 0  # nothing new
        assert (await client.ask(35, clientID="a", producerGroup="P", consumerGroup="")).code == 0
        assert (await client.ask(34, heartbeat("b", "R"))).code == 0


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
        lambda: consumers.unregister(Client(one, "one"), "g"),
        lambda: consumers.drop_some(one),
        lambda: consumers.register(one, consumer("one", "g", "T")),
    ):
        consumers.register(one, broadcaster("one", "g"))
        assert consumers.is_broadcasting("g")
        leave()
        assert not consumers.is_broadcasting("g")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("comes", "goes", "disconnects", "is silent")),
            *(st.integers(0, 2), st.sampled_from("abc"), st.sampled_from("gh")),
        )
    )
)
def test_members_are_those_whose_client_and_connection_are_there(
    steps: list[tuple[str, int, str, str]],
) -> None:
    consumers, producers = Consumers(), Producers()
    connections: list[Any] = [Connection() for _ in range(3)]
    model: dict[tuple[int, str, str], int] = {}
    for now, (step, number, client_id, group) in enumerate(steps):
        connection, key = connections[number], (number, client_id, group)
        if step == "comes":
            member = replace(consumer(client_id, group, "T"), last_heartbeat=now)
            is_told = consumers.register(connection, member)
            assert is_told is (key not in model)
            producers.register(connection, group, Producer(client_id, now))
            model[key] = now
        elif step == "goes":
            client = Client(connection, client_id)
            assert consumers.unregister(client, group) is (key in model)
            producers.unregister(client, group)
            model.pop(key, None)
        elif step == "disconnects":
            groups = {one[2] for one in model if one[0] == number}
            assert consumers.drop_some(connection) == sorted(groups)
            assert producers.drop_some(connection) is bool(groups)
            model = {one: at for one, at in model.items() if one[0] != number}
        else:
            first = min(model.values(), default=now)
            assert bool(consumers.expire(first + MEMBER_EXPIRY_S)) is bool(model)
            producers.expire(first + MEMBER_EXPIRY_S)
            model = {one: at for one, at in model.items() if at > first}
        assert (len(consumers), len(producers)) == (len(model), len(model))
        for name in "gh":
            there = [(connections[at], one) for at, one, of in model if of == name]
            assert consumers.client_ids(name) == sorted({one for _, one in there})
            assert set(consumers.origins(name)) == {one for one, _ in there}
            assert set(producers.members(name)) == set(there)
            ids = {one for _, one in there}
            assert {one for one in "abc" if consumers.member(name, one) is not None} == ids


def test_the_clients_of_a_connection_are_dropped_in_steps() -> None:
    consumers, connection = Consumers(), cast(Any, Connection())
    for number in range(DROPPED_AT_ONCE + 1):
        consumers.register(connection, consumer(f"c{number}", "g", "T"))
    assert consumers.drop_some(connection) == ["g"]
    assert len(consumers) == 1
    assert consumers.drop_some(connection) == ["g"]
    assert consumers.drop_some(connection) == []


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
