"""All kinds of traffic at once, each with a topic and groups of its own in one cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from dledger_mq import Admin
from jepsen_like.chaos.brokers.notes import Notes
from jepsen_like.chaos.brokers.operated import Recalled, Remade, Reset
from jepsen_like.chaos.brokers.workload import (
    Delayed,
    Messages,
    Offsets,
    Ordered,
    Popped,
    Transactional,
    Turn,
)
from jepsen_like.history.operation import EventType

PARTS: Mapping[str, type[Messages]] = {
    "messages": Messages,
    "ordered": Ordered,
    "delay": Delayed,
    "transaction": Transactional,
    "pop": Popped,
    "offset": Offsets,
    "recall": Recalled,
    "reset": Reset,
    "remade": Remade,
}


class Everything(Messages):
    """Each turn of a producer is one of a part, and each consumer belongs to the group of each."""

    longest_wait_s = max(part.longest_wait_s for part in PARTS.values())

    def __init__(self, notes: Notes, nameservers: Sequence[str]) -> None:
        super().__init__(notes, nameservers)
        self._parts = {
            name: part(notes.of_part(name), nameservers, f"chaos-{name}")
            for name, part in PARTS.items()
        }

    @asynccontextmanager
    async def producer(self) -> AsyncIterator[Mapping[str, Any]]:
        """See Messages. One of each part."""
        async with AsyncExitStack() as stack:
            yield {
                name: await stack.enter_async_context(part.producer())
                for name, part in self._parts.items()
            }

    async def send(self, producer: Any, turn: Turn) -> tuple[EventType, int]:
        """See Messages."""
        name = turn.chance.choice(list(self._parts))
        return await self._parts[name].send(producer[name], turn)

    @asynccontextmanager
    async def consumer(self, process: int) -> AsyncIterator[None]:
        """See Messages. One of each part."""
        async with AsyncExitStack() as stack:
            for part in self._parts.values():
                await stack.enter_async_context(part.consumer(process))
            yield

    async def is_drained(self, admin: Admin) -> bool:
        """See Messages."""
        for part in self._parts.values():
            if not await part.is_drained(admin):
                return False
        return True

    def note_end(self, consumers: int, producers: int) -> None:
        """See Messages."""
        for part in self._parts.values():
            part.note_end(consumers, producers)
