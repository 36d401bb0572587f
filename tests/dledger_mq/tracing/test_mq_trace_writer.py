"""Producers and consumers that write what they do into a trace topic."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from dledger_mq import (
    ConsumeFrom,
    ConsumeResult,
    InvalidMessage,
    Listener,
    Message,
    PopConsumer,
    Producer,
    PushConsumer,
    ReceivedMessage,
    TransactionState,
)
from dledger_mq.connection import requests
from dledger_mq.connection.calls import call_master
from dledger_mq.connection.client import Client
from dledger_mq.tracing.trace_writer import (
    GATHER_S,
    LAST_STEPS_S,
    MAX_STEPS,
    MAX_WAITING_STEPS,
    TraceWriter,
)
from remoting.bodies.message_queue import MessageQueue
from remoting.bodies.trace import TraceRecord, decode_trace
from remoting.message.properties import KEYS, UNIQUE_KEY, encode_properties, properties_text
from remoting.message.record import body_of
from remoting.message.topic_names import TRACE_TOPIC
from remoting.net.connection import Connection
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from tests.dledger_mq.real_group import RealGroup, real_group
from tests.dledger_mq.scripted_cluster import ScriptedBroker, ScriptedNames, start

pytestmark = pytest.mark.feature("F48")


async def steps_of(group: RealGroup, message_id: str, *kinds: str) -> list[TraceRecord]:
    """The trace of a message, once it has so many steps."""
    with trio.fail_after(10):
        while len(steps := await group.admin.trace(message_id)) < len(kinds):  # noqa: ASYNC110
            await trio.sleep(0.05)
    assert [step.kind for step in steps] == list(kinds)
    return steps


async def test_a_message_is_traced_from_its_send_to_its_consumption(tmp_path: Path) -> None:
    failed_once: set[str] = set()
    done = trio.Event()

    async def listener(messages: Sequence[ReceivedMessage]) -> ConsumeResult:
        (message,) = messages
        if message.body == b"two" and message.message_id not in failed_once:
            failed_once.add(message.message_id)
            return ConsumeResult.RETRY
        if message.body == b"two":
            done.set()
        return ConsumeResult.SUCCESS

    async with real_group(tmp_path) as group:
        consumer = PushConsumer(
            "billing",
            "Orders",
            listener,
            client=group.client,
            ordered=True,
            consume_from=ConsumeFrom.FIRST,
            trace=True,
        )
        async with Producer("shop", client=group.client, trace=True) as producer:
            one = await producer.send(Message("Orders", b"one", tags="eu", keys=["a", "b"]))
            two = await producer.send(Message("Orders", b"two"))
            async with consumer:
                with trio.fail_after(10):
                    await done.wait()
        sent, before, after = await steps_of(group, one.message_id, "Pub", "SubBefore", "SubAfter")
        assert (sent.group, sent.topic, sent.succeeded) == ("shop", "Orders", True)
        assert sent.details["tags"] == "eu"
        assert sent.details["keys"] == "a b"
        assert sent.details["body_bytes"] == "3"
        assert sent.details["message_type"] == "normal"
        assert sent.details["store_host"] == str(group.broker.config.address)
        assert sent.details["offset_message_id"] == one.offset_message_id
        assert (before.group, before.details["retry_times"]) == ("billing", "0")
        assert before.details["region"] == "DefaultRegion"
        assert (after.group, after.succeeded, after.request) == ("billing", True, before.request)
        assert after.cost_ms is not None
        assert sent.at_ms <= before.at_ms <= after.at_ms
        again = await steps_of(group, two.message_id, "Pub", *["SubBefore", "SubAfter"] * 2)
        assert [step.succeeded for step in again] == [True, None, False, None, True]
        assert [one.message_id for one in await group.admin.find("Orders", "a")] == [one.message_id]


async def test_a_message_that_is_popped_is_traced(tmp_path: Path) -> None:
    done = trio.Event()

    async def listener(_messages: Sequence[ReceivedMessage]) -> None:
        done.set()

    async with real_group(tmp_path) as group:
        async with (
            Producer("shop", client=group.client, trace=True) as producer,
            PopConsumer(
                "billing", "Orders", listener, client=group.client, from_first=True, trace=True
            ),
        ):
            sent = await producer.send(Message("Orders", b"x"))
            with trio.fail_after(10):
                await done.wait()
        *_, after = await steps_of(group, sent.message_id, "Pub", "SubBefore", "SubAfter")
        assert (after.group, after.succeeded) == ("billing", True)


async def test_each_message_of_a_batch_and_a_delayed_one_have_steps(tmp_path: Path) -> None:
    async with real_group(tmp_path) as group:
        async with Producer("shop", client=group.client, trace="Traces") as producer:
            batch = await producer.send_batch([Message("Orders", b"x"), Message("Orders", b"y")])
            later = await producer.send(Message("Orders", b"z", delay_level=3))
        ids = [*batch.message_id.split(","), later.message_id]
        records = [
            record
            for message_id in ids
            for record in await group.admin.trace(message_id, trace_topic="Traces")
        ]
        assert [record.message_id for record in records] == ids
        kinds = [record.details["message_type"] for record in records]
        assert kinds == ["normal", "normal", "delayed"]
        stored = [record.details["offset_message_id"] for record in records]
        assert stored[:2] == batch.offset_message_id.split(",")
        assert await group.admin.trace(later.message_id) == []


async def test_the_ends_of_transactions_are_traced(tmp_path: Path) -> None:
    async def check(_message: ReceivedMessage) -> TransactionState:
        return TransactionState.ROLLBACK

    async with real_group(tmp_path) as group:
        producer = Producer("shop", client=group.client, trace=True, check=check)
        async with producer:
            async with producer.transaction(Message("Orders", b"x", keys="k")) as committed:
                pass
            with pytest.raises(RuntimeError):
                async with producer.transaction(Message("Orders", b"y")) as rolled_back:
                    raise RuntimeError
        for transaction, state in (
            (committed, "COMMIT_MESSAGE"),
            (rolled_back, "ROLLBACK_MESSAGE"),
        ):
            half, end = await steps_of(group, transaction.id, "Pub", "EndTransaction")
            assert half.details["message_type"] == "half"
            assert (end.group, end.topic, end.details["state"]) == ("shop", "Orders", state)
            assert end.details["from_check"] == "false"


def test_the_name_of_a_trace_topic_is_checked_where_it_is_given() -> None:
    with pytest.raises(InvalidMessage):
        Producer("shop", nameservers="127.0.0.1:9876", trace="no topic")


# --- what is written, and what is not, against a scripted broker --------------------------------


class Traced:
    def __init__(self, broker: ScriptedBroker, client: Client) -> None:
        self.broker = broker
        self.client = client

    @property
    def told(self) -> list[list[TraceRecord]]:
        """The records of each message of the trace topic."""
        return [
            decode_trace(body_of(one)) for one in self.broker.store.queues.get((TRACE_TOPIC, 0), [])
        ]


@asynccontextmanager
async def scripted() -> AsyncIterator[Traced]:
    names, broker = ScriptedNames(), ScriptedBroker()
    async with trio.open_nursery() as nursery:
        for peer in (names, broker):
            await start(nursery, peer)
        for topic in ("T", TRACE_TOPIC):
            names.set_route(topic, broker.address, queues=1)
        async with Client([names.address]) as client:
            with trio.fail_after(300):
                yield Traced(broker, client)
        nursery.cancel_scope.cancel()


def received(number: int, topic: str = "T") -> ReceivedMessage:
    return ReceivedMessage(
        MessageQueue(topic, "broker-a", 0), number, b"x", {"UNIQ_KEY": f"{number:032}"}
    )


async def test_steps_of_half_a_second_go_together_and_no_message_holds_too_many(
    clock: MockClock,
) -> None:
    async with scripted() as traced, TraceWriter(traced.client, "g", TRACE_TOPIC) as writer:
        for number in range(MAX_STEPS + 20):
            writer.call_began([received(number)])
        await trio.sleep(GATHER_S + 0.1)
        assert [len(records) for records in traced.told] == [MAX_STEPS, 20]
        assert writer.dropped == 0


async def test_steps_that_come_faster_than_they_are_written_are_dropped_and_counted(
    clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted() as traced, TraceWriter(traced.client, "g", TRACE_TOPIC) as writer:
        for number in range(MAX_WAITING_STEPS + 50):
            writer.call_began([received(number)])
        assert writer.dropped == 50
        await trio.sleep(GATHER_S + 1)
        assert sum(map(len, traced.told)) == MAX_WAITING_STEPS
    assert sum("not in the trace" in line for line in caplog.messages) == 1


async def test_a_broker_that_takes_no_trace_delays_the_end_by_a_second(clock: MockClock) -> None:
    def silent(_connection: Connection, _command: Command) -> None:
        return None

    async with scripted() as traced:
        for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
            traced.broker.answers[code] = silent
        async with TraceWriter(traced.client, "g", TRACE_TOPIC) as writer:
            writer.call_began([received(1)])
            ended_at = trio.current_time()
        assert trio.current_time() == pytest.approx(ended_at + LAST_STEPS_S, abs=0.2)
        assert writer.dropped == 1


async def test_messages_of_the_trace_topic_are_not_traced(clock: MockClock) -> None:
    async with scripted() as traced:
        async with TraceWriter(traced.client, "g", TRACE_TOPIC) as writer:
            request = writer.call_began([received(1, TRACE_TOPIC)])
            writer.call_ended(request, [received(1, TRACE_TOPIC)], 0.1, is_consumed=True)
        async with Producer("tracer", client=traced.client, trace=True) as producer:
            await producer.send(Message(TRACE_TOPIC, b"mine"))
        assert traced.told == [[]]


async def test_a_message_that_was_not_stored_is_traced_as_failed(clock: MockClock) -> None:
    def refused(_connection: Connection, command: Command) -> Command:
        if command.fields["b"] == TRACE_TOPIC:
            return traced.broker.store_message(_connection, command)
        return command.reply(13, remark="no such message")

    async with scripted() as traced:
        traced.broker.answers[RequestCode.SEND_MESSAGE_V2] = refused
        async with Producer("shop", client=traced.client, trace=True) as producer:
            with pytest.raises(Exception, match="no such message"):
                await producer.send(Message("T", b"x"))
        ((step,),) = traced.told
        assert (step.kind, step.succeeded) == ("Pub", False)


async def ignoring(_messages: Sequence[ReceivedMessage]) -> None:
    """A listener."""


async def test_without_the_option_nothing_is_written(tmp_path: Path) -> None:
    async with real_group(tmp_path) as group:
        listener: Listener = ignoring
        async with (
            Producer("shop", client=group.client) as producer,
            PushConsumer("billing", "Orders", listener, client=group.client) as consumer,
        ):
            await producer.send(Message("Orders", b"x"))
            await consumer.ready()
        assert await group.admin.statistics("TOPIC_PUT_NUMS", TRACE_TOPIC) == {}
        assert await group.admin.statistics("TOPIC_PUT_NUMS", "Orders") != {}


@pytest.mark.parametrize("message_id", ["two words", " ", "x" * 20_000, "\x01 \u2028"])
async def test_a_message_whose_producer_gave_it_an_odd_id_does_not_end_its_consumers(
    tmp_path: Path, message_id: str
) -> None:
    came: list[str] = []

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        came.extend(message.message_id for message in messages)

    async with real_group(tmp_path) as group:
        await group.admin.create_topic("Orders", queues=1)
        queue = (await group.client.routes.find("Orders")).write_queues[0]
        run = properties_text(encode_properties({UNIQUE_KEY: message_id, KEYS: "k " * 600}))
        by_hand = requests.send("p", queue, b"x", run, system_flag=0, flag=0, born_ms=1)
        consumer = PushConsumer(
            *("billing", "Orders", listener),
            client=group.client,
            consume_from=ConsumeFrom.FIRST,
            trace=True,
        )
        async with consumer, Producer("shop", client=group.client) as producer:
            reply = await call_master(group.client, queue, by_hand, "send")
            assert reply.code == 0
            with trio.fail_after(10):
                while not came:  # noqa: ASYNC110
                    await trio.sleep(0.05)
            await trio.sleep(2 * GATHER_S)
            sent = await producer.send(Message("Orders", b"y"))
            with trio.fail_after(10):
                while len(await group.admin.trace(sent.message_id)) < 2:  # noqa: ASYNC110
                    await trio.sleep(0.05)
        assert came == [message_id, sent.message_id]
