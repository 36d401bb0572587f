"""What a listener or a check has finished by the end of the block is acknowledged, in all forms."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

import pytest
import trio
import trio.testing

from dledger_mq import (
    ConsumeFrom,
    ConsumeResult,
    Listener,
    Message,
    PopConsumer,
    PopOptions,
    Producer,
    PushConsumer,
    PushOptions,
    ReceivedMessage,
    TransactionState,
    blocking,
    for_asyncio,
)
from dledger_mq.connection.lifetime import Background
from dledger_mq.connection.this_process import now_ms
from remoting.message.properties import PRODUCER_GROUP
from remoting.message.record import MessageRecord, encode_record
from remoting.net.connection import Connection
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from tests.dledger_mq.test_mq_bridges import GROUP, Cluster, cluster

__all__ = ["cluster"]

ENOUGH_S = 30
Consumer: TypeAlias = PushConsumer | PopConsumer


def push(cluster: Cluster, listener: Listener, *, ordered: bool = False) -> PushConsumer:
    return PushConsumer(
        GROUP,
        "T",
        listener,
        nameservers=[cluster.names.address],
        consume_from=ConsumeFrom.FIRST,
        ordered=ordered,
        options=PushOptions(close_timeout_s=0),
    )


def in_order(cluster: Cluster, listener: Listener) -> PushConsumer:
    return push(cluster, listener, ordered=True)


def pop(cluster: Cluster, listener: Listener) -> PopConsumer:
    options = PopOptions(close_timeout_s=0)
    return PopConsumer(GROUP, "T", listener, nameservers=[cluster.names.address], options=options)


KINDS: list[Callable[[Cluster, Listener], Consumer]] = [push, in_order, pop]


class Work:
    """A listener's work, which goes on until the consumer has begun to end its calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began = threading.Event()
        self._may_end = threading.Event()
        end = Background.end

        async def end_told(background: Background) -> None:
            # The consumer's calls are cancelled now; what cannot be interrupted goes on a little.
            if self.began.is_set():
                trio.lowlevel.spawn_system_task(self._let_end)
            await end(background)

        monkeypatch.setattr(Background, "end", end_told)

    async def _let_end(self) -> None:
        await trio.testing.wait_all_tasks_blocked()
        self._may_end.set()

    def in_thread(self, _messages: list[ReceivedMessage]) -> ConsumeResult:
        self.began.set()
        assert self._may_end.wait(ENOUGH_S)
        return ConsumeResult.SUCCESS

    async def in_trio(self, _messages: list[ReceivedMessage]) -> None:
        self.began.set()
        with trio.CancelScope(shield=True):
            while not self._may_end.is_set():  # noqa: ASYNC110 - the event is a thread's
                await trio.sleep(0.001)

    async def in_asyncio(self, _messages: list[ReceivedMessage]) -> None:
        self.began.set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(ENOUGH_S)
        await asyncio.sleep(0.001)  # it tidies up, and has done its work


def put_one(cluster: Cluster) -> None:
    """Have one message for each kind of consumer."""
    cluster.put(b"1")
    record = MessageRecord("T", b"1", b"", 0)
    given: list[Command] = []

    def give(_connection: Connection, command: Command) -> Command | None:
        if given:
            return None
        given.append(command)
        fields = {
            "popTime": str(now_ms()),
            "invisibleTime": "60000",
            "restNum": "0",
            "startOffsetInfo": "0 0 0",
        }
        return command.reply(0, fields, encode_record(record))

    def take(_connection: Connection, command: Command) -> Command:
        return command.reply(0, {"popTime": "0", "invisibleTime": "1", "reviveQid": "0"})

    answers: dict[int, Any] = {
        RequestCode.POP_MESSAGE: give,
        RequestCode.ACK_MESSAGE: take,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME: take,
    }
    cluster.do(lambda: cluster.broker.answers.update(answers))


