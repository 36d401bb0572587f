"""Transactions by plain calls, and in programs that run asyncio."""

from __future__ import annotations

import asyncio
import threading

import pytest
import trio

from dledger_mq import (
    InvalidListener,
    Message,
    Producer,
    ReceivedMessage,
    TransactionRefused,
    TransactionState,
    blocking,
    for_asyncio,
)
from remoting.bodies.message_queue import MessageQueue
from remoting.net.connection import Connection
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from tests.dledger_mq.test_mq_bridges import Cluster, cluster

__all__ = ["cluster"]

COMMIT, ROLLBACK = str(TransactionState.COMMIT.value), str(TransactionState.ROLLBACK.value)
MESSAGE = ReceivedMessage(MessageQueue("T", "b", 0), 0, b"x", b"")


async def never_asked(_message: ReceivedMessage) -> TransactionState:
    raise AssertionError("asked")


def ends_of(cluster: Cluster, refused: bool = False) -> list[str]:
    """Have the broker take ends; how they were asked for."""
    ends: list[str] = []

    def take(_connection: Connection, command: Command) -> Command:
        ends.append(command.fields["commitOrRollback"])
        if refused:
            return command.reply(ResponseCode.ILLEGAL_OPERATION, remark="it was given up before")
        return command.reply()

    cluster.do(lambda: cluster.broker.answers.update({RequestCode.END_TRANSACTION: take}))
    return ends


def producer(cluster: Cluster) -> Producer:
    return Producer("writers", nameservers=[cluster.names.address], check=never_asked)


def test_the_end_of_a_plain_block_commits_and_an_error_rolls_back(cluster: Cluster) -> None:
    ends = ends_of(cluster)
    with blocking.open_producer(producer(cluster)) as opened:
        with opened.transaction(Message("T", b"1")) as one:
            assert one.id == one.result.message_id
            assert one.state is TransactionState.UNKNOWN
        with pytest.raises(ZeroDivisionError), opened.transaction(Message("T", b"2")):
            raise ZeroDivisionError
        with opened.transaction(Message("T", b"3")) as three:
            assert three.roll_back()
        with opened.transaction(Message("T", b"4")) as four:
            four.leave_open()
        with pytest.raises(KeyboardInterrupt), opened.transaction(Message("T", b"5")):
            raise KeyboardInterrupt
    assert ends == [COMMIT, ROLLBACK, ROLLBACK]


def test_an_end_that_is_refused_is_told_but_hides_no_error_of_the_block(cluster: Cluster) -> None:
    ends_of(cluster, refused=True)
    with blocking.open_producer(producer(cluster)) as opened:
        refused = pytest.raises(TransactionRefused, match="given up before")
        with refused, opened.transaction(Message("T", b"1")):
            pass
        with pytest.raises(ZeroDivisionError), opened.transaction(Message("T", b"2")):
            raise ZeroDivisionError


def test_transactions_end_in_asyncio_as_in_trio(cluster: Cluster) -> None:
    ends = ends_of(cluster)

    async def main() -> None:
        async with for_asyncio.open_producer(producer(cluster)) as opened:
            async with opened.transaction(Message("T", b"1")) as one:
                assert one.id == one.result.message_id
            assert one.state is TransactionState.COMMIT
            with pytest.raises(ZeroDivisionError):
                async with opened.transaction(Message("T", b"2")):
                    raise ZeroDivisionError
            with pytest.raises(asyncio.CancelledError):
                async with opened.transaction(Message("T", b"3")):
                    raise asyncio.CancelledError
            async with opened.transaction(Message("T", b"4")) as four:
                four.leave_open()
                assert await four.roll_back()

    asyncio.run(main())
    assert ends == [COMMIT, ROLLBACK, ROLLBACK]


def test_a_check_may_be_a_plain_function() -> None:
    threads = []

    def check(message: ReceivedMessage) -> TransactionState:
        threads.append(threading.current_thread())
        return TransactionState.COMMIT if message.body == b"x" else TransactionState.ROLLBACK

    async def ask() -> TransactionState:
        return await blocking.transaction_check(check)(MESSAGE)

    assert trio.run(ask) is TransactionState.COMMIT
    assert threads != [threading.current_thread()]
    with pytest.raises(InvalidListener, match="no plain function"):
        blocking.transaction_check(never_asked)  # type: ignore[arg-type]


def test_a_check_may_be_a_coroutine_function_of_asyncio() -> None:
    loops = []

    async def check(_message: ReceivedMessage) -> TransactionState:
        loops.append(asyncio.get_running_loop())
        return TransactionState.ROLLBACK

    async def main() -> None:
        bridged = for_asyncio.transaction_check(check)

        async def ask() -> TransactionState:
            return await bridged(MESSAGE)

        assert await asyncio.to_thread(trio.run, ask) is TransactionState.ROLLBACK
        assert loops == [asyncio.get_running_loop()]
        with pytest.raises(InvalidListener):
            for_asyncio.transaction_check(print)  # type: ignore[arg-type]

    asyncio.run(main())
