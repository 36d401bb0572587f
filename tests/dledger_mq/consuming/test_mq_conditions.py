"""Consumers that filter by a condition, with real brokers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from dledger_mq import (
    InvalidCondition,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    RequestRefused,
    Sql,
)
from dledger_mq.consuming.subscription import group_subscriptions, matches
from remoting.bodies.message_queue import MessageQueue
from tests.dledger_mq.real_group import real_group

ENOUGH_S = 60


def test_a_condition_is_a_subscription_of_its_own_kind() -> None:
    found = group_subscriptions("g", {"T": Sql("n > 1"), "U": "a || b"}, 7)
    assert [one.expression_type for one in found.values()] == ["SQL92", "TAG", "TAG"]
    assert (found["T"].expression, found["T"].tags, found["T"].version) == ("n > 1", [], 7)
    assert matches(found["T"], ReceivedMessage(MessageQueue("T", "b", 0), 0, b"x"))


@pytest.mark.feature("F36")
async def test_only_what_meets_the_condition_comes(tmp_path: Path) -> None:
    found: list[bytes] = []

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        found.extend(message.body for message in messages)

    async def send(producer: Producer, numbers: range) -> None:
        await producer.send_many(
            [Message("T", b"%d" % n, properties={"n": str(n)}) for n in numbers], timeout_s=20
        )

    with trio.fail_after(ENOUGH_S):
        async with real_group(tmp_path) as group:
            names = [group.names]
            async with Producer("p", nameservers=names) as producer:
                await send(producer, range(1))
                wanted = {"T": Sql("n >= 10 AND n < 20 OR n > 110")}
                async with PushConsumer("g", wanted, listener, nameservers=names) as consumer:
                    await consumer.ready()
                    await send(producer, range(113))
                    while len(found) < 12:  # noqa: ASYNC110
                        await trio.sleep(0.05)
            assert set(found) == {b"%d" % n for n in (*range(10, 20), 111, 112)}
            with pytest.raises(InvalidCondition, match="in column 3") as refused:
                async with PushConsumer("h", {"T": Sql("n ?")}, listener, nameservers=names):
                    pass
            assert refused.value.topic == "T"
            async with PullConsumer("k", nameservers=names) as pulling:
                queues = await pulling.queues("T")
                pulled = [(await pulling.pull(q, 0, tags=Sql("n = 55"))).messages for q in queues]
                assert [message.body for some in pulled for message in some] == [b"55"]
                with pytest.raises(RequestRefused, match="SQL92"):
                    await pulling.pull(queues[0], 0, tags=Sql("n ="))
