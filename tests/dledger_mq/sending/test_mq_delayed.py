"""Delayed messages of the client."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from dledger_mq import InvalidMessage, Message, Producer, PullConsumer, PullStatus
from tests.dledger_mq.real_group import real_group, wall_clock_ms

ENOUGH_S = 60
TOPIC = "Later"


async def stored(nameservers: Sequence[str], wanted: int) -> list[bytes]:
    """The bodies in the topic's queues, once there are as many as wanted."""
    async with PullConsumer("readers", nameservers=nameservers) as consumer:
        while True:
            bodies = []
            for queue in await consumer.queues(TOPIC):
                offset = 0
                while True:
                    result = await consumer.pull(queue, offset)
                    if result.status is not PullStatus.FOUND:
                        break
                    bodies += [message.body for message in result.messages]
                    offset = result.next_offset
            if len(bodies) >= wanted:
                return bodies
            await trio.sleep(0.1)


async def test_a_message_comes_later_unless_it_is_recalled(tmp_path: Path) -> None:
    with trio.fail_after(ENOUGH_S):
        async with (
            real_group(tmp_path, clock=wall_clock_ms) as group,
            Producer("w", nameservers=[group.names]) as one,
        ):
            now = await one.send(Message(TOPIC, b"now"), timeout_s=20)
            later = await one.send(Message(TOPIC, b"later", delay_ms=1500))
            never = await one.send(Message(TOPIC, b"never", delay_ms=1000))
            assert await one.recall(never)
            assert not await one.recall(never)
            assert await stored([group.names], 1) == [b"now"]
            assert sorted(await stored([group.names], 2)) == [b"later", b"now"]
            assert not await one.recall(later)
            with pytest.raises(InvalidMessage, match="no handle"):
                await one.recall(now)
