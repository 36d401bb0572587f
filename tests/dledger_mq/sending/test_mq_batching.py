"""Single messages that are ready together go in one request, and each keeps its own outcome."""

import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from dledger_mq import (
    Batching,
    InvalidBatching,
    Message,
    OutcomeUnknown,
    Producer,
    Rejected,
    SendResult,
    by_key,
)
from dledger_mq.connection.identity import Identity
from dledger_mq.sending.batching import Joined, may_join
from dledger_mq.sending.composer import Composer
from dledger_mq.sending.sending import Sending
from remoting.bodies.message_queue import MessageQueue
from remoting.message.batch import decode_batch_body
from remoting.net.connection import Connection
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from tests.dledger_mq.scripted_cluster import ScriptedBroker, scripted, until

ONE, BATCH = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE


@asynccontextmanager
async def sending(**options: Any) -> AsyncIterator[tuple[ScriptedBroker, Producer]]:
    broker = ScriptedBroker()
    async with (
        scripted(broker) as names,
        Producer("g", nameservers=names.address, **options) as producer,
    ):
        await producer.send(Message("T", b"opens the connection"))
        broker.requests.clear()
        yield broker, producer


async def send_all(
    producer: Producer, bodies: Sequence[bytes], **options: Any
) -> dict[bytes, SendResult | Exception]:
    """Send each body in a task of its own."""
    outcomes: dict[bytes, SendResult | Exception] = {}

    async def send(body: bytes) -> None:
        try:
            outcomes[body] = await producer.send(Message("T", body), **options)
        except (Rejected, OutcomeUnknown) as error:
            outcomes[body] = error

    async with trio.open_nursery() as nursery:
        for body in bodies:
            nursery.start_soon(send, body)
    return outcomes


