"""What producers and consumers tell a program's metrics."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
from prometheus_client import CollectorRegistry
from trio.testing import MockClock

from dledger_mq import (
    ClientMetrics,
    ConsumeFrom,
    ConsumeResult,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    Rejected,
    SendFailed,
)
from dledger_mq.prometheus_metrics import PrometheusMetrics
from remoting.bodies.message_queue import MessageQueue
from remoting.net.connection import Connection
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from tests.dledger_mq.scripted_cluster import ScriptedBroker, ScriptedNames, start, until

GROUP = "readers"
RETRY = f"%RETRY%{GROUP}"


@pytest.fixture
def clock() -> MockClock:
    return MockClock(autojump_threshold=0.01)


class Told:
    """Remembers the calls as rows."""

    def __init__(self) -> None:
        self.rows: list[tuple[object, ...]] = []

    def sent(self, topic: str, took_s: float, attempts: int) -> None:
        self.rows.append(("sent", topic, took_s, attempts))

    def send_failed(self, topic: str, error: SendFailed, took_s: float) -> None:
        self.rows.append(("send_failed", topic, type(error), took_s))

    def pulled(self, group: str, queue: MessageQueue, messages: int, size: int, lag: int) -> None:
        self.rows.append(("pulled", group, queue, messages, size, lag))

    def consumed(self, group: str, messages: Sequence[ReceivedMessage], took_s: float) -> None:
        self.rows.append(("consumed", group, [one.body for one in messages], took_s))

    def failed(self, group: str, messages: Sequence[ReceivedMessage], took_s: float) -> None:
        self.rows.append(("failed", group, [one.body for one in messages], took_s))

    def left(self, group: str, queue: MessageQueue) -> None:
        self.rows.append(("left", group, queue))

    def of(self, name: str) -> list[tuple[object, ...]]:
        return [row[1:] for row in self.rows if row[0] == name]


class Cluster:
    def __init__(self) -> None:
        self.names = ScriptedNames()
        self.broker = ScriptedBroker()

    def producer(self, metrics: ClientMetrics) -> Producer:
        return Producer("writers", nameservers=[self.names.address], metrics=metrics)

    def consumer(self, metrics: ClientMetrics, listener: "Listens | None" = None) -> PushConsumer:
        return PushConsumer(
            GROUP,
            "T",
            listener,
            nameservers=[self.names.address],
            consume_from=ConsumeFrom.FIRST,
            metrics=metrics,
        )


@asynccontextmanager
async def running() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    async with trio.open_nursery() as nursery:
        for peer in (cluster.names, cluster.broker):
            await start(nursery, peer)
        cluster.names.set_route("T", cluster.broker.address, queues=1)
        cluster.names.set_route(RETRY, cluster.broker.address, queues=1)
        with trio.fail_after(100):
            yield cluster
        nursery.cancel_scope.cancel()


class Listens:
    """A listener that takes two seconds, and fails with the first message."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.has_failed = False

    async def __call__(self, messages: Sequence[ReceivedMessage]) -> ConsumeResult:
        await trio.sleep(2)
        if not self.has_failed:
            self.has_failed = True
            return ConsumeResult.RETRY
        self.bodies += [message.body for message in messages]
        return ConsumeResult.SUCCESS


