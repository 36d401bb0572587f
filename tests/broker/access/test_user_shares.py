"""One user with few rights cannot use up a broker: it is refused, and others are served."""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from broker.errors import RequestRefused
from broker.filters.state import FILTERS
from broker.limits import BrokerLimits
from broker.lite.popping import LITE_POPPING
from broker.producers.members import PRODUCERS
from broker.query.searches import MAX_WAITING_OF_USER, Search, Searches
from broker.serving.counts import Counts
from broker.settings.user_shares import USER_SHARES, UserShares
from remoting.bodies.consumer_group import (
    QueueLock,
    decode_locked_queues,
    encode_queue_lock,
)
from remoting.bodies.heartbeat import (
    ConsumerData,
    Heartbeat,
    SubscriptionData,
    encode_heartbeat,
)
from remoting.bodies.message_queue import MessageQueue
from remoting.net.errors import ConnectionClosed
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from remoting.wire.on_behalf import Represented
from remoting.wire.signature import Credentials
from tests.broker.access.guarded_broker import ADMIN, CODE, FILE, Guarded, allow, guarded
from tests.broker.one_broker import Client, send_fields, served, until

BUSY = ResponseCode.SYSTEM_BUSY
FEW = replace(
    BrokerLimits(),
    max_connections_of_user=3,
    max_held_of_user=4,
    max_new_of_user=5,
    max_waiting_of_user=20,
)
ASKED = Command(CODE.PULL_MESSAGE)
NEW_TOPIC: dict[str, Any] = {
    **{"defaultTopic": "TBW102", "perm": 6, "topicFilterType": "SINGLE_TAG"},
    **{"readQueueNums": 1, "writeQueueNums": 1},
}
EVERYTHING = (allow("Topic:*", "Pub", "Sub", "Create"), allow("Group:*", "Sub", "Create"))


async def two_users(here: Guarded) -> tuple[Client, Client]:
    greedy, other = [await here.user(name, *EVERYTHING) for name in ("greedy", "other")]
    assert (await here.admin.send("orders", b"1")).code == 0
    return greedy, other


async def test_a_user_has_so_many_connections(tmp_path: Path) -> None:
    async with guarded(tmp_path, limits=FEW) as here:
        greedy, other = await two_users(here)
        more = [here.client(Credentials("greedy", "greedy-secret")) for _ in range(3)]
        codes = [(await one.send("orders", b"1")).code for one in (greedy, *more)]
        assert codes == [0, 0, 0, BUSY]
        refused = await more[-1].send("orders", b"1")
        assert "user greedy has 3 connections" in (refused.remark or "")
        assert "dledgerMaxConnectionsOfUser" in (refused.remark or "")
        assert (await other.send("orders", b"1")).code == 0
        greedy.close()
        await until(lambda: _connections(here, 2))
        assert (await more[-1].send("orders", b"1")).code == 0
        admins = [here.client(ADMIN) for _ in range(5)]
        assert [(await one.send("orders", b"1")).code for one in admins] == [0] * 5


async def _connections(here: Guarded, count: int) -> bool:
    return len(here.broker.parts[USER_SHARES].connections_of("greedy")) == count


async def held(here: Guarded, user: str, count: int) -> bool:
    return here.broker.parts[USER_SHARES].held.of(user) == count


async def test_a_user_has_so_many_pulls_and_pops_that_wait(tmp_path: Path) -> None:
    async with guarded(tmp_path, limits=FEW) as here, trio.open_nursery() as nursery:
        greedy, other = await two_users(here)
        waits: dict[str, Any] = {"sysFlag": 6, "suspendTimeoutMillis": 15000}

        async def pull(client: Client) -> None:
            with suppress(ConnectionClosed):
                await client.pull("orders", 1, **waits)

        for _ in range(4):
            nursery.start_soon(pull, greedy)
        await until(lambda: held(here, "greedy", 4))
        refused = await greedy.pull("orders", 1, **waits)
        assert (refused.code, "4 pulls that wait" in (refused.remark or "")) == (BUSY, True)
        pop: dict[str, Any] = {"consumerGroup": "g", "topic": "orders", "queueId": -1}
        pop |= {"maxMsgNums": 1, "invisibleTime": 60000, "pollTime": 15000, "initMode": 1}
        pop |= {"bornTime": 10**15}
        codes = [(await greedy.ask(CODE.POP_MESSAGE, **pop)).code for _ in range(2)]
        assert codes == [0, ResponseCode.POLLING_FULL]  # what is there is given
        nursery.start_soon(pull, other)
        await until(lambda: held(here, "other", 1))
        greedy.close()
        await until(lambda: held(here, "greedy", 0))
        assert (await here.admin.send("orders", b"2")).code == 0
        await until(lambda: held(here, "other", 0))
        nursery.cancel_scope.cancel()


