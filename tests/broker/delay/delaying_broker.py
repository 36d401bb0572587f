"""A broker whose clock the test moves, so that delayed messages become due."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from broker.delay.deliveries import DELIVERIES
from broker.server import Broker
from remoting.message.record import decode_records
from remoting.wire.command import Command
from tests.broker.one_broker import START_MS, Client, Clock, running_broker, until


class Delayed:
    """A client of a broker whose clock the test moves."""

    def __init__(self, broker: Broker, client: Client, clock: Clock) -> None:
        self.broker = broker
        self.client = client
        self.clock = clock

    async def send(self, properties: str, body: bytes = b"x", topic: str = "T") -> Command:
        return await self.client.send(topic, body, i=properties)

    def at(self, at_ms: int) -> None:
        """Let it be so late, and what is due be delivered."""
        self.clock.now_ms = START_MS + at_ms
        while self.broker.parts[DELIVERIES].deliver() == 0.0:
            pass

    async def bodies(self, topic: str = "T") -> list[bytes]:
        """The messages of queue 0, when what is under way is applied."""
        deliveries = self.broker.parts[DELIVERIES]

        async def is_quiet() -> bool:
            return not deliveries._under_way

        await until(is_quiet)
        reply = await self.client.pull(topic, 0)
        return [message.body for message in decode_records(reply.body)] if reply.body else []


@asynccontextmanager
async def delaying(
    directory: Path, *, clock: Clock | None = None, **more: Any
) -> AsyncIterator[Delayed]:
    clock = clock or Clock()
    async with running_broker(directory, clock=clock, **more) as (broker, nursery):
        yield Delayed(broker, Client(nursery, str(broker.config.address)), clock)
