from __future__ import annotations

import errno
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from broker.delay.deliveries import DELIVERIES
from broker.delay.due import LEVEL_MS, MAX_DELAY_MS
from broker.delay.state import DELAYS
from broker.errors import SettingInvalid
from broker.features import REGISTRY, empty_state
from broker.limits import BrokerLimits
from broker.log.command_layout import LogCommand
from broker.log.entry import encode_log_command
from broker.log.fold import fold
from broker.log.state_snapshot import captured, restored
from broker.transactions.checks import CHECKS
from broker.transactions.commands import Checked, Commit, GiveUp, MoveHalf, Prepare, Rollback
from broker.transactions.policy import CheckPolicy
from broker.transactions.state import MAX_ENDS, TRANSACTIONS, End
from dledger import DiskFailed, Node
from dledger_mq.producing.transaction import _REFUSING_REMARKS
from remoting.message.record import TRANSACTION_COMMIT, decode_record, decode_records
from remoting.wire.codes import RequestCode, ResponseCode
from tests.broker.delay.test_broker_delay import folded, with_behind
from tests.broker.log.test_broker_fold import Log, with_topic
from tests.broker.one_broker import START_MS, until
from tests.broker.transactions.transacting_broker import (
    COMMIT,
    HALF,
    ROLLBACK,
    UNKNOWN,
    position,
    transacting,
)

# --- the fold -------------------------------------------------------------------------------------


def test_a_transaction_ends_once_and_a_second_commit_is_no_message() -> None:
    log, state = Log(), empty_state()
    with_topic(log)
    half = with_behind(log, 0, Prepare("P", 77)).body_pos
    with_behind(log, 1, Commit(half))
    with_behind(log, 2, Commit(half))
    log.append(encode_log_command(Rollback(half)))
    with_behind(log, 2, GiveUp(half))
    log.append_record("A", 0, 2)
    assert folded(log, state)[1:] == [True, True, False, False, False, True]
    transactions = state[TRANSACTIONS]
    assert (transactions.committed, transactions.rolled_back) == (1, 0)
    assert dict(transactions.ends) == {half: End.COMMITTED}


def test_a_half_message_is_known_by_its_first_place_wherever_it_is_moved() -> None:
    log, state = Log(), empty_state()
    with_topic(log)
    first = with_behind(log, 0, Prepare("P", 77)).body_pos
    moved = with_behind(log, 1, MoveHalf(first))
    fold(state, log.entries)
    half = state[TRANSACTIONS].halves[first]
    assert (half.at, half.queue_offset) == (moved.body_pos, 0)
    assert decode_record(moved.body)[1] == half.size
    assert state.needed_from() == moved.body_pos
    log.entries.clear()
    log.append(encode_log_command(Rollback(moved.body_pos)))
    log.append(encode_log_command(Rollback(first)))
    assert folded(log, state) == [False, True]
    assert state.needed_from() is None


def test_a_question_counts_for_those_that_are_open() -> None:
    log, state = Log(), empty_state()
    with_topic(log)
    one = with_behind(log, 0, Prepare("P", 77)).body_pos
    two = with_behind(log, 1, Prepare("P", 78)).body_pos
    log.append(encode_log_command(Rollback(one)))
    log.append(encode_log_command(Checked(99, (one, two, 12345))))
    assert all(folded(log, state))
    (half,) = state[TRANSACTIONS].halves.values()
    assert (half.due_ms, half.checks) == (99, 1)


def test_a_committed_message_that_is_delayed_waits() -> None:
    log, state = Log(), empty_state()
    with_topic(log)
    half = with_behind(log, 0, Prepare("P", 77)).body_pos
    later = with_behind(log, 1, Commit(half, 500))
    assert all(folded(log, state))
    (row,) = state[DELAYS].waiting.captured()
    assert (row.position, row.due_ms) == (later.body_pos, 500)