async def test_clients_of_a_user_leave_room_for_those_of_others(tmp_path: Path) -> None:
    """Every user may join groups of producers, without any rule."""
    async with guarded(tmp_path, limits=replace(FEW, max_clients=20)) as here:
        poor, other = await here.user("poor"), (await two_users(here))[1]
        more = here.client(Credentials("poor", "poor-secret"))

        async def beat(client: Client, producers: list[str], consumers: list[str]) -> int:
            kept = [ConsumerData(name) for name in consumers]
            body = encode_heartbeat(Heartbeat("c@1", producers, kept))
            return (await client.ask(CODE.HEART_BEAT, body)).code

        assert await beat(poor, ["a", "b", "c"], []) == 0
        assert await beat(more, ["a", "b"], []) == 0
        assert await beat(more, ["a", "b"], []) == 0  # the same ones
        assert await beat(more, ["c"], []) == BUSY
        assert await beat(other, ["a"], ["g1", "g2", "g3", "g4"]) == 0
        assert await beat(other, ["a"], ["g1", "g5", "g6"]) == BUSY
        assert await beat(here.admin, list("abcdefgh"), [f"h{one}" for one in range(8)]) == 0
        poor.close()
        await until(lambda: _producers(here, 11))
        assert await beat(more, ["c"], []) == 0


async def test_subscriptions_of_a_user_leave_room_for_those_of_others(tmp_path: Path) -> None:
    """A few clients with long subscriptions could fill it. Clients that are registered stay."""
    async with guarded(tmp_path, limits=replace(FEW, max_client_bytes=40_000)) as here:
        greedy, other = await two_users(here)

        async def beat(client: Client, group: str) -> Command:
            wanted = [SubscriptionData("orders", "||".join([f"{n:099}" for n in range(30)]))]
            body = encode_heartbeat(
                Heartbeat("c@1", [], [ConsumerData(group, subscriptions=wanted)])
            )
            return await client.ask(CODE.HEART_BEAT, body)

        codes = [(await beat(greedy, group)).code for group in ("g1", "g2", "g3", "g1", "g2")]
        assert codes == [0, 0, BUSY, 0, 0]
        assert "the subscriptions of user greedy take" in ((await beat(greedy, "g3")).remark or "")
        assert [(await beat(other, group)).code for group in ("h1", "h2")] == [0, 0]
        filled = [(await beat(here.admin, f"a{number}")).code for number in range(12)]
        assert filled[-1] == BUSY
        assert (await beat(greedy, "g1")).code == 0  # as before


async def test_a_pull_with_many_tags_counts_as_several_of_its_user(tmp_path: Path) -> None:
    async with guarded(tmp_path, limits=FEW) as here, trio.open_nursery() as nursery:
        greedy, _ = await two_users(here)
        tags = "||".join(map(str, range(64)))
        waits: dict[str, Any] = {"sysFlag": 6, "suspendTimeoutMillis": 15000, "subscription": tags}

        async def pull() -> None:
            with suppress(ConnectionClosed):
                await greedy.pull("orders", 1, **waits)

        nursery.start_soon(pull)
        await until(lambda: held(here, "greedy", 5))
        assert (await greedy.pull("orders", 1, **waits)).code == BUSY
        greedy.close()
        await until(lambda: held(here, "greedy", 0))
        nursery.cancel_scope.cancel()


async def _producers(here: Guarded, count: int) -> bool:
    return len(here.broker.parts[PRODUCERS]) == count


