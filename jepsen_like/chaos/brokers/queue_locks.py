"""The workload of locks of queues, as ordered consumers ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, NamedTuple

from dledger_mq import Admin, Client, MessageQueue
from dledger_mq.connection import requests
from dledger_mq.connection.calls import call_master
from dledger_mq.errors import MessagingError
from jepsen_like.chaos.brokers.notes import Notes
from jepsen_like.chaos.brokers.workload import TOPIC, Messages, Turn
from jepsen_like.chaos.service import CallFailed
from jepsen_like.history.operation import EventType, Operation
from remoting.bodies.consumer_group import decode_locked_queues
from remoting.wire.command import Command
from remoting.wire.errors import RemotingError

# How long each lock is used: short histories are quickly checked, and a lock is left whose holder
# is not known.
LOCK_PERIOD_NS = 10_000_000_000
# Longer than an election: others ask meanwhile, and may ask a new leader.
LONGEST_HOLD_S = 4.0
NS_A_S = 1_000_000_000
# Brokers give a lock to another client 60 s after they gave it: no holder claims it so long.
HELD_AT_MOST_NS = 20_000_000_000


class _Held(NamedTuple):
    """A lock: by what name it was asked for and when, and when it is to be given back."""

    group: str
    client_id: str
    since_ns: int
    until_ns: int


class QueueLocks(Messages):
    """Each producer asks for the lock of a queue, gives it back some time later, and so on.

    A lock is that of one queue and a group; groups follow one another. Requests are repeated, and a
    late one may arrive when its lock has been given back. So each acquisition has a client id of
    its own: the late request then blocks the lock for a while, and frees it for no client.
    """

    def __init__(self, notes: Notes, nameservers: Sequence[str]) -> None:
        super().__init__(notes, nameservers)
        self._queue: MessageQueue | None = None
        self._held: dict[int, _Held] = {}

    def go_on(self, operations: Sequence[Operation]) -> None:
        """Leave the releases of the locks open: each is free at the latest when it expires."""
        held = {one.process: one for one in operations if one.ok and one.function == "acquire"}
        for one in operations:
            if one.function == "release" and not one.failed:
                held.pop(one.process, None)
        for process, one in held.items():
            self._notes.leave_unknown(process, "release", one.key, None)

    def producer(self) -> AbstractAsyncContextManager[Any]:
        return Client(self._nameservers)

    async def send(self, producer: Any, turn: Turn) -> tuple[EventType, int]:
        if self._queue is None:
            self._queue = await self._found(producer)
        if self._queue is None:
            return EventType.FAIL, turn.process
        held = self._held.get(turn.place)
        if held is not None:
            if turn.now_ns < held.until_ns:
                return EventType.OK, turn.process
            return await self._give_back(producer, turn, held)
        group = f"lockers-{turn.now_ns // LOCK_PERIOD_NS}"
        until_ns = turn.now_ns + round(turn.chance.uniform(0.0, LONGEST_HOLD_S) * NS_A_S)
        asked = _Held(group, f"{turn.process}-{turn.number}", turn.now_ns, until_ns)

        async def acquire() -> None:
            if not await self.lock(producer, asked.group, asked.client_id):
                raise CallFailed("another client holds the lock")

        outcome, process = await self._notes.call(turn.process, "acquire", group, None, acquire)
        if outcome is EventType.OK:
            self._held[turn.place] = asked
        return outcome, process

    async def _give_back(self, client: Any, turn: Turn, held: _Held) -> tuple[EventType, int]:
        if turn.now_ns - held.since_ns > HELD_AT_MOST_NS:
            del self._held[turn.place]
            process = self._notes.leave_unknown(turn.process, "release", held.group, None)
            return EventType.INFO, process
        outcome, process = await self._notes.call(
            turn.process,
            "release",
            held.group,
            None,
            lambda: self.unlock(client, held.group, held.client_id),
        )
        if outcome is not EventType.FAIL:
            del self._held[turn.place]
        return outcome, process

    async def lock(self, client: Any, group: str, client_id: str) -> bool:
        """Return whether a client got the lock of a group. Raises MessagingError, RemotingError."""
        assert self._queue is not None
        reply = await self._ask(client, requests.lock_queues(group, client_id, [self._queue]))
        return self._queue in decode_locked_queues(reply.body)

    async def unlock(self, client: Any, group: str, client_id: str) -> None:
        assert self._queue is not None
        await self._ask(client, requests.unlock_queues(group, client_id, [self._queue]))

    async def _ask(self, client: Client, command: Command) -> Command:
        assert self._queue is not None
        return await call_master(client, self._queue, command, "change a lock")

    async def _found(self, client: Client) -> MessageQueue | None:
        """Return a queue of the topic; None while it cannot be made."""
        try:
            async with Admin(nameservers=self._nameservers) as admin:
                await admin.create_topic(TOPIC, queues=1)
            return (await client.routes.find(TOPIC)).read_queues[0]
        except (MessagingError, RemotingError):
            return None

    def consumer(self, process: int) -> AbstractAsyncContextManager[Any]:
        return nullcontext()

    async def is_drained(self, admin: Admin) -> bool:
        return True

    def note_end(self, consumers: int, producers: int) -> None: ...