@pytest.mark.parametrize(
    "behind",
    [
        Prepare("P", -1),
        Prepare(5, 1),  # type: ignore[arg-type]
        Commit(-1),
        Commit(1 << 63),
        Commit(1, -1),
        GiveUp(3),
        MoveHalf(3),
        Rollback(3),
        Checked(3, (3,)),
    ],
)
def test_a_record_with_a_malformed_end_is_no_message(behind: LogCommand) -> None:
    log, state = Log(), empty_state()
    with_topic(log)
    with_behind(log, 0, behind)
    log.append_record("A", 0, 0)
    assert folded(log, state)[1:] == [False, True]


@pytest.mark.parametrize(
    "command", [Prepare("P", 1), Commit(1), GiveUp(1), MoveHalf(1), Checked(1, (-1,)), Rollback(-1)]
)
def test_an_end_that_stands_alone_or_is_malformed_is_passed_over(command: LogCommand) -> None:
    log, state = Log(), empty_state()
    log.append(encode_log_command(command))
    assert folded(log, state) == [False]


def test_only_the_last_ends_are_remembered() -> None:
    log, state = Log(), empty_state()
    with_topic(log)
    halves = []
    for offset in range(MAX_ENDS + 5):
        halves.append(with_behind(log, offset, Prepare("P", 77)).body_pos)
        log.append(encode_log_command(Rollback(halves[-1])))
    fold(state, log.entries)
    assert list(state[TRANSACTIONS].ends) == halves[5:]


steps = st.lists(
    st.tuples(
        st.sampled_from(["half", "commit", "rollback", "give up", "check", "move"]),
        st.integers(0, 7),
    ),
    max_size=40,
)


@pytest.mark.feature("F42")
@given(script=steps, cut=st.integers(0, 40))
def test_each_transaction_ends_as_a_dictionary_says_also_behind_a_snapshot(
    script: list[tuple[str, int]], cut: int
) -> None:
    log, state = Log(), empty_state()
    with_topic(log)
    fold(state, log.entries)
    open_now: dict[int, int] = {}  # position -> questions
    known: list[int] = []
    visible = 0
    for number, (what, which) in enumerate(script):
        if number == cut:
            state.become(restored(captured(state), REGISTRY))
        log.entries.clear()
        target = known[which % len(known)] if known else 3
        is_open = target in open_now
        expected = True
        if what == "half":
            entry = with_behind(log, visible, Prepare("P", 5))
            known.append(entry.body_pos)
            open_now[entry.body_pos] = 0
        elif what == "check":
            log.append(encode_log_command(Checked(9, (target,))))
            if is_open:
                open_now[target] += 1
        elif what == "rollback":
            log.append(encode_log_command(Rollback(target)))
            expected = open_now.pop(target, None) is not None
        else:
            ends: dict[str, LogCommand] = {"commit": Commit(target), "give up": GiveUp(target)}
            command = ends.get(what, MoveHalf(target))
            with_behind(log, visible, command)
            expected = is_open
            if what != "move":
                open_now.pop(target, None)
        assert folded(log, state) == [expected]
        visible += expected and what not in ("check", "rollback")
    halves = state[TRANSACTIONS].halves
    assert {at: half.checks for at, half in halves.items()} == open_now


# --- a broker -------------------------------------------------------------------------------------


async def test_a_half_message_is_seen_by_nobody_and_a_commit_puts_it_where_it_belongs(
    tmp_path: Path,
) -> None:
    async with transacting(tmp_path) as one:
        half = await one.half(b"paid", properties=HALF + "TAGS\x01a\x02", queue_id=2)
        assert (half.code, half.fields["queueId"]) == (0, "2")
        assert half.fields["transactionId"] == "key"
        assert await one.bodies(queue_id=2) == []
        one.clock.now_ms += 1000
        assert (await one.end(half, COMMIT)).code == 0
        (message,) = await one.client.messages("T", 2)
        assert (message.body, message.queue_id, message.queue_offset) == (b"paid", 2, 0)
        assert message.system_flag == TRANSACTION_COMMIT
        assert message.prepared_transaction_offset == position(half)
        assert message.born_timestamp == START_MS
        assert message.store_timestamp == START_MS + 1000
        properties = message.property_map()
        assert not {"TRAN_MSG", "REAL_TOPIC", "REAL_QID"} & properties.keys()
        assert (properties["TAGS"], properties["PGROUP"], properties["UNIQ_KEY"]) == (
            "a",
            "P",
            "key",
        )


