import os
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from dledger_mq import (
    InvalidMessage,
    InvalidOptions,
    Message,
    OutcomeUnknown,
    Producer,
    Rejected,
    SendOutcome,
    SendResult,
    SomeFailed,
    WindowFull,
    by_key,
)
from dledger_mq.errors import ClientClosed
from dledger_mq.message import MAX_BODY_BYTES
from dledger_mq.sending.sending import NO_QUEUE_ATTEMPTS
from remoting.bodies.message_queue import MessageQueue
from remoting.message.properties import decode_properties
from remoting.net.connection import Connection
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from tests.dledger_mq.scripted_cluster import (
    ScriptedBroker,
    ScriptedNames,
    Store,
    scripted,
    until,
)

SEND = RequestCode.SEND_MESSAGE_V2


class Cluster:
    def __init__(self) -> None:
        self.names = ScriptedNames()
        store = Store()
        self.first = ScriptedBroker(store)
        self.second = ScriptedBroker(store)

    def producer(self, **options: float) -> Producer:
        return Producer("group", nameservers=[self.names.address], **options)  # type: ignore[arg-type]


@asynccontextmanager
async def running() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    async with scripted(cluster.first, cluster.second, names=cluster.names):
        yield cluster


async def test_a_message_is_acknowledged_with_its_place() -> None:
    async with running() as cluster, cluster.producer() as producer:
        result = await producer.send(
            Message("T", b"hello", tags="A", keys=["k1", "k2"], properties={"own": "1"}, flag=7)
        )
    (command,) = cluster.first.asked(SEND)
    (record,) = [one for queue in cluster.first.store.queues.values() for one in queue]
    assert (result.attempts, result.possibly_duplicated, result.queue_offset) == (1, False, 0)
    assert result.queue.queue_id == record.queue_id
    assert record.body == b"hello"
    assert command.fields["a"] == "group"
    assert command.fields["h"] == "7"
    properties = decode_properties(record.properties)
    assert properties["TAGS"] == "A"
    assert properties["KEYS"] == "k1 k2"
    assert properties["own"] == "1"
    assert properties["UNIQ_KEY"] == result.message_id


async def test_a_new_topic_borrows_the_queues_of_the_template() -> None:
    async with running() as cluster, cluster.producer() as producer:
        cluster.names.set_route("TBW102", cluster.first.address, queues=8, perm=7)
        result = await producer.send(Message("New", b"x"))
    assert result.queue.queue_id < 4
    assert cluster.first.asked(SEND)[0].fields["b"] == "New"


@pytest.mark.feature("F9")
async def test_a_broker_that_does_not_lead_is_left_for_the_new_leader() -> None:
    async with running() as cluster, cluster.producer() as producer:

        def not_leader(_connection: Connection, command: Command) -> Command:
            cluster.names.set_route("T", cluster.second.address)
            return command.reply(ResponseCode.SERVICE_NOT_AVAILABLE, remark="not leader")

        cluster.first.answers[SEND] = not_leader
        began = trio.current_time()
        result = await producer.send(Message("T", b"x"))
        assert trio.current_time() - began < 0.5
    assert (result.attempts, result.possibly_duplicated) == (2, False)
    assert len(cluster.second.asked(SEND)) == 1


async def test_a_lost_connection_marks_the_result_as_possibly_stored_twice() -> None:
    async with running() as cluster, cluster.producer() as producer:

        def die(connection: Connection, command: Command) -> None:
            cluster.names.set_route("T", cluster.second.address)
            connection.close("crash")

        cluster.first.answers[SEND] = die
        result = await producer.send(Message("T", b"x"))
    assert result.attempts == 2
    assert result.possibly_duplicated


async def test_without_a_leader_a_message_is_rejected_when_its_time_is_over() -> None:
    async with running() as cluster, cluster.producer(timeout_s=0.4) as producer:
        cluster.names.set_route("T", None)
        with pytest.raises(Rejected) as caught:
            await producer.send(Message("T", b"x"))
    assert caught.value.attempts == 0
    assert len(cluster.names.requests) < 12


async def test_an_unknown_topic_is_rejected_with_the_reason() -> None:
    async with running() as cluster, cluster.producer(timeout_s=0.2) as producer:
        with pytest.raises(Rejected, match="know no topic 'Nowhere'"):
            await producer.send(Message("Nowhere", b"x"))


@pytest.mark.feature("F31")
async def test_a_send_whose_every_answer_is_lost_has_an_unknown_outcome() -> None:
    async with running() as cluster, cluster.producer(timeout_s=0.5) as producer:
        cluster.first.answers[SEND] = lambda connection, _command: connection.close("crash")
        with pytest.raises(OutcomeUnknown) as caught:
            await producer.send(Message("T", b"x"))
    assert caught.value.attempts >= 2


