"""Transactions of the client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from dledger_mq import (
    InvalidListener,
    Message,
    NoTransactionCheck,
    Producer,
    PullConsumer,
    PullStatus,
    ReceivedMessage,
    TransactionRefused,
    TransactionState,
)
from tests.dledger_mq.real_group import real_group, wall_clock_ms

ENOUGH_S = 60
TOPIC = "Paid"


async def visible(nameservers: Sequence[str], topic: str = TOPIC) -> list[bytes]:
    """The bodies that consumers see."""
    bodies = []
    async with PullConsumer("readers", nameservers=nameservers) as consumer:
        for queue in await consumer.queues(topic):
            offset = 0
            while True:
                result = await consumer.pull(queue, offset)
                if result.status is not PullStatus.FOUND:
                    break
                bodies += [message.body for message in result.messages]
                offset = result.next_offset
    return sorted(bodies)


async def never_asked(_message: ReceivedMessage) -> TransactionState:
    raise AssertionError("asked")


def test_a_check_that_cannot_be_awaited_is_refused() -> None:
    with pytest.raises(InvalidListener, match="no coroutine function"):
        Producer("p", nameservers=["h:1"], check=lambda_like)  # type: ignore[arg-type]


def lambda_like(_message: ReceivedMessage) -> TransactionState:
    return TransactionState.COMMIT


async def test_a_block_commits_its_message_and_an_error_rolls_it_back(tmp_path: Path) -> None:
    with trio.fail_after(ENOUGH_S):
        async with (
            real_group(tmp_path) as group,
            Producer("p", nameservers=[group.names], check=never_asked) as producer,
        ):
            async with producer.transaction(Message(TOPIC, b"1"), timeout_s=20) as one:
                assert await visible([group.names]) == []
                assert one.id == one.result.message_id
            assert await visible([group.names]) == [b"1"]
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction(Message(TOPIC, b"2")) as two:
                    raise ZeroDivisionError
            assert two.state is TransactionState.ROLLBACK
            async with producer.transaction(Message(TOPIC, b"3" * 10_000)) as three:
                assert await three.commit()
                assert await three.commit()
                with pytest.raises(TransactionRefused, match="was committed before"):
                    await three.roll_back()
            assert await visible([group.names]) == [b"1", b"3" * 10_000]
            with pytest.raises(TransactionRefused, match="rolled back before"):
                await two.commit()
            async with Producer("q", nameservers=[group.names]) as plain:
                with pytest.raises(NoTransactionCheck, match="check=") as error:
                    await plain.begin_transaction(Message(TOPIC, b"x"))
        assert error.value.group == "q"


@pytest.mark.feature("F42")
async def test_another_producer_of_the_group_is_asked_for_one_that_died(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    asked: Counter[bytes] = Counter()

    async def check(message: ReceivedMessage) -> TransactionState:
        asked[message.body] += 1
        assert (message.topic, message.properties["PGROUP"]) == (TOPIC, "p")
        if message.body == b"fails":
            raise RuntimeError("the database is away")
        if message.body == b"odd":
            return True  # type: ignore[return-value]
        return TransactionState[message.body.decode()]

    bodies = [b"COMMIT", b"ROLLBACK", b"UNKNOWN", b"fails", b"odd"]
    with trio.fail_after(ENOUGH_S):
        async with real_group(tmp_path, clock=wall_clock_ms) as group:
            names = [group.names]
            async with Producer("p", nameservers=names, check=never_asked) as dying:
                with trio.CancelScope() as scope:
                    for body in bodies[1:]:
                        one = await dying.begin_transaction(Message(TOPIC, body), timeout_s=20)
                        one.leave_open()
                    async with dying.transaction(Message(TOPIC, bodies[0])):
                        scope.cancel()
                        await trio.sleep_forever()
            async with Producer("p", nameservers=names, check=check) as other:
                await other.send(Message(TOPIC, b"makes it known"))
                while len(asked) < len(bodies):  # noqa: ASYNC110
                    await trio.sleep(0.1)
                while b"COMMIT" not in (found := await visible(names)):  # noqa: ASYNC110
                    await trio.sleep(0.1)
    assert found == [b"COMMIT", b"makes it known"]
    assert "the database is away" in caplog.text
    assert "it returned True" in caplog.text