async def test_a_message_that_is_rolled_back_never_comes(tmp_path: Path) -> None:
    async with transacting(tmp_path) as one:
        half = await one.half()
        assert (await one.end(half, ROLLBACK)).code == 0
        assert await one.bodies() == []
        assert one.transactions.rolled_back == 1


async def test_an_end_that_is_asked_for_again_changes_nothing(tmp_path: Path) -> None:
    async with transacting(tmp_path) as one:
        first, second = await one.half(b"1"), await one.half(b"2")
        assert (await one.end(first, COMMIT)).code == 0
        assert (await one.end(second, ROLLBACK)).code == 0
        assert (await one.end(first, COMMIT)).code == 0
        assert (await one.end(second, ROLLBACK)).code == 0
        assert (await one.end(first, ROLLBACK)).code == ResponseCode.ILLEGAL_OPERATION
        refused = await one.end(second, COMMIT)
        assert refused.code == ResponseCode.ILLEGAL_OPERATION
        assert "rolled back" in str(refused.remark)
        assert await one.bodies() == [b"1"]


async def test_ends_that_cross_each_other_end_a_transaction_once(tmp_path: Path) -> None:
    async with transacting(tmp_path) as one:
        half = await one.half()
        codes: list[int] = []

        async def end(how: int) -> None:
            codes.append((await one.end(half, how)).code)

        async with trio.open_nursery() as nursery:
            for how in (COMMIT, COMMIT, ROLLBACK, COMMIT):
                nursery.start_soon(end, how)
        assert 0 in codes
        assert set(codes) <= {0, ResponseCode.SYSTEM_BUSY, ResponseCode.ILLEGAL_OPERATION}
        assert len(await one.bodies()) == one.transactions.committed
        assert one.transactions.committed + one.transactions.rolled_back == 1


async def test_a_producer_that_does_not_know_is_answered_and_asked_later(tmp_path: Path) -> None:
    async with transacting(tmp_path) as one:
        half = await one.half()
        assert (await one.end(half, UNKNOWN)).code == 0
        assert len(one.transactions.halves) == 1
        assert await one.bodies() == []


async def test_an_end_of_something_else_is_refused_and_ends_nothing(tmp_path: Path) -> None:
    wrong: list[tuple[dict[str, Any], int | None, str]] = [
        ({"producerGroup": "Q"}, ResponseCode.SYSTEM_ERROR, "the producer group wrong"),
        (
            {"tranStateTableOffset": 5},
            ResponseCode.SYSTEM_ERROR,
            "the transaction state table offset wrong",
        ),
        ({"commitLogOffset": 5}, ResponseCode.SYSTEM_ERROR, "find prepared transaction message"),
        ({"commitLogOffset": -1}, ResponseCode.SYSTEM_ERROR, "find prepared transaction message"),
        ({"commitLogOffset": 1 << 70}, None, ""),
        ({"commitLogOffset": "x"}, None, ""),
        ({"tranStateTableOffset": "9" * 5000}, None, ""),
        ({"commitOrRollback": 4}, ResponseCode.INVALID_PARAMETER, ""),
        ({"commitOrRollback": -8}, ResponseCode.INVALID_PARAMETER, ""),
    ]
    async with transacting(tmp_path) as one:
        half = await one.half()
        for more, code, remark in wrong:
            answer = await one.end(half, COMMIT, **more)
            assert answer.code == (answer.code if code is None else code) != 0, more
            assert (answer.remark or "").startswith(remark)
            assert len(one.transactions.halves) == 1
        assert (await one.end(half, COMMIT)).code == 0


async def test_a_producer_that_asks_again_after_very_long_is_not_told_that_it_never_was(
    tmp_path: Path,
) -> None:
    async with transacting(tmp_path) as one:
        half = await one.half()
        assert (await one.end(half, COMMIT)).code == 0
        one.transactions.ends.clear()  # as after 10 000 others
        answer = await one.end(half, COMMIT)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        remark = answer.remark or ""
        assert "has ended" in remark
        assert not remark.lower().startswith(_REFUSING_REMARKS)


