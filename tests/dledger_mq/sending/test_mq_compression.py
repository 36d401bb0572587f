"""What grows with users' messages leaves the loop, which belongs to the network."""

import random
import threading
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock, wait_all_tasks_blocked

import dledger_mq.received_message
import remoting.message.record
from dledger_mq import (
    Admin,
    ConsumeFrom,
    Message,
    NoReply,
    OutcomeUnknown,
    PopConsumer,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    Rejected,
    SendOutcome,
    SendResult,
    TransactionState,
)
from dledger_mq.connection.identity import Identity
from dledger_mq.connection.side_work import SideWork
from dledger_mq.connection.this_process import now_ms
from dledger_mq.sending.composer import Composer
from dledger_mq.sending.compression import STEP_BYTES, TURN_BYTES, Compression
from dledger_mq.sending.send_pipeline import GIVE_UP_S
from dledger_mq.sending.sending import Sending
from remoting.message.record import COMPRESSED_FLAG, MessageRecord, encode_record
from remoting.net.connection import Connection
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from tests.dledger_mq.scripted_cluster import ScriptedBroker, ScriptedNames, start

LONG = random.Random(1).randbytes(TURN_BYTES + 1)


@pytest.fixture
def clock() -> MockClock:
    return MockClock(autojump_threshold=0.01)


class HeldWork:
    """Does what the test lets it do."""

    def __init__(self) -> None:
        self.steps: list[list[bytes]] = []
        self._may_go = trio.Semaphore(0)

    def let_go(self) -> None:
        self._may_go.release()

    async def run(self, work: Callable[..., Any], *arguments: Any) -> Any:
        self.steps.append(arguments[0])
        await self._may_go.acquire()
        return work(*arguments)


@asynccontextmanager
async def compressing() -> AsyncIterator[tuple[Compression, HeldWork, list[Sending]]]:
    work, done = HeldWork(), list[Sending]()
    compression = Compression(cast(SideWork, work), lambda sending, _saved: done.append(sending))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(compression.run)
        yield compression, work, done
        nursery.cancel_scope.cancel()


def composed(topic: str, body: bytes, compress_from_bytes: int = 4096) -> Sending:
    composer = Composer(Identity("127.0.0.1", 1, 1), lambda: 0, compress_from_bytes)
    return composer.message(Message(topic, body), None, 3.0, lambda _outcome: None)


async def test_a_message_that_comes_alone_is_compressed_at_once() -> None:
    async with compressing() as (compression, work, _done):
        one = composed("T", bytes(TURN_BYTES))
        weight = one.weight
        assert compression.passes(one)
        assert zlib.decompress(one.body) == bytes(TURN_BYTES)
        assert one.system_flag == COMPRESSED_FLAG
        assert one.weight == weight - TURN_BYTES + len(one.body)
        assert not work.steps