async def test_a_refusal_for_good_is_not_tried_again() -> None:
    async with running() as cluster, cluster.producer() as producer:
        cluster.first.answers[SEND] = lambda _, command: command.reply(13, remark="too long")
        with pytest.raises(Rejected, match="too long") as caught:
            await producer.send(Message("T", b"x"))
    assert (caught.value.attempts, caught.value.code) == (1, 13)


async def test_a_system_error_may_have_stored_the_message() -> None:
    async with running() as cluster, cluster.producer(timeout_s=0.3) as producer:
        cluster.first.answers[SEND] = lambda _, command: command.reply(1, remark="leadership lost")
        with pytest.raises(OutcomeUnknown) as caught:
            await producer.send(Message("T", b"x"))
    assert caught.value.code == 1


@pytest.mark.parametrize(
    "message",
    [
        Message("", b"x"),
        Message("no spaces", b"x"),
        Message("T" * 128, b"x"),
        Message("T", b""),
        Message("T", b"x" * (4 * 1024 * 1024 + 1)),
        Message("T", b"x", properties={"a\x01b": "c"}),
        Message("T", b"x", keys=["a b"]),
        Message("T", b"x", properties={"long": "v" * 40_000}),
    ],
)
async def test_a_message_no_broker_would_take_is_not_sent(message: Message) -> None:
    async with running() as cluster, cluster.producer() as producer:
        with pytest.raises(InvalidMessage):
            await producer.send(message)
    assert cluster.first.asked(SEND) == []


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (Message("T", "text"), "a body is bytes, not str: encode it"),  # type: ignore[arg-type]
        (Message("T", None), "a body is bytes, not None"),  # type: ignore[arg-type]
        (Message("T", 7), "a body is bytes, not int"),  # type: ignore[arg-type]
        (Message(None, b"x"), "a topic's name is a str, not None"),  # type: ignore[arg-type]
        (Message("T", b"x", properties={"a": 1}), "property 'a' is a str, not int"),  # type: ignore[dict-item]
        (Message("T", b"x", properties={1: "a"}), "a property's name is a str, not int"),  # type: ignore[dict-item]
        (Message("T", b"x", tags=5), "property 'TAGS' is a str, not int"),  # type: ignore[arg-type]
        (Message(["T"], b"x"), "a topic's name is a str, not list"),  # type: ignore[arg-type]
        (Message("T", b"x", properties=None), "properties are a mapping, not None"),  # type: ignore[arg-type]
        (Message("T", b"x", properties=["a"]), "properties are a mapping, not list"),  # type: ignore[arg-type]
        (Message("T", b"x", keys=5), "keys are a str, or a sequence of them"),  # type: ignore[arg-type]
        (Message("T", b"x", keys=b"k"), "keys are a str, or a sequence of them"),  # type: ignore[arg-type]
        (Message("T", b"x", keys=[1]), "keys are a str, or a sequence of them"),  # type: ignore[list-item]
        (Message("T", b"x", flag="1"), "a flag is an int, not str"),  # type: ignore[arg-type]
        (Message("T", b"x", flag=1.5), "a flag is an int, not float"),  # type: ignore[arg-type]
        (Message("T", b"x", flag=None), "a flag is an int, not None"),  # type: ignore[arg-type]
        (Message("T", b"x", flag=1 << 31), "a flag has 32 bits, which 2147483648 does not fit"),
        (Message("T", b"x", delay_level="3"), "delay_level is an int, not str"),  # type: ignore[arg-type]
        (Message("T", b"x", delay_ms=1.5), "delay_ms is an int, not float"),  # type: ignore[arg-type]
        (Message("T", b"x", deliver_at_ms=1e12), "deliver_at_ms is an int, not float"),  # type: ignore[arg-type]
        ("text", "a message is a Message, not str"),
        (None, "a message is a Message, not None"),
        (Message("T", b"x", properties={"TAGS": "x"}), "property 'TAGS' is RocketMQ's own"),
        (Message("T", b"x", properties={"UNIQ_KEY": "x"}), "property 'UNIQ_KEY' is RocketMQ's own"),
    ],
)
async def test_a_message_of_wrong_types_or_names_is_told_in_one_line(
    message: Message, words: str
) -> None:
    async with running() as cluster, cluster.producer() as producer:
        with pytest.raises(InvalidMessage, match=words) as caught:
            await producer.send(message)
        for batch in ([message], [Message("T", b"x"), message]):
            with pytest.raises(InvalidMessage, match=f"{words}|a batch has one topic"):
                await producer.send_batch(batch)
    assert "\n" not in str(caught.value)
    assert cluster.first.requests == []