@pytest.mark.parametrize("group", ["", "PGROUP\x01a b\x02", "PGROUP\x01" + "x" * 300 + "\x02"])
async def test_a_half_message_without_a_group_to_ask_is_refused(tmp_path: Path, group: str) -> None:
    async with transacting(tmp_path) as one:
        answer = await one.half(properties="TRAN_MSG\x01true\x02" + group)
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert not one.transactions.halves


async def test_a_half_message_in_a_batch_is_refused(tmp_path: Path) -> None:
    async with transacting(tmp_path) as one:
        properties = HALF.encode()
        piece = (
            (len(properties) + 23).to_bytes(4, "big")
            + bytes(12)
            + b"\0\0\0\1x"
            + len(properties).to_bytes(2, "big")
            + properties
        )
        answer = await one.client.send("T", piece + piece, m="true")
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL


async def test_too_many_open_transactions_are_refused_with_a_reason(tmp_path: Path) -> None:
    limits = BrokerLimits(max_open_transactions=2)
    async with transacting(tmp_path, limits=limits) as one:
        halves = [await one.half() for _ in range(3)]
        assert [half.code for half in halves] == [0, 0, ResponseCode.SYSTEM_BUSY]
        assert (await one.end(halves[0], ROLLBACK)).code == 0
        assert (await one.half()).code == 0


async def test_a_delay_counts_from_the_commit_on(tmp_path: Path) -> None:
    async with transacting(tmp_path) as one:
        half = await one.half(properties=HALF + "DELAY\x011\x02")
        far = await one.half(properties=f"{HALF}TIMER_DELAY_MS\x01{MAX_DELAY_MS + 1}\x02")
        assert far.code == ResponseCode.MESSAGE_ILLEGAL
        one.clock.now_ms += 5000
        assert (await one.end(half, COMMIT)).code == 0
        one.clock.now_ms += LEVEL_MS[0] - 1
        deliveries = one.broker.parts[DELIVERIES]
        deliveries.deliver()
        assert await one.bodies() == []
        one.clock.now_ms += 1
        deliveries.deliver()
        await one.client.send("U", b"behind it")
        (message,) = await one.client.messages("T")
        assert message.prepared_transaction_offset == position(half)
        assert not {"DELAY", "TRAN_MSG"} & message.property_map().keys()


async def test_a_commit_for_a_topic_that_was_deleted_rolls_back(tmp_path: Path) -> None:
    async with transacting(tmp_path) as one:
        gone, again = await one.half(topic="gone"), await one.half(topic="again")
        for topic in ("gone", "again"):
            assert (await one.client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic)).code == 0
        await one.client.send("again", b"new")
        for half in (gone, again):
            assert (await one.end(half, COMMIT)).code == ResponseCode.TOPIC_NOT_EXIST
        await one.client.send("again", b"behind it")
        assert await one.bodies("again") == [b"new", b"behind it"]
        assert one.transactions.rolled_back == 2


async def test_a_member_whose_disk_has_failed_does_not_say_that_there_is_no_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with transacting(tmp_path) as one:
        half = await one.half()
        failure = DiskFailed("sync", "segment", OSError(errno.EIO, "Input/output error"))
        with monkeypatch.context() as broken:
            broken.setattr(Node, "read_bytes", Mock(side_effect=failure))
            reply = await one.end(half, COMMIT)
        # The client asks another member then; after a 1 it takes the transaction for ended.
        assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "this member ends, ask another one: sync segment" in str(reply.remark)
        assert "Traceback" not in caplog.text
        assert (await one.end(half, COMMIT)).code == 0
        assert await one.bodies() == [b"x"]


async def test_a_transaction_is_ended_at_the_next_leader(tmp_path: Path) -> None:
    async with transacting(tmp_path) as one:
        first, second = await one.half(b"1"), await one.half(b"2")
        assert (await one.end(first, COMMIT)).code == 0
    async with transacting(tmp_path) as one:
        assert (await one.end(first, COMMIT)).code == 0
        assert (await one.end(second, COMMIT)).code == 0
        assert await one.bodies() == [b"1", b"2"]