async def test_searches_of_a_user_leave_room_for_those_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Searches] = []

    def never(self: Searches, _search: Search) -> Iterator[None]:
        found.append(self)
        while True:
            yield

    monkeypatch.setattr(Searches, "answering", never)
    async with guarded(tmp_path, limits=FEW) as here, trio.open_nursery() as nursery:
        greedy, other = await two_users(here)
        asked: dict[str, Any] = {"topic": "orders", "key": "k", "maxNum": 32}
        asked |= {"beginTimestamp": 0, "endTimestamp": 1}

        async def search(client: Client) -> None:
            with suppress(ConnectionClosed):
                await client.ask(CODE.QUERY_MESSAGE, **asked)

        async def wait(count: int) -> bool:
            return bool(found) and len(found[0].waiting) == count

        for number in range(MAX_WAITING_OF_USER + 1):  # the first one is looked for
            nursery.start_soon(search, greedy)
            await until(partial(wait, number))
        refused = await greedy.ask(CODE.QUERY_MESSAGE, **asked)
        assert refused.code == BUSY
        assert "user greedy has 16 searches that wait" in (refused.remark or "")
        nursery.start_soon(search, other)
        await until(partial(wait, MAX_WAITING_OF_USER + 1))
        nursery.cancel_scope.cancel()


async def test_pops_of_lite_topics_count_in_the_share_of_their_user(tmp_path: Path) -> None:
    """Beside pulls and pops: until they are answered, or their client is gone."""
    async with guarded(tmp_path, limits=FEW) as here, trio.open_nursery() as nursery:
        greedy, other = await two_users(here)
        await here.lite_parent("chats", "agents")
        pop: dict[str, Any] = {"clientId": "c", "consumerGroup": "agents", "topic": "chats"}
        pop |= {"maxMsgNum": 1, "invisibleTime": 60000, "pollTime": 15000, "bornTime": 10**15}
        pop |= {"attemptId": "a"}

        async def wait(client: Client) -> None:
            with suppress(ConnectionClosed):
                await client.ask(CODE.POP_LITE_MESSAGE, **pop)

        for _ in range(4):
            nursery.start_soon(wait, greedy)
        await until(lambda: held(here, "greedy", 4))
        refused = await greedy.ask(CODE.POP_LITE_MESSAGE, **pop)
        assert refused.code == ResponseCode.POLLING_FULL
        waits: dict[str, Any] = {"sysFlag": 6, "suspendTimeoutMillis": 15000}
        assert (await greedy.pull("orders", 1, **waits)).code == BUSY
        nursery.start_soon(wait, other)
        await until(lambda: held(here, "other", 1))
        greedy.close()
        await until(lambda: held(here, "greedy", 0))
        here.broker.parts[LITE_POPPING].end_term()
        await until(lambda: held(here, "other", 0))
        nursery.cancel_scope.cancel()


async def test_requests_of_a_proxy_count_for_the_users_that_it_represents(tmp_path: Path) -> None:
    async with guarded(tmp_path, limits=FEW) as here, trio.open_nursery() as nursery:
        await two_users(here)
        shares = here.broker.parts[USER_SHARES]
        proxy = here.client(ADMIN)

        def fields_of(user: str) -> dict[str, Any]:
            date = "20261130T000000Z"
            proof = hmac.digest(f"{user}-secret".encode(), date.encode(), "sha1").hex()
            found: dict[str, str] = {}
            Represented(user, date, proof, "10.1.2.3").add_to(found)
            return {**found, "sysFlag": 6, "suspendTimeoutMillis": 15000}

        async def pull(user: str) -> None:
            with suppress(ConnectionClosed):
                await proxy.pull("orders", 1, **fields_of(user))

        for _ in range(4):
            nursery.start_soon(pull, "greedy")
        await until(lambda: held(here, "greedy", 4))
        refused = await proxy.pull("orders", 1, **fields_of("greedy"))
        assert (refused.code, "user greedy has 4 pulls" in (refused.remark or "")) == (BUSY, True)
        nursery.start_soon(pull, "other")
        await until(lambda: held(here, "other", 1))
        assert not shares.connections_of("greedy")  # the connection is the proxy's
        nursery.cancel_scope.cancel()