@pytest.mark.parametrize("flag", ["1", 1.5, None])
async def test_a_message_of_a_wrong_type_fails_none_of_those_beside_it(flag: object) -> None:
    async with running() as cluster, cluster.producer() as producer:
        faulty = Message("T", b"faulty", flag=flag)  # type: ignore[arg-type]
        with pytest.raises(SomeFailed) as caught:
            await producer.send_many([Message("T", b"a"), faulty, Message("T", b"b")])
    kinds = [type(outcome) for outcome in caught.value.outcomes]
    assert kinds == [SendResult, InvalidMessage, SendResult]


async def test_a_body_that_can_change_is_sent_as_it_was() -> None:
    async with running() as cluster, cluster.producer() as producer:
        body = bytearray(b"before")
        producer.send_nowait(Message("T", body), lambda _outcome: None)  # type: ignore[arg-type]
        producer.send_nowait(Message("T", memoryview(body)), lambda _outcome: None)  # type: ignore[arg-type]
        body[:] = b"after!"
    bodies = [record.body for queue in cluster.first.store.queues.values() for record in queue]
    assert bodies == [b"before"] * 2


async def test_a_message_that_its_user_changes_meanwhile_is_sent_as_it_was() -> None:
    outcomes: list[SendOutcome] = []
    async with running() as cluster:
        cluster.names.set_route("Other", cluster.first.address)
        async with cluster.producer() as producer:
            message = Message("T", b"before", flag=1)
            producer.send_nowait(message, outcomes.append)  # before the topic's route is known
            message.topic, message.body, message.flag = "Other", b"after", 2
            producer.send_nowait(message, outcomes.append)
    assert sorted(one.queue.topic for one in outcomes if isinstance(one, SendResult)) == [
        "Other",
        "T",
    ]
    assert sorted(
        (one.fields["b"], one.body, one.fields["h"]) for one in cluster.first.asked(SEND)
    ) == [
        ("Other", b"after", "2"),
        ("T", b"before", "1"),
    ]


@pytest.mark.feature("F52")
async def test_many_messages_of_one_key_keep_their_order_in_one_queue() -> None:
    async with running() as cluster, cluster.producer() as producer:
        results = await producer.send_many(
            [Message("T", str(number).encode()) for number in range(500)], selector=by_key("k")
        )
    (queue,) = cluster.first.store.queues.values()
    assert [record.body for record in queue] == [str(number).encode() for number in range(500)]
    assert [result.queue_offset for result in results] == list(range(500))


@pytest.mark.feature("F52")
async def test_messages_without_a_key_are_spread_over_the_queues() -> None:
    async with running() as cluster, cluster.producer() as producer:
        await producer.send_many([Message("T", b"x") for _ in range(1000)])
    counts = sorted(len(queue) for queue in cluster.first.store.queues.values())
    assert sum(counts) == 1000
    assert counts[0] >= 300, "batches take turns"


async def test_of_many_messages_each_outcome_is_told() -> None:
    async with running() as cluster, cluster.producer() as producer:
        with pytest.raises(SomeFailed) as caught:
            await producer.send_many([Message("T", b"a"), Message("T", b""), Message("T", b"c")])
    kinds = [type(outcome) for outcome in caught.value.outcomes]
    assert kinds == [SendResult, InvalidMessage, SendResult]
    assert caught.value.failed == 1


async def test_a_long_body_is_sent_compressed_and_a_short_one_is_not() -> None:
    async with running() as cluster, cluster.producer() as producer:
        await producer.send(Message("T", b"y" * 4096))
        await producer.send(Message("T", b"y" * 4095))
    long, short = cluster.first.asked(SEND)
    assert long.fields["f"] == "1"
    assert zlib.decompress(long.body) == b"y" * 4096
    assert (short.fields["f"], len(short.body)) == ("0", 4095)


async def test_a_body_that_compression_would_make_longer_is_sent_as_it_is() -> None:
    longest = os.urandom(MAX_BODY_BYTES)
    async with running() as cluster, cluster.producer() as producer:
        for body in (longest[:5000], longest):
            result = await producer.send(Message("T", body))
            (*_, stored) = cluster.first.store.queues["T", result.queue.queue_id]
            assert (stored.body == body, stored.system_flag) == (True, 0)
        await producer.send_oneway(Message("T", longest[:5000]))