# --- questions ------------------------------------------------------------------------------------


@pytest.mark.feature("F42")
async def test_a_producer_of_the_group_is_asked_after_six_seconds_and_its_answer_counts(
    tmp_path: Path,
) -> None:
    async with transacting(tmp_path) as one:
        half = await one.half(b"paid", queue_id=3)
        other, another = one.another(), one.another()
        await one.register(other, "Q", "P", "CLIENT_INNER_PRODUCER")
        await one.register(another, "Q")
        await one.look(5999)
        assert not other.notices
        await one.look(6000)
        question = await one.question(other)
        assert question.code == RequestCode.CHECK_TRANSACTION_STATE
        fields = question.fields
        assert fields["tranStateTableOffset"] == half.fields["queueOffset"]
        assert fields["commitLogOffset"] == str(position(half))
        assert (fields["msgId"], fields["transactionId"]) == ("key", "key")
        assert fields["offsetMsgId"] == half.fields["msgId"]
        (message,) = decode_records(question.body)
        assert (message.topic, message.queue_id, message.body) == ("T", 3, b"paid")
        properties = message.property_map()
        assert (properties["PGROUP"], properties["TRANSACTION_CHECK_TIMES"]) == ("P", "1")
        answer = await other.ask(
            RequestCode.END_TRANSACTION,
            producerGroup="P",
            commitOrRollback=COMMIT,
            fromTransactionCheck="true",
            tranStateTableOffset=fields["tranStateTableOffset"],
            commitLogOffset=fields["commitLogOffset"],
            msgId=fields["msgId"],
        )
        assert answer.code == 0
        assert await one.bodies(queue_id=3) == [b"paid"]
        await one.look(100_000)
        assert not other.notices
        assert not another.notices


async def test_a_producer_is_asked_in_time_after_a_clock_was_ahead(tmp_path: Path) -> None:
    async with transacting(tmp_path) as one:
        await one.register(one.client, "P")
        one.clock.now_ms = START_MS + 3_600_000
        await one.client.send("T", b"while the clock is an hour ahead")
        one.clock.now_ms = START_MS
        await one.half()
        await one.look(5_999)
        assert one.client.notices == []
        await one.look(6_000)
        await one.question(one.client)


async def test_members_of_the_group_take_turns_every_thirty_seconds(tmp_path: Path) -> None:
    async with transacting(tmp_path) as one:
        await one.half()
        two = [one.another(), one.another()]
        for client in two:
            await one.register(client, "P")
        await one.look(6000)
        await one.look(35_999)
        assert sum(len(client.notices) for client in two) == 1
        await one.look(36_000)
        assert [len(client.notices) for client in two] == [1, 1]


async def test_a_message_may_ask_for_more_time(tmp_path: Path) -> None:
    async with transacting(tmp_path) as one:
        await one.register(one.client, "P")
        immune = "CHECK_IMMUNITY_TIME_IN_SECONDS\x01{}\x02"
        for immune_s in ("60", "x", "-5", "0", "9" * 5000, "9" * 15):
            await one.half(properties=HALF + immune.format(immune_s))
        dues = sorted(half.due_ms - START_MS for half in one.transactions.halves.values())
        assert dues == [6000, 6000, 6000, 6000, 60_000, 72 * 3600 * 1000]


async def test_a_transaction_whose_end_nobody_knows_is_given_up_where_operators_find_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with transacting(tmp_path, checks=CheckPolicy(max_checks=3)) as one:
        half = await one.half(b"lost")
        await one.register(one.client, "P")
        for number in range(3):
            await one.look(6000 + number * 30_000)
        assert len(one.client.notices) == 3
        assert len(one.transactions.halves) == 1
        await one.look(96_000)
        assert not one.transactions.halves
        assert len(one.client.notices) == 3
        assert await one.bodies() == []
        (message,) = await one.client.messages("TRANS_CHECK_MAX_TIME_TOPIC")
        assert (message.body, message.property_map()["REAL_TOPIC"]) == (b"lost", "T")
        refused = await one.end(half, COMMIT)
        assert refused.code == ResponseCode.ILLEGAL_OPERATION
        assert "given up" in str(refused.remark)
        assert "TRANS_CHECK_MAX_TIME_TOPIC" in caplog.text