async def test_what_one_turn_has_no_time_for_goes_to_a_thread_in_its_order() -> None:
    async with compressing() as (compression, work, done):
        ones = [composed("T", b"%02d" % number + bytes(TURN_BYTES // 4)) for number in range(8)]
        passed = [compression.passes(one) for one in ones]
        small = composed("T", b"small, and behind them")
        assert not compression.passes(small)
        await wait_all_tasks_blocked()
        assert passed == [True] * 3 + [False] * 5
        assert not done
        work.let_go()
        await wait_all_tasks_blocked()
        assert done == [*ones[3:], small]
        assert all(zlib.decompress(one.body)[:2] == b"%02d" % at for at, one in enumerate(ones))
        assert compression.passes(composed("T", b"the topic is free again"))


async def test_other_topics_wait_for_no_long_bodies_and_topics_take_turns() -> None:
    async with compressing() as (compression, work, done):
        for topic in "AB":
            for number in range(3):
                assert not compression.passes(composed(topic, b"%d" % number + bytes(STEP_BYTES)))
        assert compression.passes(composed("C", b"small"))
        for _ in range(6):
            work.let_go()
            await wait_all_tasks_blocked()
        assert [one.message.topic for one in done] == list("ABABAB")
        assert all(len(step) == 1 for step in work.steps), "no thread has more than a step's bytes"


class Turns(trio.abc.Instrument):
    """Counts the bytes that are compressed in the loop in each of its turns."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.turn = 0
        self.by_turn: Counter[int] = Counter()
        self.beside = 0
        self._loop = threading.get_ident()
        patch.setattr(zlib, "compress", self._compress)
        self._inner = zlib.compressobj

    def after_io_wait(self, timeout: float) -> None:
        self.turn += 1

    def _compress(self, body: bytes, level: int) -> bytes:
        if threading.get_ident() == self._loop:
            self.by_turn[self.turn] += len(body)
        else:
            self.beside += len(body)
        made = self._inner(level)
        return made.compress(body) + made.flush()


async def ask(producer: Producer, message: Message) -> None:
    with pytest.raises(NoReply):
        await producer.ask(message, timeout_s=0.5)


async def send_nowait(producer: Producer, message: Message) -> None:
    outcomes: list[object] = []
    came = trio.Event()

    def callback(outcome: SendOutcome) -> None:
        outcomes.append(outcome)
        came.set()

    producer.send_nowait(message, callback)
    await came.wait()
    assert isinstance(outcomes[0], SendResult)


async def send_many(producer: Producer, message: Message) -> None:
    await producer.send_many([message] * 3)


@asynccontextmanager
async def sending(broker: ScriptedBroker, **options: Any) -> AsyncIterator[Producer]:
    names = ScriptedNames()
    async with trio.open_nursery() as nursery:
        for peer in (names, broker):
            await start(nursery, peer)
        names.set_route("T", broker.address)
        async with Producer("g", nameservers=names.address, **options) as producer:
            yield producer
        nursery.cancel_scope.cancel()


async def test_no_call_compresses_more_than_a_little_in_one_turn_of_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def check(_message: ReceivedMessage) -> TransactionState:
        return TransactionState.UNKNOWN

    calls: list[Callable[[Producer, Message], Any]] = [
        Producer.send,
        send_many,
        send_nowait,
        Producer.send_oneway,
        ask,
        Producer.begin_transaction,
    ]
    turns = Turns(monkeypatch)
    for call in calls:
        async with sending(ScriptedBroker(), check=check, timeout_s=10) as producer:
            await producer.send(Message("T", b"first"))
            trio.lowlevel.add_instrument(turns)
            turns.by_turn.clear()
            turns.beside = 0
            await call(producer, Message("T", bytes(20_000)))
            assert turns.by_turn, f"{call} of a short body takes no thread"
            async with trio.open_nursery() as nursery:
                for size in [20_000] * 8 + [TURN_BYTES, 200_000]:
                    nursery.start_soon(call, producer, Message("T", bytes(size)))
            trio.lowlevel.remove_instrument(turns)
        assert turns.beside >= 200_000, call
        assert max(turns.by_turn.values()) <= TURN_BYTES, call


async def test_long_bodies_are_stored_in_the_order_of_the_calls() -> None:
    broker = ScriptedBroker()
    bodies = [b"%d" % at + (LONG if at % 3 else b"") for at in range(20)]
    async with sending(broker) as producer:
        async with trio.open_nursery() as nursery:
            for body in bodies:
                nursery.start_soon(send_nowait, producer, Message("T", body))
                await wait_all_tasks_blocked(0)
        stored: dict[int, list[bytes]] = {}
        for (_topic, queue_id), records in broker.store.queues.items():
            stored[queue_id] = [
                zlib.decompress(one.body) if one.system_flag & COMPRESSED_FLAG else one.body
                for one in records
            ]
    assert sorted(body for queue in stored.values() for body in queue) == sorted(bodies)
    for queue in stored.values():
        assert queue == [body for body in bodies if body in queue]


async def test_what_is_being_compressed_at_the_end_of_a_cancelled_block_is_not_stored() -> None:
    names, broker, outcomes = ScriptedNames(), ScriptedBroker(), list[object]()
    async with trio.open_nursery() as nursery:
        for peer in (names, broker):
            await start(nursery, peer)
        names.set_route("T", broker.address)
        with trio.CancelScope() as scope:
            async with Producer("g", nameservers=names.address) as producer:
                await producer.send(Message("T", b"first"))
                producer.send_nowait(Message("T", LONG), outcomes.append)
                scope.cancel()
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert [type(outcome) for outcome in outcomes] == [Rejected]
    assert len(broker.asked(RequestCode.SEND_MESSAGE_V2)) == 1


async def test_the_time_in_which_this_process_was_held_is_not_a_brokers_silence(
    clock: MockClock,
) -> None:
    class OneLate(ScriptedBroker):
        def __init__(self) -> None:
            super().__init__()
            self.answers[RequestCode.SEND_MESSAGE_V2] = self._late

        def _late(self, connection: Connection, command: Command) -> Command | None:
            if command.body == b"first":
                clock.jump(12)  # a step of the application holds the loop; then it reads on
            return self.store_message(connection, command)

    broker = OneLate()
    async with sending(broker, max_in_flight=1, batching=None) as producer:
        for _ in range(3):
            results = await producer.send_many([Message("T", b"first"), Message("T", b"next")])
            assert [one.attempts for one in results] == [1, 1]
        began = trio.current_time()
        broker.answers[RequestCode.SEND_MESSAGE_V2] = lambda _connection, _command: None
        for body in (b"on its way", b"waits for room"):
            with pytest.raises((OutcomeUnknown, Rejected)):
                await producer.send(Message("T", body), timeout_s=3)
        assert trio.current_time() - began < 2 * (3 + 3 * GIVE_UP_S), "36 s lost count no more"


class KeepingBroker(ScriptedBroker):
    """Holds one message whose body is compressed, and gives it to all that ask."""

    def __init__(self) -> None:
        super().__init__()
        self.record = MessageRecord("T", zlib.compress(LONG), b"", 0, system_flag=COMPRESSED_FLAG)
        self.store.append(self.record)
        self.answers |= {
            RequestCode.QUERY_MESSAGE: self._find,
            RequestCode.POP_MESSAGE: self._pop,
            RequestCode.BATCH_ACK_MESSAGE: lambda _, command: command.reply(),
            RequestCode.ACK_MESSAGE: lambda _, command: command.reply(),
        }
        self._is_popped = False

    def _find(self, _connection: Connection, command: Command) -> Command:
        return command.reply(body=encode_record(self.record))

    def _pop(self, _connection: Connection, command: Command) -> Command | None:
        if self._is_popped:
            return None
        self._is_popped = True
        fields = {
            "popTime": str(now_ms()),
            "invisibleTime": "60000",
            "reviveQid": "0",
            "restNum": "0",
            "startOffsetInfo": "0 0 0",
        }
        return command.reply(0, fields, encode_record(self.record))


class Inbox:
    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.came = trio.Event()

    async def __call__(self, messages: list[ReceivedMessage]) -> None:
        self.bodies += [message.body for message in messages]
        self.came.set()


async def pulled(nameservers: str) -> list[bytes]:
    async with PullConsumer("g", nameservers=nameservers) as consumer:
        (queue,) = await consumer.queues("T")
        return [message.body for message in (await consumer.pull(queue, 0)).messages]


async def found(nameservers: str) -> list[bytes]:
    async with Admin(nameservers=nameservers) as admin:
        return [message.body for message in await admin.find("T", "key")]


async def pushed(nameservers: str) -> list[bytes]:
    inbox = Inbox()
    async with PushConsumer(
        "g", "T", inbox, nameservers=nameservers, consume_from=ConsumeFrom.FIRST
    ):
        await inbox.came.wait()
    return inbox.bodies


async def popped(nameservers: str) -> list[bytes]:
    inbox = Inbox()
    async with PopConsumer("g", "T", inbox, nameservers=nameservers):
        await inbox.came.wait()
    return inbox.bodies


async def test_compressed_bodies_are_inflated_beside_the_loop_wherever_they_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[int] = []

    def body_of(record: MessageRecord) -> bytes:
        threads.append(threading.get_ident())
        return inner(record)

    inner = remoting.message.record.body_of
    monkeypatch.setattr(dledger_mq.received_message, "body_of", body_of)
    for read in (pulled, found, pushed, popped):
        names, broker = ScriptedNames(), KeepingBroker()
        async with trio.open_nursery() as nursery:
            for peer in (names, broker):
                await start(nursery, peer)
            names.set_route("T", broker.address, queues=1)
            with trio.fail_after(10):
                assert await read(names.address) == [LONG], read
            nursery.cancel_scope.cancel()
        assert threads, read
        assert threading.get_ident() not in threads, read
        threads.clear()