async def test_a_batch_is_one_request_for_one_queue() -> None:
    async with running() as cluster, cluster.producer() as producer:
        result = await producer.send_batch([Message("T", b"a", tags="A"), Message("T", b"b")])
    assert cluster.first.asked(SEND) == []
    (command,) = cluster.first.asked(RequestCode.SEND_BATCH_MESSAGE)
    (queue,) = cluster.first.store.queues.values()
    assert command.fields["m"] == "true"
    assert [record.body for record in queue] == [b"a", b"b"]
    assert queue[0].property_map()["TAGS"] == "A"
    assert [one.property_map()["UNIQ_KEY"] for one in queue] == result.message_id.split(",")


@pytest.mark.feature("F43")
async def test_a_batch_of_two_topics_is_refused() -> None:
    async with running() as cluster, cluster.producer() as producer:
        with pytest.raises(InvalidMessage, match="one topic"):
            await producer.send_batch([Message("T", b"a"), Message("U", b"b")])


@pytest.mark.feature("F16")
async def test_a_oneway_message_wants_no_reply() -> None:
    async with running() as cluster, cluster.producer() as producer:
        await producer.send_oneway(Message("T", b"a"))
        await producer.send(Message("T", b"b"))
    oneway, normal = cluster.first.asked(SEND)
    assert oneway.is_oneway
    assert not normal.is_oneway


@pytest.mark.feature("F16")
async def test_no_more_than_the_window_is_in_flight() -> None:
    async with running() as cluster, cluster.producer(max_in_flight=2) as producer:
        outcomes: list[SendOutcome] = []
        producer.send_nowait(Message("T", b"a"), outcomes.append)
        producer.send_nowait(Message("T", b"b"), outcomes.append)
        with pytest.raises(WindowFull):
            producer.send_nowait(Message("T", b"c"), outcomes.append)
    # The end of the block waited for both.
    assert [type(outcome) for outcome in outcomes] == [SendResult, SendResult]


async def test_the_window_lets_many_messages_through_bit_by_bit() -> None:
    async with running() as cluster, cluster.producer(max_in_flight=3) as producer:
        results = await producer.send_many([Message("T", b"x")] * 50)
    assert len(results) == 50


async def test_leaving_the_block_by_an_error_tells_every_outcome_once_and_keeps_the_error() -> None:
    outcomes: list[SendOutcome] = []
    async with running() as cluster:
        cluster.first.answers[SEND] = lambda _connection, _command: None

        async def use() -> None:
            async with cluster.producer() as producer:
                producer.send_nowait(Message("T", b"x"), outcomes.append)
                await until(lambda: bool(cluster.first.asked(SEND)))
                raise KeyError

        with pytest.raises(KeyError):
            await use()
    assert [type(outcome) for outcome in outcomes] == [OutcomeUnknown]


async def test_a_selector_that_fails_fails_its_message_only() -> None:
    async with running() as cluster, cluster.producer() as producer:
        with pytest.raises(Rejected, match="selector failed"):
            await producer.send(Message("T", b"x"), selector=lambda queues, _: queues[99])
        await producer.send(Message("T", b"y"))


@pytest.mark.parametrize("chosen", [5, None, "q", MessageQueue("Other", "broker-a", 0)])
async def test_a_selector_that_chooses_no_queue_of_the_topic_fails_its_message_only(
    chosen: MessageQueue,
) -> None:
    async with running() as cluster, cluster.producer() as producer:
        faulty = Message("T", b"faulty")
        with pytest.raises(Rejected, match=r"selector failed.*it returned"):
            await producer.send(faulty, selector=lambda _, __: chosen)
        with pytest.raises(Rejected, match=r"selector failed.*it returned"):
            await producer.send_oneway(faulty, selector=lambda _, __: chosen)
        with pytest.raises(SomeFailed) as caught:
            await producer.send_many(
                [faulty, Message("T", b"x")],
                selector=lambda queues, one: chosen if one is faulty else queues[0],
            )
    kinds = [type(outcome) for outcome in caught.value.outcomes]
    assert kinds == [Rejected, SendResult]


