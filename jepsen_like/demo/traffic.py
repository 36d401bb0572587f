"""Sends numbered messages at full speed while a group of two consumers reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import trio

from dledger_mq import (
    ConsumeFrom,
    ConsumeResult,
    Message,
    Producer,
    PushConsumer,
    PushOptions,
    ReceivedMessage,
    SendResult,
)
from dledger_mq.sending.sending import SendCallback, SendOutcome

TOPIC = "DemoTopic"
GROUP = "demo-readers"
BODY_BYTES = 256

# Enough to keep a broker busy between two of its syncs.
IN_FLIGHT = 512

# A send is retried for longer than an election, which takes a second and a half.
SEND_TIMEOUT_S = 30.0


@dataclass(slots=True)
class Tally:
    """What was sent, acknowledged and consumed; keys are the messages' numbers."""

    sent: int = 0
    acknowledged: set[str] = field(default_factory=set)
    acknowledged_at: list[float] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    consumed: Counter[str] = field(default_factory=Counter)

    @property
    def lost(self) -> int:
        return len(self.acknowledged - self.consumed.keys())

    @property
    def duplicated(self) -> int:
        """Deliveries beyond the first of each message."""
        return self.consumed.total() - len(self.consumed)

    def failover_ms(self, killed_at: float) -> int:
        """Return the time from the kill to the first acknowledgement after the silence it
        caused.
        """
        moments = [killed_at, *(at for at in self.acknowledged_at if at >= killed_at)]
        gaps = [(later - earlier, later) for earlier, later in pairwise(moments)]
        return round((max(gaps)[1] - killed_at) * 1000) if gaps else -1


async def send(nameserver: str, count: int, tally: Tally, killed: trio.Event) -> None:
    """Send `count` messages as fast as the window lets them go, the last ones after the kill."""
    room = trio.CapacityLimiter(IN_FLIGHT)
    async with Producer(
        "demo-senders",
        nameservers=[nameserver],
        timeout_s=SEND_TIMEOUT_S,
        max_in_flight=2 * IN_FLIGHT,
    ) as producer:
        for number in range(count):
            if number == count * 3 // 4:
                await killed.wait()  # which was long ago unless the run is short
            key = f"demo-{number}"
            await room.acquire_on_behalf_of(key)
            message = Message(TOPIC, key.encode().ljust(BODY_BYTES, b"."), tags="demo", keys=key)
            tally.sent += 1
            producer.send_nowait(message, _noting(key, tally, room))


def _noting(key: str, tally: Tally, room: trio.CapacityLimiter) -> SendCallback:
    def note(outcome: SendOutcome) -> None:
        room.release_on_behalf_of(key)
        if isinstance(outcome, SendResult):
            tally.acknowledged.add(key)
            tally.acknowledged_at.append(trio.current_time())
        else:
            tally.failed[key] = str(outcome)

    return note


@asynccontextmanager
async def two_readers(nameserver: str, tally: Tally) -> AsyncIterator[None]:
    """Run two members of one consumer group, each with connections of its own, during a block."""

    async def listen(messages: Sequence[ReceivedMessage]) -> ConsumeResult:
        for message in messages:
            tally.consumed[message.keys] += 1
        return ConsumeResult.SUCCESS

    async with AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(
                PushConsumer(
                    GROUP,
                    TOPIC,
                    listen,
                    nameservers=[nameserver],
                    consume_from=ConsumeFrom.FIRST,
                    options=PushOptions(batch_size=32),
                )
            )
        yield