async def test_a_question_that_nobody_is_there_to_answer_does_not_count(tmp_path: Path) -> None:
    async with transacting(tmp_path, checks=CheckPolicy(max_checks=2)) as one:
        await one.half()
        for hour in range(72):
            await one.look(hour * 3_600_000)
        (half,) = one.transactions.halves.values()
        assert half.checks == 0
        await one.look(72 * 3_600_000)
        assert one.transactions.given_up == 1


async def test_a_new_leader_asks_no_more_often_than_the_old_one(tmp_path: Path) -> None:
    async with transacting(tmp_path) as one:
        await one.half()
        await one.register(one.client, "P")
        await one.look(6000)
        assert len(one.client.notices) == 1
    async with transacting(tmp_path) as one:
        await one.register(one.client, "P")
        await one.look(35_999)
        assert not one.client.notices
        await one.look(36_000)
        await one.question(one.client)
        (half,) = one.transactions.halves.values()
        assert half.checks == 2


async def test_a_thousand_open_transactions_are_asked_about_in_portions(tmp_path: Path) -> None:
    async with transacting(tmp_path) as one:
        await one.register(one.client, "P")
        async with trio.open_nursery() as nursery:
            for _ in range(200):
                nursery.start_soon(one.half)
        one.clock.now_ms = START_MS + 6000
        checks = one.broker.parts[CHECKS]
        looks = 1
        while checks.look():
            looks += 1
        assert looks == 4

        async def are_asked() -> bool:
            return len(one.client.notices) == 200

        await until(are_asked)


async def test_a_half_message_that_retention_moves_is_ended_as_before(tmp_path: Path) -> None:
    async with transacting(tmp_path) as one:
        halves = [await one.half(b"%d" % number) for number in range(3)]
        await one.register(one.client, "P")
        state = one.broker.machine.state
        end = state.log_end
        assert state.needed_from() == position(halves[0])
        one.broker.parts[CHECKS].move_before(end)
        await one.look(0)
        needed = state.needed_from()
        assert needed is not None
        assert needed >= end
        assert (await one.end(halves[2], COMMIT)).code == 0
        assert (await one.end(halves[0], COMMIT)).code == 0
        await one.look(6000)
        question = await one.question(one.client)
        assert question.fields["commitLogOffset"] == str(position(halves[1]))
        assert decode_records(question.body)[0].body == b"1"
        assert await one.bodies() == [b"2", b"0"]
        await one.look(100_000)


async def test_a_producer_that_left_is_not_asked(tmp_path: Path) -> None:
    async with transacting(tmp_path) as one:
        await one.half()
        one_that_leaves, one_that_closes = one.another(), one.another()
        for client in (one_that_leaves, one_that_closes):
            await one.register(client, "P")
        left = await one_that_leaves.ask(35, clientID="c", producerGroup="P", consumerGroup="")
        assert left.code == 0
        one_that_closes.close()
        with trio.fail_after(5):
            while (await one.client.ask(204, producerGroup="P")).code == 0:  # noqa: ASYNC110
                await trio.sleep(0.01)
        await one.look(6000)
        assert not one_that_leaves.notices
        (half,) = one.transactions.halves.values()
        assert half.checks == 0


async def test_operators_see_the_producers(tmp_path: Path) -> None:
    async with transacting(tmp_path) as one:
        await one.register(one.client, "P", "odd name", "Q")
        told = await one.client.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="P")
        assert (told.code, b'"clientId":"c"' in told.body) == (0, True)
        everything = await one.client.ask(RequestCode.GET_ALL_PRODUCER_INFO)
        assert everything.body.startswith(b'{"data":{"P":[{"clientId":"c"')
        assert b"odd name" not in everything.body
        nobody = await one.client.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="Z")
        assert nobody.code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("setting", ["after_s", "every_s", "max_checks", "give_up_hours"])
def test_settings_of_checks_are_judged(setting: str) -> None:
    with pytest.raises(SettingInvalid, match="give 1 or more"):
        CheckPolicy(**{setting: 0})