class RefusesOnce:
    """A broker's answer to a send: busy the first time."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.broker = broker
        self.is_busy = True

    def __call__(self, connection: Connection, command: Command) -> Command:
        if self.is_busy:
            self.is_busy = False
            return command.reply(2, remark="busy")
        return self.broker.store_message(connection, command)


async def test_acknowledged_messages_are_told_with_their_time_and_attempts() -> None:
    told = Told()
    async with running() as cluster, cluster.producer(told) as producer:
        await producer.send(Message("T", b"0"))
        cluster.broker.answers[RequestCode.SEND_MESSAGE_V2] = RefusesOnce(cluster.broker)
        await producer.send(Message("T", b"1"))
        await producer.send_batch([Message("T", b"2"), Message("T", b"3")])
    assert [(topic, attempts) for topic, _, attempts in told.of("sent")] == [
        ("T", 1),
        ("T", 2),
        ("T", 1),
    ]
    assert all(isinstance(row[1], float) and 0 <= row[1] < 2 for row in told.of("sent"))


async def test_failed_messages_are_told_with_their_error_and_time(clock: MockClock) -> None:
    told = Told()
    async with running() as cluster:
        cluster.broker.answers[RequestCode.SEND_MESSAGE_V2] = lambda _, c: c.reply(2, remark="busy")
        async with cluster.producer(told) as producer:
            began = trio.current_time()
            with pytest.raises(Rejected):
                await producer.send(Message("T", b"0"), timeout_s=2)
            lasted = trio.current_time() - began
    [(topic, error, took_s)] = told.of("send_failed")
    assert (topic, error) == ("T", Rejected)
    assert isinstance(took_s, float)
    assert 2 <= took_s <= lasted


async def test_a_listeners_successes_and_failures_are_told(clock: MockClock) -> None:
    told, listener = Told(), Listens()
    async with running() as cluster:
        cluster.broker.store.put("T", 0, b"0")
        async with cluster.consumer(told, listener) as consumer:
            await until(lambda: bool(consumer.queues()))
            with trio.fail_after(20):
                while not listener.bodies:  # noqa: ASYNC110
                    await trio.sleep(0.1)
        queue = MessageQueue("T", "broker-a", 0)
        [(group, bodies, took_s)] = told.of("failed")
        assert (group, bodies, took_s) == (GROUP, [b"0"], pytest.approx(2, abs=0.5))
        assert [row[:2] for row in told.of("consumed")] == [(GROUP, [b"0"])]
        pulls = [row for row in told.of("pulled") if row[1] == queue]
        assert pulls[0][2] == 1
        assert isinstance(pulls[0][3], int)
        assert pulls[0][3] > 50  # the record around the body counts
        assert pulls[0][4] == 1
        assert (GROUP, queue) in told.of("left")


async def test_a_loop_tells_what_it_consumed_and_gave_back_once() -> None:
    told = Told()
    async with running() as cluster:
        for body in (b"0", b"1"):
            cluster.broker.store.put("T", 0, body)
        async with cluster.consumer(told) as consumer:
            messages = aiter(consumer)
            await anext(messages)
            await anext(messages)
            await consumer.give_back()
    assert [row[1] for row in told.of("consumed")] == [[b"0"]]
    assert [row[1] for row in told.of("failed")] == [[b"1"]]


async def test_a_pull_consumer_tells_its_pulls() -> None:
    told = Told()
    async with running() as cluster:
        for number in range(5):
            cluster.broker.store.put("T", 0, b"%d" % number)
        address = cluster.names.address
        async with PullConsumer(GROUP, nameservers=[address], metrics=told) as consumer:
            (queue,) = await consumer.queues("T")
            await consumer.pull(queue, 0, most=2)
    [(_, _, count, _, lag)] = told.of("pulled")
    assert (count, lag) == (2, 3)


class RaisesOnSent(Told):
    def sent(self, topic: str, took_s: float, attempts: int) -> None:
        raise KeyError("the user's")


async def test_metrics_that_raise_hurt_nothing_and_are_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running() as cluster, cluster.producer(RaisesOnSent()) as producer:
        results = await producer.send_many([Message("T", b"x")] * 100)
    assert len(results) == 100
    assert caplog.text.count("the metrics' call sent failed") == 1


@pytest.mark.feature("F55")
async def test_prometheus_reads_the_same(clock: MockClock) -> None:
    registry, listener = CollectorRegistry(), Listens()
    metrics = PrometheusMetrics(registry)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"dledger_mq_{name}", labels)

    async with running() as cluster:
        async with cluster.producer(metrics) as producer:
            cluster.broker.answers[RequestCode.SEND_MESSAGE_V2] = RefusesOnce(cluster.broker)
            await producer.send(Message("T", b"0"))
            with pytest.raises(Rejected):
                await producer.send(Message("Other", b"0"), timeout_s=0.5)
        async with cluster.consumer(metrics, listener) as consumer:
            await until(lambda: bool(consumer.queues()))
            with trio.fail_after(20):
                while not listener.bodies:  # noqa: ASYNC110
                    await trio.sleep(0.1)
            assert value("lag", group=GROUP, topic="T", broker="broker-a", queue="0") is not None
    assert value("sent_total", topic="T") == 1
    assert value("send_retries_total", topic="T") == 1
    assert value("send_failures_total", topic="Other", kind="Rejected") == 1
    assert value("send_seconds_count", topic="T") == 1
    assert value("pulled_total", group=GROUP, topic="T") == 1
    assert (value("pulled_bytes_total", group=GROUP, topic="T") or 0) > 50
    assert value("consume_failures_total", group=GROUP, topic="T") == 1
    assert value("consumed_total", group=GROUP, topic=RETRY) == 1
    assert value("redelivered_total", group=GROUP, topic=RETRY) == 1
    assert value("consume_seconds_count", group=GROUP, topic=RETRY) == 1
    # A queue that is no longer read here has no lag here.
    assert value("lag", group=GROUP, topic="T", broker="broker-a", queue="0") is None
