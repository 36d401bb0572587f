"""The workload `messages` with clients of C++."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import trio

from dledger_mq.errors import OutcomeUnknown
from jepsen_like.chaos.brokers.cpp.process import CppEnded, CppProcess, Role, cpp_process
from jepsen_like.chaos.brokers.made_topic import MadeTopic
from jepsen_like.chaos.brokers.notes import Notes
from jepsen_like.chaos.brokers.workload import GROUP, TOPIC, WRITERS, Messages, Turn, body_of
from jepsen_like.chaos.service import CallFailed
from jepsen_like.history.operation import EventType

# It tries three times, 3 s each, and asks for routes in between.
SEND_TIMEOUT_S: Final = 60.0
# Consumers commit, and wait for their threads.
LEAVE_TIMEOUT_S: Final = 10.0


class CppMessages(Messages):
    """Plain messages of producers and push consumers of C++, which write their logs in `home`."""

    # A consumer that was connected to an earlier leader finds the next one when it asks for routes
    # and when its last pull has timed out, each up to 30 s later.
    longest_wait_s = 75.0

    def __init__(self, notes: Notes, nameservers: Sequence[str], home: Path) -> None:
        super().__init__(notes, nameservers)
        self._home = home
        self._topic_once = MadeTopic(nameservers, TOPIC)

    @asynccontextmanager
    async def producer(self) -> AsyncIterator[CppProcess]:
        async with self._process("produce", WRITERS) as process:
            yield process

    async def send(self, producer: Any, turn: Turn) -> tuple[EventType, int]:
        number = turn.number

        async def make() -> None:
            await producer.say(send=body_of(turn).decode())
            said = await producer.hear_within(SEND_TIMEOUT_S)
            if said["outcome"] == "fail":
                raise CallFailed(said["error"])
            if said["outcome"] != "ok":
                raise OutcomeUnknown(TOPIC, said["error"], 1)

        outcome, process = await self._notes.call(turn.process, "send", None, number, make)
        if outcome is EventType.OK:
            self._notes.expect(None, number)
        return outcome, process

    @asynccontextmanager
    async def consumer(self, process: int) -> AsyncIterator[None]:
        """Run a consumer. A noted message counts as consumed, whichever process is killed."""
        async with self._process("consume", GROUP) as client, trio.open_nursery() as nursery:
            listening = _Listening(
                client, lambda number: self._notes.receive(process, None, [number])
            )
            nursery.start_soon(listening.run)
            yield
            await listening.leave()
            nursery.cancel_scope.cancel()

    @asynccontextmanager
    async def _process(self, role: Role, group: str) -> AsyncIterator[CppProcess]:
        await self._topic_once.made()
        (nameserver,) = self._nameservers
        async with cpp_process(role, nameserver, TOPIC, group, self._home) as process:
            yield process


class _Listening:
    def __init__(self, process: CppProcess, noted: Callable[[int], None]) -> None:
        self._process = process
        self._noted = noted
        self._leaves = False
        self._has_left = trio.Event()

    async def run(self) -> None:
        """Note messages until the consumer has left. Raises CppEnded if it ends before."""
        try:
            while True:
                said = await self._process.hear()
                self._noted(int(said["took"]))
                await self._process.say(noted=True)
        except CppEnded:
            if not self._leaves:
                raise
        self._has_left.set()

    async def leave(self) -> None:
        """Have the consumer leave its group, and wait some time for that."""
        self._leaves = True
        await self._process.say(leave=True)
        with trio.move_on_after(LEAVE_TIMEOUT_S):
            await self._has_left.wait()
