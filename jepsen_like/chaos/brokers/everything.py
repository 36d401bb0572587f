"""All kinds of traffic at once, each with a topic and groups of its own in one cluster.

Some kinds occur here alone: operators and producers undo things while others consume.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from dledger_mq import Admin, Message, Producer
from dledger_mq.errors import MessagingError
from jepsen_like.chaos.brokers.notes import Notes
from jepsen_like.chaos.brokers.workload import (
    Delayed,
    Messages,
    Offsets,
    Ordered,
    Popped,
    Transactional,
    Turn,
    body_of,
)
from jepsen_like.chaos.service import CallFailed
from jepsen_like.history.operation import EventType, Operation
from remoting.wire.errors import RemotingError

RECALLS = 0.5
# One producer operates, so that there is one order of operations.
OPERATOR, RESETS = 0, 0.1
# Seldom: a message that was sent before the last deletion cannot be lost.
DELETES = 0.04
DELAYS_MS = (6_000, 10_000)


class Recalled(Delayed):
    """Delayed messages, half of which are recalled at once."""

    delays_ms = DELAYS_MS

    async def send(self, producer: Producer, turn: Turn) -> tuple[EventType, int]:
        message, value = self._delayed(turn)
        sent: list[Any] = []

        async def send() -> None:
            sent.append(await producer.send(message))

        outcome, process = await self._notes.call(turn.process, "send", None, value, send)
        if not sent:
            return outcome, process
        if not turn.chance.happens(RECALLS):
            self._notes.expect(None, turn.number)
            return outcome, process
        # False: the message came before, or an attempt without an answer recalled it.
        return await self._notes.call(
            process, "recall", None, turn.number, lambda: producer.recall(sent[0])
        )


class Reset(Messages):
    """Plain messages, and an operator who moves the group back to the first one, time and again."""

    async def send(self, producer: Producer, turn: Turn) -> tuple[EventType, int]:
        if turn.place != OPERATOR or not turn.chance.happens(RESETS):
            return await super().send(producer, turn)

        async def reset() -> None:
            async with Admin(nameservers=self._nameservers) as admin:
                if not await admin.group(self._group).reset_to_first(self._topic):
                    raise CallFailed("the topic has no queue yet")

        return await self._notes.call(turn.process, "reset", None, None, reset)


class Remade(Messages):
    """Messages of which half are delayed, to a topic that is deleted and made again."""

    longest_wait_s = DELAYS_MS[1] / 1000 + 10.0

    async def send(self, producer: Producer, turn: Turn) -> tuple[EventType, int]:
        if turn.place == OPERATOR and turn.chance.happens(DELETES):
            return await self._remake(turn)
        delay_ms = turn.chance.randint(*DELAYS_MS)
        if turn.chance.happens(0.5):
            delay_ms = 0
        message = Message(self._topic, body_of(turn), delay_ms=delay_ms)
        return await self._sent(producer, turn, None, turn.number, message)

    async def _remake(self, turn: Turn) -> tuple[EventType, int]:
        async with Admin(nameservers=self._nameservers) as admin:
            outcome, process = await self._notes.call(
                turn.process, "delete", None, None, lambda: admin.delete_topic(self._topic)
            )
            if outcome is not EventType.FAIL:
                self._notes.expect_nothing(None)
            with suppress(MessagingError, RemotingError):  # else the next send makes it
                await admin.create_topic(self._topic)
        return outcome, process


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


class Parts(Messages):
    """Each turn of a producer is one of a part, and each consumer belongs to the group of each."""

    def __init__(
        self, notes: Notes, nameservers: Sequence[str], parts: Mapping[str, Messages]
    ) -> None:
        super().__init__(notes, nameservers)
        self._parts = parts

    def go_on(self, operations: Sequence[Operation]) -> None:
        for part in self._parts.values():
            part.go_on(operations)

    @asynccontextmanager
    async def producer(self) -> AsyncIterator[Mapping[str, Any]]:
        async with AsyncExitStack() as stack:
            yield {
                name: await stack.enter_async_context(part.producer())
                for name, part in self._parts.items()
            }

    async def send(self, producer: Any, turn: Turn) -> tuple[EventType, int]:
        name = turn.chance.choice(list(self._parts))
        return await self._parts[name].send(producer[name], turn)

    @asynccontextmanager
    async def consumer(self, process: int) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for part in self._parts.values():
                await stack.enter_async_context(part.consumer(process))
            yield

    async def is_drained(self, admin: Admin) -> bool:
        for part in self._parts.values():
            if not await part.is_drained(admin):
                return False
        return True

    def note_end(self, consumers: int, producers: int) -> None:
        for part in self._parts.values():
            part.note_end(consumers, producers)


class Everything(Parts):
    longest_wait_s = max(part.longest_wait_s for part in PARTS.values())

    def __init__(self, notes: Notes, nameservers: Sequence[str]) -> None:
        parts = {
            name: part(notes.of_part(name), nameservers, f"chaos-{name}")
            for name, part in PARTS.items()
        }
        super().__init__(notes, nameservers, parts)
