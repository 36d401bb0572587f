"""POP: fair turns over queues, wake-ups, changes between pulling and popping, refusals."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from broker.pop import choice, crowding
from broker.pop.popping import Popping
from broker.pop.state import QueueKey
from remoting.bodies.heartbeat import ConsumerData, Heartbeat, SubscriptionData, encode_heartbeat
from remoting.message.tags import tags_code
from remoting.wire.codes import RequestCode, ResponseCode
from tests.broker.one_broker import until
from tests.broker.pop.popping_broker import PopClient, popping, shown
from tests.broker.pop.test_broker_pop import until_waiting

IN_ORDER: dict[str, Any] = {"order": "true", "queueId": 0, "invisibleTime": 5000}


async def test_groups_that_pop_in_turn_all_get_every_queue(tmp_path: Path) -> None:
    async with popping(tmp_path) as pop:
        for queue_id in range(4):
            await pop.send(*[b"%d" % queue_id] * 8, queue_id=queue_id)
        seen: dict[str, set[bytes]] = {"g": set(), "h": set(), "i": set(), "k": set()}
        for _ in range(4):
            for group, bodies in seen.items():
                bodies.update(await pop.bodies(consumerGroup=group, maxMsgNums=1))
        assert [len(bodies) for bodies in seen.values()] == [4, 4, 4, 4]


@pytest.mark.parametrize(
    ("attributes", "more", "first"),
    [
        ({}, {}, [3, 3, 2, 1, 0]),
        ({"+priority.factor": "0"}, {}, [0, 1, 2, 3, 3]),
        ({"+priority.factor": "50"}, {}, [0, 3, 2, 3, 1]),
        ({}, {"order": "true"}, [0, 1, 2, 3]),
        ({}, {"queueId": 1}, [1]),
    ],
)
async def test_pops_begin_with_the_highest_priority_as_often_as_the_group_says(
    tmp_path: Path, attributes: dict[str, str], more: dict[str, Any], first: list[int]
) -> None:
    async with popping(tmp_path) as pop:
        fields: dict[str, Any] = {"topic": "T", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
        made = await pop.client.ask(17, **fields, attributes="+message.type=PRIORITY")
        assert made.code == 0
        group = json.dumps({"groupName": "g", "attributes": attributes}).encode()
        assert (await pop.client.ask(200, group)).code == 0
        for queue_id in (0, 1, 2, 3, 3):
            await pop.send(b"", queue_id=queue_id)
        fields = {"maxMsgNums": 1, **more}
        seen = [await pop.pop(**fields) for _ in first]
        assert [one.record.queue_id for (one,) in seen] == first


async def test_a_group_pops_from_where_it_has_pulled_meanwhile(tmp_path: Path) -> None:
    async with popping(tmp_path) as pop:
        await pop.send(*[b"%d" % number for number in range(6)])
        out = await pop.pop(maxMsgNums=2)
        await pop.ack(out[0])
        await commit(pop, 4)  # it has pulled from 1 on
        assert await pop.bodies(maxMsgNums=1) == [b"4"]
        assert (await pop.ack(out[1])).code == 0
        pop.at(1000)
        assert [*await pop.bodies(), *await pop.bodies()] == [b"4", b"5"]


async def test_a_commit_that_comes_late_does_not_repeat_what_was_acknowledged(
    tmp_path: Path,
) -> None:
    async with popping(tmp_path) as pop:
        await pop.send(*[b"%d" % number for number in range(4)])
        for message in await pop.pop(maxMsgNums=3):
            await pop.ack(message)
        await commit(pop, 1)
        assert await pop.bodies() == [b"3"]


async def test_a_commit_behind_the_end_makes_no_endless_run_of_entries(tmp_path: Path) -> None:
    async with popping(tmp_path) as pop:
        await pop.send(b"0")
        (zero,) = await pop.pop()
        await pop.ack(zero)
        await commit(pop, 1 << 40)
        assert await pop.bodies() == []
        assert await pop.committed() == 1
        await pop.send(b"1")
        assert await pop.bodies() == [b"1"]


async def test_a_pop_in_order_wakes_when_the_last_of_its_messages_is_due(tmp_path: Path) -> None:
    async with popping(tmp_path) as pop, trio.open_nursery() as nursery:
        await pop.send(b"0", b"1", b"2")
        first = await pop.pop(maxMsgNums=2, **IN_ORDER)
        await pop.hide(first[1], 9000)
        others = {"consumerGroup": "h", "invisibleTime": 5000, "maxMsgNums": 1, "queueId": 0}
        await pop.pop(**{**others, "maxMsgNums": 3})
        got: list[bytes] = []
        got_by_others: list[bytes] = []

        async def wait(got: list[bytes], **more: Any) -> None:
            got.extend(await pop.bodies(pollTime=15_000, **more))

        nursery.start_soon(partial(wait, got, **IN_ORDER))
        await until_waiting(pop, 1)
        nursery.start_soon(partial(wait, got_by_others, **others))
        pop.at(6)  # one of them is due, and waits for the other
        await until(lambda: _is(got_by_others == [b"0"]))
        assert got == []
        pop.at(9.1)
        await until(lambda: _is(got == [b"0", b"1", b"2"]))


async def test_a_pop_wakes_for_one_message_after_the_other(tmp_path: Path) -> None:
    async with popping(tmp_path) as pop, trio.open_nursery() as nursery:
        await pop.send(b"0", b"1", b"2")
        out = await pop.pop(invisibleTime=5000)
        assert await pop.bodies() == []
        await pop.ack(out[0])  # the time at which the broker would have looked again
        await pop.hide(out[1], 7000)
        await pop.hide(out[2], 9000)
        got: list[bytes] = []

        async def wait() -> None:
            while len(got) < 2:
                got.extend(await pop.bodies(pollTime=15_000, queueId=0))

        nursery.start_soon(wait)
        for at_s, expected in ((5.1, []), (7.1, [b"1"]), (9.1, [b"1", b"2"])):
            await until_waiting(pop, 1)
            pop.at(at_s)
            await until(lambda expected=expected: _is(got == expected))  # type: ignore[misc]


async def test_a_question_that_waits_keeps_no_pop_from_going_on(tmp_path: Path) -> None:
    async with popping(tmp_path) as pop, trio.open_nursery() as nursery:
        await pop.send(b"0")
        wanted = SubscriptionData("T", "mine", tags=["mine"], codes=[tags_code("mine")])
        data = ConsumerData("g", subscriptions=[wanted])
        await pop.client.ask(34, encode_heartbeat(Heartbeat("c", [], [data])))
        assert await pop.bodies() == []
        asked: dict[str, Any] = {
            **{"consumerGroup": "g", "topic": "T"},
            **{"queueId": -1, "bornTime": 0},
        }

        async def ask() -> None:
            await pop.client.ask(RequestCode.NOTIFICATION, pollTime=15_000, **asked)

        async def wait() -> None:
            await pop.ask(pollTime=15_000)

        nursery.start_soon(ask)
        await until_waiting(pop, 1)
        nursery.start_soon(wait)
        await until_waiting(pop, 2)
        await pop.send(b"not mine")

        async def has_gone_on() -> bool:
            return await pop.committed() == 2

        await until(has_gone_on)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"topic": "U"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": 4}, ResponseCode.MESSAGE_ILLEGAL),
        ({"queueId": -1}, ResponseCode.MESSAGE_ILLEGAL),
        ({"offset": 1}, ResponseCode.NO_MESSAGE),
        ({"offset": -1}, ResponseCode.NO_MESSAGE),
        ({"consumerGroup": "other"}, ResponseCode.SUCCESS),
    ],
)
async def test_acknowledging_what_cannot_have_been_given_is_refused(
    tmp_path: Path, changed: dict[str, Any], code: int
) -> None:
    async with popping(tmp_path) as pop:
        await pop.send(b"0")
        (zero,) = await pop.pop()
        assert (await pop.ack(zero, **changed)).code == code
        assert (await pop.ack(zero)).code == 0


async def test_a_refusal_to_hide_has_the_fields_that_javas_client_reads(tmp_path: Path) -> None:
    async with popping(tmp_path) as pop:
        await pop.send(b"0")
        (zero,) = await pop.pop()
        await pop.ack(zero)
        reply = await pop.client.ask(
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME, **shown(zero), invisibleTime=5
        )
        assert reply.code == ResponseCode.NO_MESSAGE
        assert [reply.text(name) for name in ("popTime", "invisibleTime", "reviveQid")] == ["0"] * 3


async def test_what_retention_drops_before_the_answer_is_not_named_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = Popping._records

    def without_the_first(self: Popping, key: QueueKey, offsets: Sequence[int]) -> Iterator[bytes]:
        for offset, record in zip(offsets, records(self, key, list(offsets)), strict=True):
            yield b"" if offset == 0 else record

    monkeypatch.setattr(Popping, "_records", without_the_first)
    async with popping(tmp_path) as pop:
        await pop.send(b"0", b"1")
        assert await pop.bodies() == [b"1"]
        pop.at(100)
        reply = await pop.ask(maxMsgNums=1)
        assert (reply.code, reply.text("restNum")) == (ResponseCode.POLLING_TIMEOUT, "0")


async def test_a_group_is_told_when_too_many_queues_are_popped_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "MAX_QUEUES", 4)
    async with popping(tmp_path) as pop:
        await pop.send(b"0")
        for queue_id in range(4):
            await pop.ask(queueId=queue_id, initMode=1)
        reply = await pop.ask(consumerGroup="h")
        assert reply.code == ResponseCode.SYSTEM_BUSY
        assert "delete groups" in str(reply.remark)
        await pop.send(b"1")
        assert await pop.bodies() == [b"1"]


async def test_the_log_says_why_nothing_is_given_when_too_much_is_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for module in (choice, crowding):
        monkeypatch.setattr(module, "MAX_IN_FLIGHT", 2)
    async with popping(tmp_path) as pop:
        await pop.send(b"0", b"1", b"2")
        assert len(await pop.pop()) == 2
        with caplog.at_level(logging.WARNING, "broker.pop"):
            assert (await pop.ask(pollTime=600)).code == ResponseCode.POLLING_TIMEOUT
        assert [one.levelname for one in caplog.records] == ["WARNING"]
        assert "do not acknowledge" in caplog.text


async def commit(pop: PopClient, offset: int) -> None:
    fields = {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": offset}
    assert (await pop.client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **fields)).code == 0  # type: ignore[arg-type]


async def _is(value: bool) -> bool:
    return value
