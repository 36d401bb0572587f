"""Transactions that were given up, and that operators open once more (323)."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.features import REGISTRY, empty_state
from broker.limits import BrokerLimits
from broker.log.state_snapshot import captured, restored
from broker.transactions.commands import Prepare, Resume
from broker.transactions.policy import CheckPolicy
from broker.transactions.state import MAX_ENDS, TRANSACTIONS
from remoting.message.message_id import message_id
from remoting.message.record import MessageRecord
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from tests.broker.delay.test_broker_delay import folded, with_behind
from tests.broker.log.test_broker_fold import Log, with_topic
from tests.broker.one_broker import START_MS
from tests.broker.transactions.transacting_broker import COMMIT, HALF, Transacting, transacting

ONCE = CheckPolicy(max_checks=1)


async def given_up(one: Transacting) -> MessageRecord:
    """A message whose transaction was given up."""
    await one.half(b"lost")
    return await given_up_now(one)


async def given_up_now(one: Transacting) -> MessageRecord:
    """The message of the only transaction, which nobody ends."""
    await one.register(one.client, "P")
    await one.look(6000)
    await one.look(36_000)
    (message,) = await one.client.messages("TRANS_CHECK_MAX_TIME_TOPIC")
    return message


async def resume(one: Transacting, message: MessageRecord) -> Command:
    id_ = message_id(message.store_host, message.store_port, message.physical_offset)
    return await one.client.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, msgId=id_, topic="T")


async def test_a_transaction_that_was_given_up_is_asked_about_and_committed_once(
    tmp_path: Path,
) -> None:
    async with transacting(tmp_path, checks=ONCE) as one:
        message = await given_up(one)
        assert (await resume(one, message)).code == 0
        (half,) = one.transactions.halves.values()
        assert (half.group, half.checks, half.due_ms) == ("P", 0, START_MS + 42_000)
        again = await resume(one, message)
        assert (again.code, "resumed before" in (again.remark or "")) == (
            ResponseCode.ILLEGAL_OPERATION,
            True,
        )
        one.client.notices.clear()
        await one.look(42_000)
        question = await one.question(one.client)
        ended = await one.client.ask(
            RequestCode.END_TRANSACTION,
            producerGroup="P",
            tranStateTableOffset=question.fields["tranStateTableOffset"],
            commitLogOffset=question.fields["commitLogOffset"],
            commitOrRollback=COMMIT,
            msgId=question.fields["msgId"],
        )
        assert ended.code == 0
        assert await one.bodies() == [b"lost"]
    async with transacting(tmp_path, checks=ONCE) as one:
        assert (await resume(one, message)).code == ResponseCode.ILLEGAL_OPERATION


async def test_only_what_was_given_up_is_resumed(tmp_path: Path) -> None:
    limits = BrokerLimits(max_open_transactions=1)
    async with transacting(tmp_path, checks=ONCE, limits=limits) as one:
        message = await given_up(one)
        await one.client.send("U", b"x")
        (other,) = await one.client.messages("U")
        assert (await resume(one, other)).code == ResponseCode.SYSTEM_ERROR
        for id_ in ("x", "0" * 32, "F" * 32):
            told = await one.client.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, msgId=id_)
            assert told.code == ResponseCode.SYSTEM_ERROR
        assert (await one.half(properties=HALF)).code == 0
        assert (await resume(one, message)).code == ResponseCode.SYSTEM_BUSY


@pytest.mark.parametrize("remade", ["before it is given up", "before it is resumed"])
async def test_no_transaction_is_resumed_of_a_topic_that_was_deleted_since(
    tmp_path: Path, remade: str
) -> None:
    async def remake(when: str) -> None:
        if when == remade:
            assert (await one.client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")).code == 0
            await one.client.send("T", b"new")

    async with transacting(tmp_path, checks=ONCE) as one:
        await one.half(b"lost")
        await remake("before it is given up")
        message = await given_up_now(one)
        await remake("before it is resumed")
        told = await resume(one, message)
        assert (told.code, "was deleted" in (told.remark or "")) == (
            ResponseCode.TOPIC_NOT_EXIST,
            True,
        )
        assert not one.transactions.halves


def test_a_message_is_resumed_once_and_so_many_are_remembered() -> None:
    log, state = Log(), empty_state()
    with_topic(log)
    with_behind(log, 0, Prepare("P", 77))
    resumed = with_behind(log, 1, Resume(5, "P", 88)).body_pos
    with_behind(log, 2, Resume(5, "P", 99))
    assert folded(log, state)[1:] == [True, True, False]
    assert state[TRANSACTIONS].halves[resumed].due_ms == 88
    assert restored(captured(state), REGISTRY) == state


def test_what_was_resumed_is_forgotten_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_ENDS >= 1000
    monkeypatch.setattr("broker.transactions.commands.MAX_ENDS", 2)
    log, state = Log(), empty_state()
    with_topic(log)
    for number in range(3):
        with_behind(log, number, Resume(number, "P", 88))
    assert folded(log, state)[1:] == [True, True, True]
    assert list(state[TRANSACTIONS].resumed) == [1, 2]