async def test_a_user_makes_so_many_topics_and_groups_within_an_hour(tmp_path: Path) -> None:
    async with guarded(tmp_path, limits=FEW) as here:
        greedy, other = await two_users(here)
        for number in range(3):
            assert (await greedy.send(f"new{number}", b"1")).code == 0
        assert (await greedy.send("new0", b"1")).code == 0  # it is there
        body = b'{"groupName":"g0","retryQueueNums":1}'
        assert (await greedy.ask(CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)).code == 0
        assert (await greedy.ask(CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)).code == 0
        beat = encode_heartbeat(Heartbeat("c@1", [], [ConsumerData("g1")]))
        assert (await greedy.ask(CODE.HEART_BEAT, beat)).code == 0
        beat = encode_heartbeat(Heartbeat("c@1", [], [ConsumerData("g2")]))
        for reply in (
            await greedy.send("new9", b"1"),
            await greedy.ask(CODE.UPDATE_AND_CREATE_TOPIC, topic="new9", **NEW_TOPIC),
            await greedy.ask(CODE.HEART_BEAT, beat),
            await greedy.ask(CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, b'{"groupName":"g2"}'),
        ):
            assert reply.code == BUSY
            assert "has made 5 topics and groups within an hour" in (reply.remark or "")
        assert (await greedy.send("orders", b"1")).code == 0
        assert (await other.send("new9", b"1")).code == 0


async def test_a_topic_that_a_user_puts_counts_once(tmp_path: Path) -> None:
    async with guarded(tmp_path, limits=FEW) as here:
        greedy, _ = await two_users(here)
        for _ in range(2):  # a topic that is there is not new
            for number in range(5):
                topic = f"new{number}"
                put = await greedy.ask(CODE.UPDATE_AND_CREATE_TOPIC, topic=topic, **NEW_TOPIC)
                assert put.code == 0, put
        put = await greedy.ask(CODE.UPDATE_AND_CREATE_TOPIC, topic="new5", **NEW_TOPIC)
        assert put.code == BUSY


class Shares(UserShares):
    """Without a broker, by a clock that is set."""

    def __init__(self) -> None:
        self.now = 0.0
        settings = SimpleNamespace(now=SimpleNamespace(limits=FEW))
        config = SimpleNamespace(access=FILE)
        parts = SimpleNamespace(clock=lambda: self.now, config=config)
        super().__init__(cast(Any, _Parts(parts, settings)))


class _Parts:
    def __init__(self, parts: SimpleNamespace, settings: SimpleNamespace) -> None:
        self.clock, self.config, self._settings = parts.clock, parts.config, settings

    def __getitem__(self, _key: object) -> object:
        return self._settings


def test_an_hour_later_a_user_may_make_topics_again() -> None:
    shares = Shares()
    shares.make("a", 5)
    with pytest.raises(RequestRefused, match="dledgerMaxNewTopicsOfUser"):
        shares.make("a")
    shares.make("b", 5)
    shares.make(None, 1000)
    shares.now = 3601.0
    shares.make("a", 5)


def test_a_user_takes_a_quarter_of_a_table_within_an_hour_while_half_of_it_is_taken() -> None:
    shares = Shares()

    def take(user: str | None, table: str = "places", count: int = 1, full: bool = True) -> bool:
        return shares.may_take(user, table, 8, is_half_full=full, count=count)

    # As long as there is room for others, it may.
    assert [take("a", full=False) for _ in range(3)] == [True] * 3
    assert not take("a")
    assert take("a", "others", 2)
    assert [take("b", count=count) for count in (3, 2)] == [False, True]
    assert take(None, count=1000)
    shares.now = 3601.0
    assert take("a")