@pytest.mark.parametrize("timeout_s", ["3", float("nan"), [3], 10**400, True])
async def test_a_timeout_that_is_no_number_leaves_nothing_in_flight(timeout_s: Any) -> None:
    words = r"Producer: timeout_s is .*: give 0 to inf"
    async with running() as cluster:
        with trio.fail_after(5):
            async with cluster.producer() as producer:
                message = Message("T", b"x")
                with pytest.raises(InvalidOptions, match=words):
                    await producer.send(message, timeout_s=timeout_s)
                with pytest.raises(InvalidOptions, match=words):
                    await producer.send_many([message], timeout_s=timeout_s)
                with pytest.raises(InvalidOptions, match=words):
                    await producer.send_batch([message], timeout_s=timeout_s)
                with pytest.raises(InvalidOptions, match=words):
                    producer.send_nowait(message, lambda _outcome: None, timeout_s=timeout_s)
                with pytest.raises(InvalidOptions, match=words):
                    await producer.ask(message, timeout_s=timeout_s)
        with pytest.raises(InvalidOptions, match=words):
            cluster.producer(timeout_s=timeout_s)
    assert cluster.first.asked(SEND) == []


@pytest.mark.parametrize("name", ["max_in_flight", "max_in_flight_bytes", "max_body_bytes"])
def test_a_limit_of_a_producer_that_is_no_number_is_refused(name: str) -> None:
    with pytest.raises(InvalidOptions, match=f"Producer: {name} is '9': give 0 to"):
        Producer("group", nameservers=["127.0.0.1:1"], **{name: "9"})  # type: ignore[arg-type]


@pytest.mark.feature("F8")
async def test_a_name_server_that_is_down_is_passed_over() -> None:
    async with running() as cluster:
        servers = ["127.0.0.1:1", cluster.names.address]
        async with Producer("group", nameservers=servers) as producer:
            assert (await producer.send(Message("T", b"x"))).attempts == 1


async def test_a_closed_producer_says_so() -> None:
    producer = Producer("group", nameservers=["127.0.0.1:1"])
    with pytest.raises(ClientClosed):
        await producer.send(Message("T", b"x"))


async def test_a_producer_is_known_by_its_heartbeat_and_leaves_its_group() -> None:
    async with running() as cluster, cluster.producer() as producer:
        await producer.send(Message("T", b"x"))
        await until(lambda: bool(cluster.first.asked(RequestCode.HEART_BEAT)))
    (left,) = cluster.first.asked(RequestCode.UNREGISTER_CLIENT)
    assert left.fields["producerGroup"] == "group"


async def test_a_client_whose_connection_was_lost_is_known_by_the_next_one() -> None:
    """A broker that has forgotten a member gives its queues to others, and asks it nothing."""
    async with running() as cluster, cluster.producer() as producer:
        await producer.send(Message("T", b"x"))
        await until(lambda: len(cluster.first.asked(RequestCode.HEART_BEAT)) == 1)
        cluster.first.cut()
        await until(lambda: not cluster.first.connections)
        await producer.send(Message("T", b"x"))
        await until(lambda: len(cluster.first.asked(RequestCode.HEART_BEAT)) == 2)


@pytest.mark.feature("F51")
async def test_a_silent_leader_is_left_when_another_is_elected() -> None:
    async with running() as cluster, cluster.producer(timeout_s=10) as producer:

        def freeze(_connection: Connection, _command: Command) -> None:
            cluster.names.set_route("T", cluster.second.address)

        cluster.first.answers[SEND] = freeze
        began = trio.current_time()
        result = await producer.send(Message("T", b"x"))
        assert trio.current_time() - began < 2
    assert (result.attempts, result.possibly_duplicated) == (2, True)


async def test_a_queue_that_was_taken_away_is_left_with_the_next_answer() -> None:
    async with running() as cluster, cluster.producer() as producer:
        cluster.names.set_route("T", cluster.first.address, queues=4)
        await producer.send(Message("T", b"x"))

        def shrunk(connection: Connection, command: Command) -> Command | None:
            cluster.names.set_route("T", cluster.first.address, queues=1)
            if command.fields["e"] != "0":
                return command.reply(29, remark="no such queue")
            return cluster.first.store_message(connection, command)

        for code in (SEND, RequestCode.SEND_BATCH_MESSAGE):
            cluster.first.answers[code] = shrunk
        began = trio.current_time()
        results = await producer.send_many([Message("T", b"%d" % number) for number in range(20)])
        assert trio.current_time() - began < 0.5
    assert {result.queue.queue_id for result in results} == {0}
    assert not any(result.possibly_duplicated for result in results)


async def test_a_queue_that_no_broker_has_is_refused_after_some_attempts() -> None:
    async with running() as cluster, cluster.producer() as producer:
        cluster.first.answers[SEND] = lambda _, command: command.reply(29, remark="no such queue")
        with pytest.raises(Rejected, match="no such queue") as caught:
            await producer.send(Message("T", b"x"))
    assert (caught.value.attempts, caught.value.code) == (1 + NO_QUEUE_ATTEMPTS, 29)
