"""Consumers that pop, with real brokers in this process."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from dledger_mq import (
    Admin,
    Client,
    ConsumeResult,
    InvalidOptions,
    Listener,
    Message,
    PopConsumer,
    PopOptions,
    Producer,
    ReceivedMessage,
    RequestMode,
    blocking,
    for_asyncio,
)
from dledger_mq.connection.this_process import now_ms
from dledger_mq.popping import pop_requests
from remoting.bodies.assignment import Assigned, encode_assigned
from remoting.bodies.message_queue import MessageQueue
from remoting.bodies.pop import AckedPop
from remoting.bodies.route import BrokerData, ClusterInfo
from remoting.net.connection import Connection
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from tests.broker.one_broker import Clock, until
from tests.broker.three_brokers import Group, group_of_three
from tests.dledger_mq.scripted_cluster import (
    GROUP_NAME,
    ScriptedBroker,
    ScriptedNames,
    start,
)

GROUP = "poppers"
QUICK = PopOptions(invisible_s=2, retry_s=(0.05,), suspend_s=0.05)


class RealClock(Clock):
    """The wall clock."""

    def __call__(self) -> int:
        return now_ms()


class Running:
    """One broker or three, and a name server that a test tells who leads."""

    def __init__(self, group: Group, names: ScriptedNames, client: Client) -> None:
        self.group = group
        self.names = names
        self.client = client

    async def lead(self) -> str:
        """Have the name server name the leader; its name."""
        leader, _client = await self.group.leader()
        self.names.set_route("T", str(self.group.configs[leader].address), queues=4)
        return leader

    def consumer(
        self, listener: Listener, group: str = GROUP, ordered: bool = False, **more: PopOptions
    ) -> PopConsumer:
        return PopConsumer(
            group,
            "T",
            listener,
            nameservers=[self.names.address],
            ordered=ordered,
            from_first=True,
            options=more.get("options", QUICK),
        )

    async def send(self, *bodies: bytes, key: str = "") -> None:
        async with Producer("senders", client=self.client) as producer:
            for body in bodies:
                message = Message("T", body, sharding_key=key)
                await producer.send(message, timeout_s=20)


@asynccontextmanager
async def running(directory: Path, *members: str) -> AsyncIterator[Running]:
    async with group_of_three(directory, clock=RealClock(), names=members or ["n0"]) as group:
        names = ScriptedNames()
        await start(group.nursery, names)
        async with Client([names.address]) as client:
            cluster = Running(group, names, client)
            await cluster.lead()
            yield cluster


class Inbox:
    """A listener that remembers; it fails with some messages at first."""

    def __init__(self, failures: dict[bytes, int] | None = None) -> None:
        self.bodies: list[bytes] = []
        self.times: list[int] = []
        self.failures = failures or {}

    async def __call__(self, messages: Sequence[ReceivedMessage]) -> ConsumeResult:
        for message in messages:
            self.bodies.append(message.body)
            self.times.append(message.reconsume_times)
            if self.failures.get(message.body, 0):
                self.failures[message.body] -= 1
                return ConsumeResult.RETRY
        return ConsumeResult.SUCCESS

    async def wait(self, count: int) -> None:
        async def is_there() -> bool:
            return len(self.bodies) >= count

        await until(is_there)


def cluster_of(leader: str) -> ClusterInfo:
    broker = BrokerData("DefaultCluster", "broker-a", {0: leader})
    return ClusterInfo({"broker-a": broker}, {"DefaultCluster": ["broker-a"]})


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def committed(cluster: Running) -> int:
    """How many messages the group has acknowledged, without a gap, in all queues."""
    leader, client = await cluster.group.leader()
    assert leader
    done = 0
    for queue_id in range(4):
        reply = await client.ask(14, consumerGroup=GROUP, topic="T", queueId=queue_id)
        done += reply.integer("offset", 0) if reply.code == 0 else 0
    return done


async def test_every_message_is_given_once_and_acknowledged(tmp_path: Path) -> None:
    inbox = Inbox()
    async with running(tmp_path) as cluster:
        await cluster.send(*numbered(20))
        async with cluster.consumer(inbox) as one, cluster.consumer(inbox) as two:
            await one.ready()
            await two.ready()
            await inbox.wait(20)
            await cluster.send(*numbered(40)[20:])
            await inbox.wait(40)
        assert Counter(inbox.bodies) == Counter(numbered(40))
        assert await committed(cluster) == 40


async def test_what_is_consumed_together_is_acknowledged_by_few_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_each, many = pop_requests.acknowledge, pop_requests.acknowledge_many
    counts: list[int] = []

    def of_one(*arguments: Any) -> Command:
        counts.append(1)
        return one_each(*arguments)

    def of_many(broker_name: str, pops: list[AckedPop]) -> Command:
        counts.append(len(pops))
        return many(broker_name, pops)

    monkeypatch.setattr(pop_requests, "acknowledge", of_one)
    monkeypatch.setattr(pop_requests, "acknowledge_many", of_many)
    inbox = Inbox()
    running_calls = 0
    all_run = trio.Event()

    async def end_together(messages: Sequence[ReceivedMessage]) -> None:
        nonlocal running_calls
        running_calls += 1
        if running_calls == 10:
            all_run.set()
        await all_run.wait()
        await inbox(messages)

    async with running(tmp_path) as cluster:
        await cluster.send(*numbered(10))
        options = PopOptions(concurrency=10, invisible_s=30)
        async with cluster.consumer(end_together, options=options):
            await inbox.wait(10)
        assert await committed(cluster) == 10
    assert sum(counts) == 10
    assert len(counts) <= 3


async def test_a_message_that_failed_comes_again_and_says_how_often(tmp_path: Path) -> None:
    inbox = Inbox({b"1": 2})
    async with running(tmp_path) as cluster:
        await cluster.send(*numbered(3))
        async with cluster.consumer(inbox):
            await inbox.wait(5)
        assert Counter(inbox.bodies) == Counter({b"0": 1, b"1": 3, b"2": 1})
        assert [t for b, t in zip(inbox.bodies, inbox.times, strict=True) if b == b"1"] == [0, 1, 2]
        assert await committed(cluster) == 3


async def test_a_long_call_keeps_its_message_by_renewing_it(tmp_path: Path) -> None:
    calls: list[bytes] = []

    async def slow(messages: Sequence[ReceivedMessage]) -> None:
        calls.append(messages[0].body)
        await trio.sleep(2.5)

    async with running(tmp_path) as cluster:
        await cluster.send(b"0")
        options = PopOptions(invisible_s=1)
        async with (
            cluster.consumer(slow, options=options),
            cluster.consumer(slow, options=options),
        ):
            await trio.sleep(3.5)
        assert calls == [b"0"]
        assert await committed(cluster) == 1


async def test_a_listener_that_hangs_keeps_a_message_only_for_the_longest_call(
    tmp_path: Path,
) -> None:
    inbox = Inbox()

    async def hang(messages: Sequence[ReceivedMessage]) -> None:
        await inbox(messages)
        await trio.sleep_forever()

    async with running(tmp_path) as cluster:
        await cluster.send(b"0")
        options = PopOptions(invisible_s=1, longest_call_s=1, close_timeout_s=0.1)
        async with cluster.consumer(hang, options=options):
            await inbox.wait(2)
        assert inbox.times[:2] == [0, 1]


async def test_what_waits_is_given_back_when_the_consumer_ends(tmp_path: Path) -> None:
    held = trio.Event()
    inbox = Inbox()

    async def hold(_messages: Sequence[ReceivedMessage]) -> None:
        held.set()
        await trio.sleep(0.2)

    async with running(tmp_path) as cluster:
        await cluster.send(*numbered(20))
        options = PopOptions(concurrency=1, invisible_s=3600)
        async with cluster.consumer(hold, options=options):
            await held.wait()
        async with cluster.consumer(inbox):
            await inbox.wait(19)
        assert len(inbox.bodies) == 19  # the first was consumed, and waited for
        assert await committed(cluster) == 20


async def test_no_more_messages_are_held_than_allowed(tmp_path: Path) -> None:
    go_on = trio.Event()
    calls: list[bytes] = []

    async def hold(messages: Sequence[ReceivedMessage]) -> None:
        calls.append(messages[0].body)
        await go_on.wait()

    async with running(tmp_path) as cluster:
        await cluster.send(*numbered(20))
        options = PopOptions(max_held_messages=5)
        async with cluster.consumer(hold, options=options):
            with trio.move_on_after(0.5):
                while len(calls) <= 5:  # noqa: ASYNC110 - it must not come about
                    await trio.sleep(0.01)
            assert len(calls) == 5
            go_on.set()

            async def all_came() -> bool:
                return len(calls) == 20

            await until(all_came)
        assert await committed(cluster) == 20


async def test_an_ordered_queue_goes_on_behind_a_message_that_failed_only_when_it_succeeds(
    tmp_path: Path,
) -> None:
    inbox = Inbox({b"1": 2})
    async with running(tmp_path) as cluster:
        await cluster.send(*numbered(5), key="one queue")
        async with (
            cluster.consumer(inbox, ordered=True),
            cluster.consumer(inbox, group="others", ordered=True),
        ):
            await inbox.wait(12)
        assert await committed(cluster) == 5
    mine = inbox.bodies
    assert Counter(mine) == Counter({b"0": 2, b"1": 4, b"2": 2, b"3": 2, b"4": 2})


async def test_consumers_go_on_at_the_next_leader_and_their_handles_are_good_there(
    tmp_path: Path,
) -> None:
    inbox = Inbox()
    moved = trio.Event()

    async def wait_for_the_move(messages: Sequence[ReceivedMessage]) -> None:
        if messages[0].body != b"late":
            await moved.wait()
        await inbox(messages)

    async with running(tmp_path, "n0", "n1", "n2") as cluster:
        await cluster.send(*numbered(10))
        options = PopOptions(invisible_s=30)
        async with cluster.consumer(wait_for_the_move, options=options) as consumer:
            await consumer.ready()
            first, client = await cluster.group.leader()

            async def all_out() -> bool:
                reply = await client.ask(28)
                return b'"dledgerPoppedInFlight":"10"' in reply.body

            await until(all_out)
            cluster.group.stop(first)
            second = await cluster.lead()
            assert second != first
            moved.set()
            await inbox.wait(10)
            await cluster.send(b"late")
            await inbox.wait(11)
        assert Counter(inbox.bodies) == Counter([*numbered(10), b"late"])
        assert await committed(cluster) == 11


async def test_an_operator_sets_and_lists_how_groups_read_topics(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.send(b"0")
        leader, _client = await cluster.group.leader()
        cluster.names.set_cluster(cluster_of(str(cluster.group.configs[leader].address)))
        async with Admin(client=cluster.client) as admin:
            for mode in (RequestMode("T", GROUP, "PULL", 0), RequestMode("T", GROUP, "POP", 3)):
                await admin.set_request_mode(mode)
                assert await admin.request_modes() == [mode]


async def test_a_consumer_pops_only_from_the_queues_that_brokers_assign() -> None:
    asked: list[int] = []

    def assign(_connection: Connection, command: Command) -> Command:
        queue = MessageQueue("T", GROUP_NAME, 1)
        return command.reply(body=encode_assigned([Assigned(queue, "POP")]))

    def pop(_connection: Connection, command: Command) -> Command:
        asked.append(command.integer("queueId"))
        return command.reply(ResponseCode.POLLING_TIMEOUT)

    async def nothing(_messages: Sequence[ReceivedMessage]) -> None:
        """There is nothing to consume."""

    async with trio.open_nursery() as nursery:
        names, broker = ScriptedNames(), ScriptedBroker()
        broker.answers |= {RequestCode.QUERY_ASSIGNMENT: assign, RequestCode.POP_MESSAGE: pop}
        await start(nursery, names)
        names.set_route("T", await start(nursery, broker))
        async with PopConsumer(
            GROUP, "T", nothing, nameservers=[names.address], assigned=True
        ) as consumer:
            await consumer.ready()
            assert consumer.queues() == [MessageQueue("T", GROUP_NAME, 1)]
        assert set(asked) == {1}
        nursery.cancel_scope.cancel()


async def test_plain_programs_pop_in_threads(tmp_path: Path) -> None:
    bodies: list[bytes] = []

    def listen(messages: Sequence[ReceivedMessage]) -> None:
        bodies.extend(message.body for message in messages)

    def consume(nameserver: str) -> None:
        consumer = PopConsumer(
            GROUP, "T", blocking.listener(listen), nameservers=[nameserver], from_first=True
        )
        with blocking.open_pop_consumer(consumer) as running:
            running.ready()
            deadline = time.monotonic() + 10
            while len(bodies) < 10 and time.monotonic() < deadline:
                time.sleep(0.01)

    async with running(tmp_path) as cluster:
        await cluster.send(*numbered(10))
        await trio.to_thread.run_sync(consume, cluster.names.address)
        assert Counter(bodies) == Counter(numbered(10))
        assert await committed(cluster) == 10


async def test_a_coroutine_function_of_asyncio_pops_in_its_loop(tmp_path: Path) -> None:
    bodies: list[bytes] = []

    async def consume(nameserver: str) -> None:
        done = asyncio.Event()
        loops = []

        async def hear(messages: Sequence[ReceivedMessage]) -> None:
            loops.append(asyncio.get_running_loop())
            bodies.extend(message.body for message in messages)
            if len(bodies) == 10:
                done.set()

        listener = for_asyncio.listener(hear)
        consumer = PopConsumer(GROUP, "T", listener, nameservers=[nameserver], from_first=True)
        async with for_asyncio.open_pop_consumer(consumer) as running:
            await running.ready()
            await asyncio.wait_for(done.wait(), 20)
        assert set(loops) == {asyncio.get_running_loop()}

    async with running(tmp_path) as cluster:
        await cluster.send(*numbered(10))
        address = cluster.names.address
        await trio.to_thread.run_sync(lambda: asyncio.run(consume(address)))
        assert Counter(bodies) == Counter(numbered(10))
        assert await committed(cluster) == 10


@pytest.mark.parametrize(
    "options",
    [
        {"invisible_s": 0.5},
        {"pop_batch": 33},
        {"max_held_messages": 0},
        {"retry_s": ()},
        {"suspend_s": 31},
        {"concurrency": 1.5},
        {"batch_size": "3"},
        {"close_timeout_s": -1},
        {"slow_call_s": float("nan")},
    ],
)
def test_options_out_of_range_are_refused_in_one_line(options: dict[str, float]) -> None:
    with pytest.raises(InvalidOptions, match=r"PopOptions: \w+ is .*: give"):
        PopOptions(**options)  # type: ignore[arg-type]