def assert_acknowledged(cluster: Cluster, consumer: Consumer) -> None:
    if isinstance(consumer, PushConsumer):
        assert cluster.committed == 1
    else:
        assert len(cluster.broker.asked(RequestCode.ACK_MESSAGE)) == 1
        assert not cluster.broker.asked(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
    assert len(cluster.broker.asked(RequestCode.UNREGISTER_CLIENT)) == 1, "the group was left"


@pytest.mark.parametrize("is_cancelled", [False, True], ids=["ended", "cancelled"])
@pytest.mark.parametrize("where", ["in_thread", "in_trio"])
@pytest.mark.parametrize("kind", KINDS)
def test_in_trio(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    kind: Callable[[Cluster, Listener], Consumer],
    where: str,
    is_cancelled: bool,
) -> None:
    put_one(cluster)
    work = Work(monkeypatch)
    listener = work.in_trio if where == "in_trio" else blocking.listener(work.in_thread)
    consumer = kind(cluster, listener)

    async def run() -> None:
        with trio.CancelScope() as scope:
            async with consumer:
                await trio.to_thread.run_sync(work.began.wait, ENOUGH_S)
                if is_cancelled:
                    scope.cancel()

    trio.run(run)
    assert_acknowledged(cluster, consumer)


@pytest.mark.parametrize("kind", KINDS)
def test_by_plain_calls(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    kind: Callable[[Cluster, Listener], Consumer],
) -> None:
    put_one(cluster)
    work = Work(monkeypatch)
    consumer = kind(cluster, blocking.listener(work.in_thread))
    opened: Any = (
        blocking.open_pop_consumer(consumer)
        if isinstance(consumer, PopConsumer)
        else blocking.open_push_consumer(consumer)
    )
    with opened:
        assert work.began.wait(ENOUGH_S)
    assert_acknowledged(cluster, consumer)


@pytest.mark.parametrize("is_cancelled", [False, True], ids=["ended", "cancelled"])
@pytest.mark.parametrize("kind", KINDS)
def test_in_asyncio(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    kind: Callable[[Cluster, Listener], Consumer],
    is_cancelled: bool,
) -> None:
    put_one(cluster)
    work = Work(monkeypatch)
    made: list[Consumer] = []

    async def run() -> None:
        consumer = kind(cluster, for_asyncio.listener(work.in_asyncio))
        made.append(consumer)
        opened: Any = (
            for_asyncio.open_pop_consumer(consumer)
            if isinstance(consumer, PopConsumer)
            else for_asyncio.open_push_consumer(consumer)
        )
        async with opened:
            await asyncio.to_thread(work.began.wait, ENOUGH_S)
            if is_cancelled:
                raise asyncio.CancelledError  # as by a signal

    with suppress(asyncio.CancelledError):
        asyncio.run(run())
    assert_acknowledged(cluster, made[0])


@pytest.mark.parametrize("is_cancelled", [False, True], ids=["ended", "cancelled"])
def test_the_answer_of_a_check(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, is_cancelled: bool
) -> None:
    work = Work(monkeypatch)
    monkeypatch.setattr("dledger_mq.producing.producer.LAST_CHECKS_S", 0)

    def check(message: ReceivedMessage) -> TransactionState:
        work.in_thread([message])
        return TransactionState.COMMIT

    producer = Producer(
        "writers",
        nameservers=[cluster.names.address],
        check=blocking.transaction_check(check),
    )

    half = MessageRecord("T", b"half", f"{PRODUCER_GROUP}\x01writers\x02".encode(), 0)
    question = Command(
        RequestCode.CHECK_TRANSACTION_STATE,
        {"tranStateTableOffset": "7", "commitLogOffset": "8", "msgId": "M"},
        encode_record(half),
    )

    def ask() -> None:
        for connection in cluster.broker.connections:
            connection.send_oneway(question)

    async def use() -> None:
        with trio.CancelScope() as scope:
            async with producer:
                await producer.send(Message("T", b"first"))
                await trio.to_thread.run_sync(cluster.do, ask)
                await trio.to_thread.run_sync(work.began.wait, ENOUGH_S)
                if is_cancelled:
                    scope.cancel()

    trio.run(use)
    (end,) = cluster.broker.asked(RequestCode.END_TRANSACTION)
    assert end.fields["tranStateTableOffset"] == "7"
    assert end.fields["commitOrRollback"] == str(TransactionState.COMMIT.value)
    codes = [command.code for command in cluster.broker.requests]
    left = codes.index(RequestCode.UNREGISTER_CLIENT)
    assert codes.index(RequestCode.END_TRANSACTION) < left, "it is answered, then the group is left"
