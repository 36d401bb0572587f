"""POP: each message is one consumer's for a time, and comes again unless it is acknowledged."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import trio

from broker.groups.state import GROUPS
from broker.log.entry import RENEWALS_VERSION
from broker.machine import BrokerMachine
from broker.pop import choice
from broker.pop.state import POPS
from broker.store.message_reader import MessageReader
from remoting.bodies.heartbeat import ConsumerData, Heartbeat, SubscriptionData, encode_heartbeat
from remoting.bodies.table import decode_table
from remoting.message.record import decode_records
from remoting.net.connection import Connection
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from tests.broker.broker_in_memory import broker_in_memory
from tests.broker.one_broker import START_MS, Client, Clock, send_fields, until
from tests.broker.pop.popping_broker import PopClient, Popped, popping, shown


async def test_each_message_is_given_once(tmp_path: Path) -> None:
    async with popping(tmp_path) as pop:
        for queue_id in range(4):
            await pop.send(
                *[b"%d-%d" % (queue_id, number) for number in range(10)], queue_id=queue_id
            )
        seen: list[bytes] = []
        while bodies := await pop.bodies(maxMsgNums=3):
            assert len(bodies) <= 3
            seen += bodies
        assert sorted(seen) == sorted(b"%d-%d" % (q, n) for q in range(4) for n in range(10))
        assert await pop.bodies(consumerGroup="other", queueId=2, maxMsgNums=2) == [b"2-0", b"2-1"]


async def test_what_is_not_acknowledged_in_time_comes_again_and_says_how_often(
    tmp_path: Path,
) -> None:
    async with popping(tmp_path) as pop:
        await pop.send(b"0", b"1", b"2")
        first = await pop.pop(invisibleTime=10_000)
        assert (await pop.ack(first[1])).code == 0
        pop.at(9.9)
        assert await pop.bodies() == []
        for times in (1, 2, 3):
            pop.at(times * 10)
            again = await pop.pop(invisibleTime=10_000)
            assert [one.body for one in again] == [b"0", b"2"]
            assert [one.record.reconsume_times for one in again] == [times, times]
        assert (await pop.ack(first[0])).code == ResponseCode.NO_MESSAGE
        assert [(await pop.ack(one)).code for one in (*again, *again, first[1])] == [0] * 5
        pop.at(1000)
        assert await pop.bodies() == []


async def test_progress_is_that_of_the_first_message_that_is_out(tmp_path: Path) -> None:
    async with popping(tmp_path) as pop:
        await pop.send(b"0", b"1", b"2", b"3")
        zero, one, two = await pop.pop(maxMsgNums=3)
        assert await pop.committed() == 0
        await pop.ack(one)
        assert await pop.committed() == 0
        await pop.ack(zero)
        assert await pop.committed() == 2
        await pop.ack(two)
        assert await pop.committed() == 3
        stats = await pop.client.ask(208, consumerGroup="g", topic="T")
        assert b'"consumerOffset":3' in stats.body


async def test_many_are_acknowledged_at_once(tmp_path: Path) -> None:
    async with popping(tmp_path) as pop:
        await pop.send(*[b"%d" % number for number in range(20)])
        out = await pop.pop()
        assert (await pop.ack_batch([*out[:5], *out[6:], out[0]])).code == 0
        assert (await pop.ack_batch(out[:3])).code == 0
        pop.at(100)
        assert await pop.bodies() == [b"5"]


async def test_a_message_can_be_hidden_longer_and_shown_at_once(tmp_path: Path) -> None:
    async with popping(tmp_path) as pop:
        await pop.send(b"0", b"1")
        zero, one = await pop.pop(invisibleTime=10_000)
        assert (await pop.hide(zero, 100_000)).code == 0
        assert (await pop.hide(one, 500)).code == 0
        assert (await pop.hide(one, 1)).code == 0
        pop.at(1)
        assert await pop.bodies() == [b"1"]
        assert (await pop.ack(one)).code == ResponseCode.NO_MESSAGE  # another consumer has it
        assert (await pop.hide(one, 5)).code == ResponseCode.NO_MESSAGE
        pop.at(99)
        assert await pop.bodies() == [b"1"]
        assert (await pop.ack(zero)).code == 0
        pop.at(1000)
        assert await pop.bodies() == [b"1"]


async def test_each_handle_of_a_delivery_is_good_until_it_is_given_again(tmp_path: Path) -> None:
    async with popping(tmp_path) as pop:
        await pop.send(b"0", b"1", b"2")
        out = await pop.pop(invisibleTime=10_000)
        renewed: list[Popped] = []
        for number, message in enumerate(out, 1):
            pop.at(5 * number)
            reply = await pop.hide(message, 60_000)
            times = [reply.integer(name) for name in ("popTime", "invisibleTime")]
            assert sum(times) == pop.clock.now_ms + 60_000  # the end, as clients reckon it
            words = message.handle.split(" ")
            words[1:3] = map(str, times)
            renewed.append(message._replace(handle=" ".join(words)))
            pop.at(9)
        zero, _one, two = out
        assert (await pop.ack(zero)).code == 0  # by the first handle, long after its time
        assert (await pop.ack(renewed[1])).code == 0
        assert (await pop.hide(renewed[2], 60_000)).code == 0  # renewed twice
        pop.at(1000)
        (again,) = await pop.pop(invisibleTime=10_000)
        assert (again.body, again.record.reconsume_times) == (b"2", 1)
        for old in (two, renewed[2]):
            assert (await pop.ack(old)).code == ResponseCode.NO_MESSAGE
            assert (await pop.hide(old, 5)).code == ResponseCode.NO_MESSAGE
            assert (await pop.ack_batch([old])).code == 0  # and it is skipped
        pop.at(1011)
        assert await pop.bodies() == [b"2"]


async def test_a_suspended_delivery_counts_as_no_attempt(tmp_path: Path) -> None:
    async with popping(tmp_path) as pop:
        await pop.send(b"0")
        times: list[int] = []
        for number, suspend in enumerate(("true", "true", "false", "TRUE", "")):
            pop.at(number)
            (message,) = await pop.pop(invisibleTime=10_000)
            times.append(message.record.reconsume_times)
            for _ in range(2):  # the second one takes nothing more away
                assert (await pop.hide(message, 1, suspend=suspend)).code == 0
        pop.at(9)
        assert times == [0, 0, 0, 1, 1]
        (message,) = await pop.pop()
        assert message.record.reconsume_times == 2
        assert (await pop.hide(message, 1, suspend="true")).code == 0
        assert (await pop.hide(message, 1, suspend="false")).code == 0  # the last word counts
        pop.at(10)
        assert [one.record.reconsume_times for one in await pop.pop()] == [3]


async def test_a_group_with_members_of_an_earlier_version_moves_handles_as_those_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BrokerMachine, "machine_version", RENEWALS_VERSION - 1)
    async with popping(tmp_path) as pop:
        await pop.send(b"0")
        (message,) = await pop.pop(invisibleTime=10_000)
        reply = await pop.hide(message, 20_000, suspend="true")
        assert reply.integer("popTime") > int(message.handle.split(" ")[1])
        assert reply.integer("invisibleTime") == 20_000
        assert (await pop.ack(message)).code == ResponseCode.NO_MESSAGE
        pop.at(30)
        (again,) = await pop.pop()
        assert again.record.reconsume_times == 1


async def test_a_pop_waits_for_a_message(tmp_path: Path) -> None:
    async with popping(tmp_path) as pop, trio.open_nursery() as nursery:
        await pop.send(b"old", tags="other")
        assert await pop.bodies(exp="mine", expType="TAG") == []
        got: list[list[bytes]] = []

        async def wait() -> None:
            got.append(await pop.bodies(pollTime=15_000, exp="mine", expType="TAG"))

        nursery.start_soon(wait)
        await until_waiting(pop, 1)
        await pop.send(b"not mine", tags="other", queue_id=1)
        await pop.send(b"mine", tags="mine", queue_id=2)
        await until(lambda: _is(len(got) == 1))
        assert got == [[b"mine"]]


async def test_a_pop_waits_until_a_message_is_due_again(tmp_path: Path) -> None:
    async with popping(tmp_path) as pop, trio.open_nursery() as nursery:
        await pop.send(b"0")
        await pop.pop(invisibleTime=10_000)
        got: list[bytes] = []

        async def wait() -> None:
            got.extend(await pop.bodies(pollTime=15_000))

        nursery.start_soon(wait)
        await until_waiting(pop, 1)
        pop.at(10)
        await until(lambda: _is(got == [b"0"]))


async def test_waiting_ends_without_a_message(tmp_path: Path) -> None:
    async with popping(tmp_path) as pop:
        await pop.send(b"0")
        await pop.pop()
        reply = await pop.ask(pollTime=300)
        assert (reply.code, reply.text("restNum")) == (ResponseCode.POLLING_TIMEOUT, "0")


async def test_many_that_wait_share_what_comes(tmp_path: Path) -> None:
    async with popping(tmp_path) as pop, trio.open_nursery() as nursery:
        await pop.send(b"first")
        await pop.pop()
        got: list[bytes] = []

        async def wait() -> None:
            got.extend(await pop.bodies(pollTime=10_000, maxMsgNums=1))

        for _ in range(12):
            nursery.start_soon(wait)
        await until_waiting(pop, 12)
        await pop.send(*[b"%d" % number for number in range(12)])
        await until(lambda: _is(len(got) == 12))
        assert sorted(got) == sorted(b"%d" % number for number in range(12))


async def test_many_that_wait_for_a_queue_share_what_comes_at_once(tmp_path: Path) -> None:
    async with popping(tmp_path) as pop, trio.open_nursery() as nursery:
        await pop.send(b"first")
        await pop.pop()
        got: list[bytes] = []

        async def wait() -> None:
            got.extend(await pop.bodies(pollTime=10_000, maxMsgNums=1, queueId=0))

        for _ in range(8):
            nursery.start_soon(wait)
        await until_waiting(pop, 8)
        for number in range(8):
            nursery.start_soon(pop.send, b"%d" % number)
        await until(lambda: _is(len(got) == 8))
        assert sorted(got) == sorted(b"%d" % number for number in range(8))


async def test_pops_in_order_wait_until_all_before_is_acknowledged(tmp_path: Path) -> None:
    async with popping(tmp_path) as pop:
        await pop.send(*[b"%d" % number for number in range(6)])
        in_order: dict[str, Any] = {"order": "true", "queueId": 0, "invisibleTime": 10_000}
        first = await pop.pop(maxMsgNums=3, attemptId="a", **in_order)
        assert [one.body for one in first] == [b"0", b"1", b"2"]
        assert first[0].handle.split()[3] == "999"
        assert await pop.bodies(attemptId="b", **in_order) == []
        again = await pop.pop(maxMsgNums=3, attemptId="a", **in_order)  # the answer was lost
        assert [(one.body, one.record.reconsume_times) for one in again] == [
            (b"0", 0),
            (b"1", 0),
            (b"2", 0),
        ]
        assert (await pop.ack(first[0])).code == ResponseCode.NO_MESSAGE
        assert [(await pop.ack(one)).code for one in again[::2]] == [0, 0]
        assert await pop.bodies(attemptId="b", **in_order) == []
        pop.at(11)
        late = await pop.pop(maxMsgNums=4, attemptId="b", **in_order)
        # 2 was acknowledged, and comes again with 1, which was before it and was not.
        assert [(one.body, one.record.reconsume_times) for one in late] == [
            (b"1", 1),
            (b"2", 1),
            (b"3", 0),
            (b"4", 0),
        ]
        assert [(await pop.ack(one)).code for one in reversed(late)] == [0, 0, 0, 0]
        assert await pop.bodies(attemptId="c", **in_order) == [b"5"]


async def test_a_pop_in_order_waits_for_the_acknowledgement(tmp_path: Path) -> None:
    async with popping(tmp_path) as pop, trio.open_nursery() as nursery:
        await pop.send(b"0", b"1")
        (zero,) = await pop.pop(maxMsgNums=1, order="true", queueId=0)
        got: list[bytes] = []

        async def wait() -> None:
            got.extend(await pop.bodies(pollTime=10_000, order="true", queueId=0))

        nursery.start_soon(wait)
        await until_waiting(pop, 1)
        await pop.ack(zero)
        await until(lambda: _is(got == [b"1"]))


@pytest.mark.feature("F39")
async def test_a_message_that_fails_too_often_becomes_a_dead_letter(tmp_path: Path) -> None:
    async with popping(tmp_path) as pop:
        await group_with(pop.client, 2)
        await pop.send(b"bad", b"good")
        _bad, good = await pop.pop(invisibleTime=1000)
        assert (await pop.ack(good)).code == 0
        for times in (1, 2):
            pop.at(times * 2)
            assert await pop.bodies(invisibleTime=1000) == [b"bad"]
        pop.at(100)
        assert await pop.bodies(invisibleTime=1000) == []

        async def is_dead() -> bool:
            reply = await pop.client.pull("%DLQ%g", 0)
            return reply.code == 0

        await until(is_dead)
        (letter,) = decode_records((await pop.client.pull("%DLQ%g", 0)).body)
        pairs = letter.property_map()
        assert (letter.body, letter.reconsume_times) == (b"bad", 3)
        assert (pairs["DLQ_ORIGIN_TOPIC"], pairs["RETRY_TOPIC"]) == ("T", "T")
        assert await pop.bodies() == []
        assert await pop.committed() == 2


async def test_everything_is_known_after_a_restart(tmp_path: Path) -> None:
    clock = Clock()
    async with popping(tmp_path, clock=clock) as pop:
        await pop.send(*[b"%d" % number for number in range(5)])
        out = await pop.pop(maxMsgNums=4, invisibleTime=10_000)
        await pop.ack(out[0])
        await pop.hide(out[1], 50_000)
    async with popping(tmp_path, clock=clock) as pop:
        assert await pop.bodies(invisibleTime=90_000) == [b"4"]
        assert (await pop.ack(out[2])).code == 0
        pop.at(11)
        assert await pop.bodies(invisibleTime=90_000) == [b"3"]
        pop.at(60)
        (last,) = await pop.pop()
        assert (last.body, last.record.reconsume_times) == (b"1", 1)


async def test_a_new_group_that_begins_at_the_end_misses_nothing_of_a_young_topic(
    tmp_path: Path,
) -> None:
    async with popping(tmp_path) as pop:
        await pop.send(b"old", b"older")
        assert await pop.bodies(initMode=1) == [b"old", b"older"]


async def test_a_group_may_begin_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.store.message_reader.YOUNG_QUEUE_BYTES", 0)
    async with popping(tmp_path) as pop:
        await pop.send(b"old", b"older")
        assert await pop.bodies(initMode=1) == []
        await pop.send(b"new")
        assert await pop.bodies(initMode=1) == [b"new"]
        assert await pop.bodies(consumerGroup="h", initMode=0) == [b"old", b"older", b"new"]


async def test_a_group_goes_on_where_it_has_pulled_and_where_it_is_moved(tmp_path: Path) -> None:
    async with popping(tmp_path) as pop:
        await pop.send(*[b"%d" % number for number in range(5)])
        await group_with(pop.client, 16)
        commit = {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": 2}
        assert (await pop.client.ask(15, **commit)).code == 0  # type: ignore[arg-type]
        assert await pop.bodies(maxMsgNums=2) == [b"2", b"3"]
        moved = {"topic": "T", "group": "g", "timestamp": 0, "isForce": "true", "offset": 1}
        reset = await pop.client.ask(222, queueId=0, **moved)  # type: ignore[arg-type]
        assert reset.code == 0, reset
        first = await pop.pop(maxMsgNums=1)
        assert [one.body for one in first] == [b"1"]
        assert await pop.bodies() == [b"2", b"3", b"4"]
        assert await pop.committed() == 1
        await pop.ack(first[0])
        assert await pop.committed() == 2
        figures = decode_table((await pop.client.ask(28)).body)
        assert figures["dledgerPoppedInFlight"] == "3"


async def test_a_deleted_topic_leaves_nothing_behind(tmp_path: Path) -> None:
    async with popping(tmp_path) as pop, trio.open_nursery() as nursery:
        await pop.send(b"old")
        (old,) = await pop.pop()
        codes: list[int] = []

        async def wait() -> None:
            codes.append((await pop.ask(pollTime=10_000)).code)

        nursery.start_soon(wait)
        await until_waiting(pop, 1)
        assert (await pop.client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")).code == 0
        await until(lambda: _is(codes == [ResponseCode.TOPIC_NOT_EXIST]))
        await pop.send(b"new")
        assert (await pop.ack(old)).code == 0
        assert await pop.bodies() == [b"new"]


async def test_a_question_whether_there_is_something_takes_nothing(tmp_path: Path) -> None:
    async with popping(tmp_path) as pop, trio.open_nursery() as nursery:
        await pop.send(b"0")
        asked: dict[str, Any] = {"consumerGroup": "g", "topic": "T", "queueId": -1, "bornTime": 0}

        async def has_message(poll_ms: int) -> str:
            reply = await pop.client.ask(RequestCode.NOTIFICATION, pollTime=poll_ms, **asked)
            return reply.text("hasMsg")

        assert await has_message(0) == "true"
        peeked = await pop.client.ask(RequestCode.PEEK_MESSAGE, maxMsgNums=5, **asked)
        assert [one.body for one in decode_records(peeked.body)] == [b"0"]
        (zero,) = await pop.pop()
        assert await has_message(100) == "false"
        peeked = await pop.client.ask(RequestCode.PEEK_MESSAGE, maxMsgNums=5, **asked)
        assert peeked.code == ResponseCode.PULL_NOT_FOUND
        answers: list[str] = []

        async def wait() -> None:
            answers.append(await has_message(10_000))

        nursery.start_soon(wait)
        await until_waiting(pop, 1)
        await pop.send(b"1")
        await until(lambda: _is(answers == ["true"]))
        assert (await pop.ack(zero)).code == 0
        assert await pop.bodies() == [b"1"]


async def test_a_pop_that_cannot_be_is_refused(tmp_path: Path) -> None:
    refused: list[tuple[dict[str, Any], int]] = [
        ({"maxMsgNums": 0}, 1),
        ({"maxMsgNums": 33}, 1),
        ({"invisibleTime": 0}, 29),
        ({"invisibleTime": 1 << 60}, 29),
        ({"topic": "U"}, 17),
        ({"queueId": 4}, 29),
        ({"queueId": -2}, 29),
        ({"consumerGroup": "a/b"}, 29),
        ({"attemptId": "x" * 65}, 29),
        ({"exp": "a = ", "expType": "SQL92"}, 23),
        ({"exp": "a", "expType": "OTHER"}, 1),
    ]
    async with popping(tmp_path) as pop:
        await pop.send(b"0")
        for changed, code in refused:
            assert (await pop.ask(**changed)).code == code, changed
        assert await pop.bodies() == [b"0"]


async def test_what_is_no_handle_is_refused(tmp_path: Path) -> None:
    async with popping(tmp_path) as pop:
        await pop.send(b"0")
        (zero,) = await pop.pop()
        for handle in ("", "x", "0 1", "0 -1 1 0 0 b 0 0", "0 9e9 1 0 0 b 0 0", "0 " * 900):
            forged = {**shown(zero), "extraInfo": handle}
            for code in (RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME):
                reply = await pop.client.ask(code, invisibleTime=5, **forged)
                assert reply.code == ResponseCode.INVALID_PARAMETER, handle
        assert (await pop.ack(zero)).code == 0


async def test_a_group_has_no_more_out_than_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "MAX_IN_FLIGHT_PER_QUEUE", 3)
    monkeypatch.setattr("broker.pop.waiting_pops.MAX_WAITING", 1)
    async with popping(tmp_path) as pop, trio.open_nursery() as nursery:
        await pop.send(*[b"%d" % number for number in range(5)])
        out = await pop.pop()
        assert len(out) == 3
        assert await pop.bodies() == []
        got: list[bytes] = []

        async def wait() -> None:
            got.extend(await pop.bodies(pollTime=10_000))

        nursery.start_soon(wait)
        await until_waiting(pop, 1)
        assert (await pop.ask(pollTime=1000)).code == ResponseCode.POLLING_FULL
        await pop.ack(out[1])
        await until(lambda: _is(got == [b"3"]))


async def test_one_client_leaves_room_for_the_pops_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.pop.waiting_pops.MAX_WAITING_A_CLIENT", 2)
    async with popping(tmp_path) as pop, trio.open_nursery() as nursery:
        await pop.send(b"first")
        assert await pop.bodies() == [b"first"]
        for _ in range(2):
            nursery.start_soon(partial(pop.ask, pollTime=10_000))
        await until_waiting(pop, 2)
        assert (await pop.ask(pollTime=10_000)).code == ResponseCode.POLLING_FULL
        other = PopClient(Client(nursery, pop.client.address), pop.clock)
        nursery.start_soon(partial(other.ask, pollTime=10_000))
        await until_waiting(pop, 3)
        nursery.cancel_scope.cancel()


async def test_a_pop_of_conditions_gives_what_meets_them(tmp_path: Path) -> None:
    async with popping(tmp_path) as pop:
        for number in range(6):
            await pop.send(b"%d" % number, i=f"n\x01{number}\x02")
        assert await pop.bodies(exp="n > 3", expType="SQL92") == [b"4", b"5"]
        assert await pop.bodies() == []  # what a group did not want is done
        assert await pop.committed() == 4


async def until_waiting(pop: PopClient, count: int) -> None:
    async def waits() -> bool:
        asked = {"consumerGroup": "g", "topic": "T", "queueId": 0}
        reply = await pop.client.ask(RequestCode.POLLING_INFO, **asked)  # type: ignore[arg-type]
        return reply.integer("pollingNum") == count

    await until(waits)


async def group_with(client: Client, retry_max_times: int) -> None:
    body = b'{"groupName":"g","retryMaxTimes":%d}' % retry_max_times
    assert (await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)).code == 0


async def _is(value: bool) -> bool:
    return value


async def test_in_order_a_message_that_always_fails_takes_no_other_to_the_dead_letters(
    tmp_path: Path,
) -> None:
    async with popping(tmp_path) as pop:
        await group_with(pop.client, 2)
        await pop.send(b"bad", b"1", b"2")
        for times in range(3):
            pop.at(times * 10)
            out = await pop.pop(queueId=0, order="true", invisibleTime=5000)
            assert [one.body for one in out] == [b"bad", b"1", b"2"]
            assert [one.record.reconsume_times for one in out] == [times] * 3
        pop.at(100)
        await pop.pop(queueId=0, order="true", invisibleTime=5000)

        async def buried() -> bool:
            reply = await pop.client.pull("%DLQ%g", 0)
            return reply.code == 0 and [one.body for one in decode_records(reply.body)] == [b"bad"]

        await until(buried)
        pop.at(200)
        out = await pop.pop(queueId=0, order="true", invisibleTime=5000)
        assert [one.body for one in out] == [b"1", b"2"]
        assert [(await pop.ack(one)).code for one in out] == [0, 0]
        assert await pop.committed() == 3


def pop_fields(poll_ms: int) -> dict[str, Any]:
    return {
        **{"consumerGroup": "g", "topic": "T", "queueId": 0, "maxMsgNums": 1, "pollTime": poll_ms},
        **{"invisibleTime": 60_000, "bornTime": START_MS, "initMode": 0},
    }


def test_no_pop_makes_the_state_of_a_deleted_group_again() -> None:
    delete = {"groupName": "g", "removeOffset": "true"}
    for waits in (False, True):
        with broker_in_memory() as there:
            assert there.ask(310, b"x", **send_fields("T")).code == 0
            asked: dict[str, Any] = pop_fields(15_000 if waits else 0)
            assert there.ask(RequestCode.POP_MESSAGE, **asked).code == 0
            requests = [Command(RequestCode.DELETE_SUBSCRIPTIONGROUP, delete)]
            pop = Command(RequestCode.POP_MESSAGE, {name: str(v) for name, v in asked.items()})
            requests = [pop, *requests] if waits else [*requests, pop]
            for at, one in enumerate(requests):
                one.opaque = 1000 + at
            there.requests.on_commands(cast(Connection, there.client), requests)
            there.log.settle()
            assert there.ask(310, b"y", **send_fields("T")).code == 0
            assert there.machine.state[POPS].queues == {}
            assert "g" not in there.machine.state[GROUPS].configs


async def test_a_question_whether_there_is_something_reads_few_queues_by_a_condition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading one may take milliseconds, and a topic may have a thousand."""
    async with popping(tmp_path) as pop:
        await pop.client.send("T", b"first", d=8)
        wanted = SubscriptionData("T", "n = 1", expression_type="SQL92", version=1)
        data = [ConsumerData("g", subscriptions=[wanted])]
        beat = encode_heartbeat(Heartbeat("c", [], data))
        assert (await pop.client.ask(RequestCode.HEART_BEAT, beat)).code == 0
        asked: dict[str, Any] = {"consumerGroup": "g", "topic": "T", "queueId": -1, "bornTime": 0}

        async def has_message() -> str:
            return (await pop.client.ask(RequestCode.NOTIFICATION, pollTime=0, **asked)).text(
                "hasMsg"
            )

        assert await has_message() == "false"  # one queue was read, and nothing in it is wanted
        for queue_id in range(8):
            await pop.send(b"no", queue_id=queue_id, i="n\x012\x02")
        read = 0
        met = MessageReader._met

        def counted(*arguments: Any) -> Any:
            nonlocal read
            read += 1
            return met(*arguments)

        monkeypatch.setattr(MessageReader, "_met", counted)
        assert (await has_message(), read) == ("true", 4)
        assert await pop.bodies() == []  # a pop finds out
        assert await has_message() == "false"
