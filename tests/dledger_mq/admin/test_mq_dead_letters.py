"""Dead letters that an operator has delivered once more."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from dledger_mq import (
    ConsumeFrom,
    InvalidMessage,
    Message,
    NoDeadLetters,
    Producer,
    PushConsumer,
    PushOptions,
    ReceivedMessage,
    Redriven,
    RequestRefused,
    RouteNotFound,
)
from dledger_mq.admin import dead_letters as dead_letters_module
from remoting.wire.codes import RequestCode, ResponseCode
from tests.dledger_mq.real_group import RealGroup, real_group


async def fail(group: RealGroup, count: int) -> list[str]:
    """Have messages become dead letters at the first failure; their ids."""
    died = trio.Event()
    given: set[bytes] = set()

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        given.update(message.body for message in messages)
        if len(given) == count:
            died.set()
        raise ValueError("it cannot be done")

    ids = []
    async with Producer("p", client=group.client) as producer:
        for number in range(count):
            sent = await producer.send(Message("Orders", b"%d" % number))
            ids.append(sent.message_id)
    options = PushOptions(max_reconsume_times=0)
    consumer = PushConsumer(
        "billing",
        "Orders",
        listener,
        client=group.client,
        consume_from=ConsumeFrom.FIRST,
        options=options,
    )
    async with consumer:
        with trio.fail_after(20):
            await died.wait()
            while True:
                try:
                    rows = await group.admin.progress("%DLQ%billing")
                except RouteNotFound:
                    rows = []
                if sum(row.next_offset for row in rows) == count:
                    return ids
                await trio.sleep(0.05)


async def test_dead_letters_are_consumed_once_more(tmp_path: Path) -> None:
    async with real_group(tmp_path) as group:
        ids = await fail(group, 5)
        seen: list[Redriven] = []
        dry = await group.admin.redrive("billing", dry_run=True, on_progress=seen.append)
        assert dry == Redriven(redriven=5)
        assert seen[-1] == dry
        assert await group.admin.redrive("billing", ids=[ids[3]]) == Redriven(1, 0, 4)
        assert await group.admin.redrive("billing", end_ms=5) == Redriven(0, 0, 5)
        assert (await group.admin.redrive("billing", most=2)).redriven == 2
        ended = await group.command("redrive", "billing", "--since", "2020-01-01")
        assert ended.output == (
            "2 dead letters of billing were delivered once more; 3 were before, 0 were not asked "
            "for, 0 have no topic to go to\n"
        )
        assert (await group.rows("redrive", "billing"))[0]["taken"] == 5
        got: list[tuple[str, bytes]] = []
        all_came = trio.Event()

        async def listener(messages: Sequence[ReceivedMessage]) -> None:
            got.extend((message.topic, message.body) for message in messages)
            if len(got) >= 5:
                all_came.set()

        async with PushConsumer("billing", "Orders", listener, client=group.client):
            with trio.fail_after(20):
                await all_came.wait()
        assert sorted(got) == [("Orders", b"%d" % number) for number in range(5)]


async def test_what_cannot_be_is_told_in_a_line(tmp_path: Path) -> None:
    async with real_group(tmp_path) as group:
        with pytest.raises(RouteNotFound):
            await group.admin.redrive("nobody")
        with pytest.raises(NoDeadLetters, match="group 'nobody' has no dead letters"):
            await group.admin.redrive("nobody")
        with pytest.raises(InvalidMessage, match="at most 1000"):
            await group.admin.redrive("billing", ids=["x"] * 1001)
        ended = await group.command("redrive", "nobody")
        assert ended.exit_code == 1
        assert len(ended.stderr.splitlines()) == 1
        assert "create" not in ended.stderr


async def test_a_topic_is_said_to_be_removed_only_if_it_was_there(tmp_path: Path) -> None:
    async with real_group(tmp_path) as group:
        await group.admin.create_topic("Orders", queues=1)
        for topic, code in (("Orders", 0), ("Orders", 1), ("NoSuch", 1)):
            ended = await group.command("topic", "delete", topic)
            assert (ended.exit_code, ended.stdout != "") == (code, code == 0), ended.output
            assert code == 0 or f"no topic '{topic}' was there" in ended.stderr


async def test_a_batch_of_unknown_outcome_is_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters_module, "_MAX_UNKNOWN", 2)
    async with real_group(tmp_path) as group:
        await fail(group, 2)
        handlers = group.broker.requests._handlers
        handler = handlers[RequestCode.REDRIVE_DEAD_LETTERS]
        refusals = [ResponseCode.SYSTEM_ERROR]

        def answer(origin, command):  # type: ignore[no-untyped-def]
            reply = handler.answer(origin, command)
            return command.reply(refusals.pop(), remark="lost") if refusals else reply

        handlers[RequestCode.REDRIVE_DEAD_LETTERS] = replace(handler, answer=answer)
        assert await group.admin.redrive("billing") == Redriven(0, 2)
        refusals += [ResponseCode.SYSTEM_ERROR] * 3
        with pytest.raises(RequestRefused, match="lost"):
            await group.admin.redrive("billing")