def bodies(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def sizes(broker: ScriptedBroker) -> list[int]:
    """How many messages each request had."""
    return [
        1 if one.code == ONE else len(decode_batch_body(one.body))
        for one in broker.requests
        if one.code in (ONE, BATCH)
    ]


@pytest.mark.feature("F43")
async def test_messages_that_are_ready_together_are_one_request_and_each_has_its_place() -> None:
    async with sending() as (broker, producer):
        outcomes = await send_all(producer, bodies(20))
        assert sizes(broker) == [1, 19]
        for body, outcome in outcomes.items():
            assert isinstance(outcome, SendResult)
            queue = broker.store.queues["T", outcome.queue.queue_id]
            record = queue[outcome.queue_offset]
            assert record.body == body
            assert record.property_map()["UNIQ_KEY"] == outcome.message_id
            assert int(outcome.offset_message_id, 16) == record.physical_offset
            assert (outcome.attempts, outcome.possibly_duplicated) == (1, False)


async def test_a_message_goes_at_once_when_no_other_is_on_its_way() -> None:
    async with sending() as (broker, producer):
        for body in bodies(5):
            await producer.send(Message("T", body))
        assert sizes(broker) == [1] * 5


async def test_without_batching_each_message_is_a_request() -> None:
    async with sending(batching=None) as (broker, producer):
        await send_all(producer, bodies(20))
        assert sizes(broker) == [1] * 20


async def test_a_batch_has_no_more_messages_and_bytes_than_allowed() -> None:
    async with sending(batching=Batching(max_messages=7)) as (broker, producer):
        await send_all(producer, bodies(30))
        assert max(sizes(broker)) == 7
        assert sum(sizes(broker)) == 30
    async with sending(batching=Batching(max_bytes=2_000)) as (broker, producer):
        await send_all(producer, [b"%03d" % n + bytes(600) for n in range(9)] + [bytes(3_000)])
        assert max(sizes(broker)) == 2
        assert sum(sizes(broker)) == 10


async def test_only_the_message_that_a_broker_does_not_want_is_refused() -> None:
    async with sending() as (broker, producer):

        def picky(connection: Connection, command: Command) -> Command:
            if b"bad" in command.body:
                return command.reply(ResponseCode.MESSAGE_ILLEGAL, remark="I dislike it")
            return broker.store_message(connection, command)

        broker.answers[ONE] = broker.answers[BATCH] = picky
        outcomes = await send_all(producer, [*bodies(5), b"bad", *[b"x%d" % n for n in range(5)]])
    error = outcomes.pop(b"bad")
    assert isinstance(error, Rejected)
    assert "I dislike it" in str(error)
    assert all(isinstance(one, SendResult) for one in outcomes.values())
    stored = [record.body for queue in broker.store.queues.values() for record in queue]
    assert len(stored) == 1 + 10, "nothing is stored twice"


async def test_a_broker_that_takes_no_batches_gets_each_message_by_itself() -> None:
    async with sending() as (broker, producer):
        del broker.answers[BATCH]  # answered with 3, not supported
        outcomes = await send_all(producer, bodies(10))
    assert all(isinstance(one, SendResult) for one in outcomes.values())


async def test_a_lost_connection_leaves_each_message_of_a_batch_in_doubt() -> None:
    async with sending() as (broker, producer):

        def lose(connection: Connection, command: Command) -> None:
            broker.store_message(connection, command)
            connection.close("lost")
            broker.answers[BATCH] = broker.store_message

        broker.answers[BATCH] = lose
        outcomes = await send_all(producer, bodies(10))
    results = [one for one in outcomes.values() if isinstance(one, SendResult)]
    assert len(results) == 10
    assert sum(one.possibly_duplicated for one in results) >= 9
    assert {one.attempts for one in results if one.possibly_duplicated} == {2}


async def test_a_batch_whose_answer_cannot_be_read_is_in_doubt() -> None:
    async with sending() as (broker, producer):
        fields = {"msgId": "A", "queueId": "0", "queueOffset": "many"}
        broker.answers[BATCH] = lambda _, command: command.reply(0, fields)
        outcomes = await send_all(producer, bodies(3))
    assert sum(isinstance(one, OutcomeUnknown) for one in outcomes.values()) == 2


async def test_messages_of_one_key_keep_their_order_whatever_they_go_with() -> None:
    kinds = [b"plain", b"long" + bytes(5_000), b"plain", b"delayed", b"plain", b"other key"]
    async with sending() as (broker, producer):
        expected: dict[str, list[bytes]] = {"a": [], "b": []}
        done: list[object] = []
        for number in range(60):
            kind = kinds[number % len(kinds)]
            key = "b" if kind == b"other key" else "a"
            body = b"%d " % number + kind
            message = Message("T", body, delay_level=3 if kind == b"delayed" else 0)
            expected[key].append(body)
            producer.send_nowait(message, done.append, selector=by_key(ord(key)))
        await until(lambda: len(done) == 60)
        assert max(sizes(broker)) > 1
        for key, queue_id in (("a", ord("a") % 2), ("b", ord("b") % 2)):
            stored = [
                zlib.decompress(one.body) if one.system_flag else one.body
                for one in broker.store.queues["T", queue_id]
            ]
            assert [one for one in stored if one != b"opens the connection"] == expected[key]


@pytest.fixture
def clock() -> MockClock:
    return MockClock(rate=0)


async def test_a_batch_waits_for_further_messages_as_long_as_it_may_linger(
    clock: MockClock,
) -> None:
    done: list[object] = []

    async def until_done(count: int) -> None:
        while len(done) < count:
            await wait_all_tasks_blocked(0.005)

    broker = ScriptedBroker()
    async with scripted(broker) as names:
        batching = Batching(linger_ms=100, max_messages=5)
        async with Producer("g", nameservers=names.address, batching=batching) as producer:
            producer.send_nowait(Message("T", b"learns the route"), done.append)
            while not done:
                clock.jump(0.1)
                await wait_all_tasks_blocked(0.01)
            done.clear()
            broker.requests.clear()
            for jump, expected in ((0.0, []), (0.06, []), (0.05, [2])):
                clock.jump(jump)
                if not expected:
                    producer.send_nowait(Message("T", b"x"), done.append)
                await wait_all_tasks_blocked(0.05)
                assert sizes(broker) == expected
            await until_done(2)
            for body in bodies(5):  # a full batch does not wait
                producer.send_nowait(Message("T", body), done.append)
            await until_done(7)
            assert sizes(broker) == [2, 5]


async def test_a_message_with_little_time_left_does_not_go_with_others() -> None:
    async with sending() as (broker, producer):
        broker.answers[ONE] = broker.answers[BATCH] = lambda _, command: None
        got: list[object] = []
        for number in range(4):
            producer.send_nowait(Message("T", b"%d" % number), got.append, timeout_s=1.0)
            producer.send_nowait(Message("T", b"patient"), got.append, timeout_s=60)
        # Before they are sent again, as the broker is silent for half a second.
        await until(lambda: sum(sizes(broker)) == 8)
        await until(lambda: len(got) == 4)
        assert all(isinstance(one, OutcomeUnknown) for one in got)
        for command in broker.requests:
            if command.code == BATCH:
                parts = {part.body == b"patient" for part in decode_batch_body(command.body)}
                assert len(parts) == 1
        broker.answers[ONE] = broker.answers[BATCH] = broker.store_message
        producer._opened().close()


@pytest.mark.parametrize(
    "numbers",
    [{"linger_ms": -1}, {"max_messages": 0}, {"max_messages": 10_000}, {"max_bytes": 0}],
)
def test_a_bound_that_makes_no_sense_is_told_in_one_line(numbers: dict[str, Any]) -> None:
    with pytest.raises(InvalidBatching, match=f"{next(iter(numbers))} is .*: give"):
        Batching(**numbers)


QUEUES = [MessageQueue("T", "b", number) for number in range(2)]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([None, *QUEUES]),
            st.integers(1, 400),
            st.sampled_from([0, 0, 0, 2]),
            st.sampled_from([10.0, 10.1, 12.0]),
            st.booleans(),
        ),
        max_size=60,
    )
)
def test_each_message_is_in_one_request_in_the_order_of_its_queue(
    wanted: list[tuple[MessageQueue | None, int, int, float, bool]],
) -> None:
    composer = Composer(Identity("127.0.0.1", 1, 1), lambda: 0)
    joined = Joined(Batching(max_messages=5, max_bytes=1_000))
    given_to: dict[MessageQueue | None, list[Sending]] = {}
    for queue, size, level, deadline, alone in wanted:
        message = Message("T", bytes(size), delay_level=level)
        one = composer.message(message, None, 3.0, lambda _outcome: None)
        one.deadline, one.goes_alone = deadline, alone
        given_to.setdefault(queue, []).append(one)
        joined.add(one, queue)
    taken: dict[MessageQueue | None, list[Sending]] = {}
    for together, queue in joined.take():
        assert together
        assert len(together) <= 5
        if len(together) > 1:
            assert all(may_join(one) for one in together)
            assert sum(len(one.body) for one in together) <= 1_000
            assert max(o.deadline for o in together) - min(o.deadline for o in together) <= 0.25
        taken.setdefault(queue, []).extend(together)
    assert taken == given_to