async def test_a_user_cannot_take_all_places_of_tables_that_users_share(tmp_path: Path) -> None:
    few = replace(
        BrokerLimits(),
        max_offset_tables=8,
        max_open_transactions=8,
        max_delayed_messages=8,
        max_locks=8,
        max_filters=8,
    )
    async with guarded(tmp_path, limits=few) as here:
        greedy, other = await two_users(here)
        state = here.broker.machine.state

        async def commits(client: Client, number: int) -> int:
            of: dict[str, Any] = {"consumerGroup": f"g{number}", "topic": "orders", "queueId": 0}
            return (await client.ask(CODE.UPDATE_CONSUMER_OFFSET, commitOffset=1, **of)).code

        async def sends(client: Client, properties: str) -> int:
            fields = send_fields("orders")
            fields["i"] += "\x02" + properties
            return (await client.ask(CODE.SEND_MESSAGE_V2, b"1", **fields)).code

        async def locks(client: Client, number: int) -> int:
            queue = MessageQueue("orders", "broker-a", number)
            body = encode_queue_lock(QueueLock("g", client.address, [queue]))
            locked = decode_locked_queues((await client.ask(CODE.LOCK_BATCH_MQ, body)).body)
            return 0 if locked else BUSY

        async def filters(client: Client, number: int) -> int:
            wanted = SubscriptionData("orders", "a = 1", expression_type="SQL92", version=1)
            data = [ConsumerData(f"f{number}", subscriptions=[wanted])]
            await client.ask(CODE.HEART_BEAT, encode_heartbeat(Heartbeat("c", [], data)))
            await client.send("orders", b"1")  # what is applied behind it
            return 0 if (f"f{number}", "orders") in state[FILTERS].tables else BUSY

        half = "TRAN_MSG\x01true\x02PGROUP\x01p"
        for take in (
            commits,
            lambda client, _number: sends(client, half),
            lambda client, _number: sends(client, "TIMER_DELAY_SEC\x01600"),
            locks,
            filters,
        ):
            codes = [await take(greedy, number) for number in range(8)]
            assert codes == [0] * 4 + [BUSY] * 4
            assert [await take(other, number) for number in (8, 9)] == [0, 0]
        assert await sends(greedy, f"{half}\x02TIMER_DELAY_SEC\x01600") == BUSY


async def test_groups_of_a_user_pop_from_a_share_of_all_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("popping", "choice"):
        monkeypatch.setattr(f"broker.pop.{module}.MAX_QUEUES", 8)
    async with guarded(tmp_path) as here:
        greedy, other = await two_users(here)

        async def pops(client: Client, number: int) -> Command:
            pop: dict[str, Any] = {"consumerGroup": f"g{number}", "topic": "orders", "queueId": -1}
            pop |= {"maxMsgNums": 1, "invisibleTime": 60000, "pollTime": 0, "initMode": 1}
            return await client.ask(CODE.POP_MESSAGE, bornTime=0, **pop)

        codes = [(await pops(greedy, number)).code for number in range(5)]
        assert codes == [0] * 4 + [BUSY]
        assert "of user greedy" in ((await pops(greedy, 4)).remark or "")
        assert (await pops(greedy, 0)).code == ResponseCode.POLLING_TIMEOUT  # its queue is known
        assert [(await pops(other, number)).code for number in (8, 9)] == [0, 0]


async def test_a_delayed_message_of_a_transaction_needs_room_among_delayed_ones(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, limits=replace(BrokerLimits(), max_delayed_messages=1)) as client:
        for properties, code in (
            ("TRAN_MSG\x01true\x02PGROUP\x01p\x02TIMER_DELAY_SEC\x01600", 0),
            ("TIMER_DELAY_SEC\x01600", 0),
            ("TRAN_MSG\x01true\x02PGROUP\x01p\x02TIMER_DELAY_SEC\x01600", BUSY),
            ("TRAN_MSG\x01true\x02PGROUP\x01p", 0),
        ):
            fields = send_fields("T")
            fields["i"] += "\x02" + properties
            assert (await client.ask(CODE.SEND_MESSAGE_V2, b"1", **fields)).code == code


def test_so_many_requests_of_a_user_wait_and_each_counts_until_it_is_answered() -> None:
    shares = Shares()
    origins = [cast(Any, type("Origin", (), {"is_closed": False})()) for _ in range(2)]
    for origin, user in zip(origins, ("a", "b"), strict=True):
        shares.connect(origin, user)
    answered: list[object] = []
    thens = [shares.counted(origins[0], ASKED, answered.append) for _ in range(20)]
    with pytest.raises(RequestRefused, match="user a has 20 requests that wait") as refused:
        shares.counted(origins[0], ASKED, answered.append)
    assert refused.value.code == BUSY
    shares.counted(origins[1], ASKED, answered.append)(None)
    shares.drop(origins[0])
    thens[0](None)  # an answer to a connection that has ended
    for then in thens[1:]:
        then(None)
    assert len(answered) == 21
    assert shares._waiting._counts == {}
    assert not shares.connections_of("a")


def test_counts_keep_no_user_without_anything() -> None:
    counts = Counts()
    for user in ("a", "b", None):
        counts.add(user)
        counts.remove(user)
    assert counts._counts == {}
    assert counts.of(None) == 0
