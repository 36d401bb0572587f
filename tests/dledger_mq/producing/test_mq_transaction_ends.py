"""What a producer takes for the end of a transaction, by what its broker answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dledger_mq import Message, Producer, ReceivedMessage, TransactionRefused, TransactionState
from dledger_mq.producing.transaction import Transaction
from remoting.net.connection import Connection
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from tests.broker.transactions.transacting_broker import COMMIT, transacting
from tests.dledger_mq.scripted_cluster import ScriptedBroker, scripted


async def unknown(_message: ReceivedMessage) -> TransactionState:
    return TransactionState.UNKNOWN


@asynccontextmanager
async def begun() -> AsyncIterator[tuple[ScriptedBroker, Transaction]]:
    """An open transaction, and the broker that has it."""
    broker = ScriptedBroker()
    async with (
        scripted(broker) as names,
        Producer("g", nameservers=[names.address], check=unknown) as producer,
    ):
        transaction = await producer.begin_transaction(Message("T", b"x"))
        transaction.leave_open()
        yield broker, transaction


@pytest.mark.parametrize(
    ("code", "remark"),
    [
        # RocketMQ's EndTransactionProcessor, of versions 4.9 and 5.3.
        (ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed"),
        (ResponseCode.SYSTEM_ERROR, "The producer group wrong"),
        (ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong"),
        (ResponseCode.SYSTEM_ERROR, "The commit log offset wrong"),
        (ResponseCode.ILLEGAL_OPERATION, "the transaction at 5 was committed before"),
        (ResponseCode.TOPIC_NOT_EXIST, "topic T was deleted since the message was sent"),
    ],
)
async def test_an_end_that_the_broker_knows_to_be_impossible_is_refused(
    code: int, remark: str
) -> None:
    async with begun() as (broker, transaction):
        broker.answers[RequestCode.END_TRANSACTION] = lambda _, command: command.reply(
            code, remark=remark
        )
        with pytest.raises(TransactionRefused) as refused:
            await transaction.commit()
    assert refused.value.reason == remark


@pytest.mark.parametrize(
    "remark",
    [
        # The same if the message was not stored, or its outcome is unknown.
        "OS page cache busy, please try another machine",
        "Create mapped file failed.",
        "UNKNOWN_ERROR",
        "store putMessage return null",
        "",
    ],
)
async def test_an_end_that_failed_for_another_reason_is_not_confirmed(remark: str) -> None:
    async with begun() as (broker, transaction):
        broker.answers[RequestCode.END_TRANSACTION] = lambda _, command: command.reply(
            ResponseCode.SYSTEM_ERROR, remark=remark
        )
        assert not await transaction.commit()


async def test_an_end_that_failed_inside_the_broker_is_not_confirmed() -> None:
    def fail(_connection: Connection, _command: Command) -> Command:
        raise RuntimeError("find prepared statement failed")

    async with begun() as (broker, transaction):
        broker.answers[RequestCode.END_TRANSACTION] = fail
        assert not await transaction.roll_back()


@pytest.mark.parametrize(
    "more", [{"producerGroup": "Q"}, {"tranStateTableOffset": 7}, {"commitLogOffset": 9}]
)
async def test_a_refusal_of_our_broker_is_known_for_one(
    tmp_path: Path, more: dict[str, object]
) -> None:
    async with transacting(tmp_path) as one:
        answer = await one.end(await one.half(), COMMIT, **more)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    async with begun() as (broker, transaction):
        broker.answers[RequestCode.END_TRANSACTION] = lambda _, command: command.reply(
            answer.code, remark=answer.remark
        )
        with pytest.raises(TransactionRefused):
            await transaction.commit()
