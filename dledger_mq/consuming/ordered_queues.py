"""Keeps the queues of an ordered consumer locked at their leaders (41), and gives them up (42)."""

import logging
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

import trio

from dledger.wake_up import WakeUp
from dledger_mq.connection import requests
from dledger_mq.connection.calls import call_master, pause_s
from dledger_mq.connection.client import Client
from dledger_mq.consuming.own_locks import OwnLocks
from dledger_mq.errors import MessagingError
from remoting.bodies.consumer_group import decode_locked_queues
from remoting.bodies.message_queue import MessageQueue
from remoting.net.starts_tasks import StartsTasks
from remoting.wire.command import Command
from remoting.wire.errors import RemotingError

_log = logging.getLogger(__name__)

# A leader answers within milliseconds, once its followers have the entry. One that takes longer may
# be frozen: ask a name server for another, in the next turn.
LOCK_ATTEMPT_S: Final = 1.0

# How long the end of a consumer waits for a leader to take the locks back. A leader that is frozen
# costs one attempt, and the election of another about a second. The others of the group would wait
# for the locks to expire, 60 s.
LEAVE_S: Final = 5.0

# What one request names at most; brokers of this project take ten times as many.
_MOST_QUEUES: Final = 1000


@dataclass(slots=True)
class _BrokerLocks:
    """The locks at one group of brokers, and their task's wake-up call."""

    locks: OwnLocks = field(default_factory=OwnLocks)
    changed: WakeUp = field(default_factory=WakeUp)


class OrderedQueues:
    """Holds queues for one consumer, so that no other member of its group reads them meanwhile.

    Args:
        client: whose connections and routes to use.
        group: the consumer group.
        nursery: runs one task for each group of brokers.
        on_gained: called with a queue that is held from now on.
        on_renewed: called when calls for a queue may begin again, or still.
        on_lost: called with a queue that was held, and is not any more. It is asked for again
            after `give_up` and `want`.
    """

    def __init__(
        self,
        client: Client,
        group: str,
        nursery: StartsTasks,
        on_gained: Callable[[MessageQueue], None],
        on_renewed: Callable[[MessageQueue], None],
        on_lost: Callable[[MessageQueue], None],
    ) -> None:
        self._client = client
        self._group = group
        self._nursery = nursery
        self._on_gained = on_gained
        self._on_renewed = on_renewed
        self._on_lost = on_lost
        self._brokers: dict[str, _BrokerLocks] = {}
        self._held_all = trio.lowlevel.ParkingLot()
        self._losses_changed = WakeUp()
        nursery.start_soon(self._watch_losses)

    def want(self, queue: MessageQueue) -> None:
        """Have a queue locked, now and from now on; nothing if it is wanted already."""
        broker = self._brokers.get(queue.broker_name)
        if broker is None:
            broker = self._brokers[queue.broker_name] = _BrokerLocks()
            self._nursery.start_soon(self._keep, broker)
        if broker.locks.want(queue):
            broker.changed.set()

    def keep_only(self, topic: str, queues: Collection[MessageQueue]) -> None:
        """Ask no more for queues of a topic that are not held, but for these."""
        now = trio.current_time()
        for broker in self._brokers.values():
            for queue in broker.locks.missing:
                if queue.topic == topic and queue not in queues:
                    broker.locks.give_up(queue, now)
                    broker.changed.set()
        self._tell_if_all()

    def give_up(self, queue: MessageQueue) -> None:
        """Let others have a queue: its messages are not worked on any more."""
        broker = self._brokers[queue.broker_name]
        broker.locks.give_up(queue, trio.current_time())
        broker.changed.set()

    def is_fresh(self, queue: MessageQueue) -> bool:
        """Whether a call of the listener may begin."""
        broker = self._brokers.get(queue.broker_name)
        return broker is not None and broker.locks.is_fresh(queue, trio.current_time())

    async def wait_held(self) -> None:
        """Wait until every queue that is wanted is held."""
        while any(broker.locks.missing for broker in self._brokers.values()):
            await self._held_all.park()

    async def unlock_all(self) -> None:
        """Give back everything that this client may have, through an election if there is one.

        What no leader takes back in `LEAVE_S` stays locked, up to 60 s from when it was asked
        for last. Several groups of brokers are asked at once.
        """
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                for broker in self._brokers.values():
                    for queues in _pieces(broker.locks.queues):
                        nursery.start_soon(self._unlock_finally, queues)

    async def _unlock_finally(self, queues: Sequence[MessageQueue]) -> None:
        try:
            with trio.fail_after(LEAVE_S):
                await self._call(queues[0], self._unlock(queues), "unlock queues", LEAVE_S)
        except (trio.TooSlowError, MessagingError, RemotingError) as error:
            _log.warning(
                "group %s leaves, and others wait up to 60 s for %d queues of %s: %s",
                self._group,
                len(queues),
                queues[0].topic,
                str(error) or "no broker took them back in time",
            )

    async def _keep(self, broker: _BrokerLocks) -> None:
        """Ask one group of brokers for what is due, one request after the other, for ever."""
        locks, failures = broker.locks, 0
        while True:
            now = trio.current_time()
            unlock, lock = locks.to_unlock(now), locks.to_lock(now)
            if not unlock and not lock:
                with trio.move_on_at(locks.next_request()):
                    await broker.changed.wait()
                continue
            problem: MessagingError | RemotingError | None = None
            # By topic, so that one without a route keeps no other waiting.
            for queues in _pieces(unlock):
                try:
                    await self._call(queues[0], self._unlock(queues), "unlock queues")
                    locks.unlocked(queues)
                except (MessagingError, RemotingError) as error:
                    problem = error
            for queues in _pieces(lock):
                try:
                    await self._lock(locks, queues)
                except (MessagingError, RemotingError) as error:
                    locks.failed(queues, trio.current_time() + pause_s(failures + 1))
                    problem = error
            if problem is None:
                failures = 0
            else:
                failures += 1
                _log.info("the locks of group %s are asked for again: %s", self._group, problem)
                await trio.sleep(pause_s(failures))

    async def _lock(self, locks: OwnLocks, queues: Sequence[MessageQueue]) -> None:
        asked_at = trio.current_time()
        command = requests.lock_queues(self._group, self._client.client_id, list(queues))
        reply = await self._call(queues[0], command, "lock queues")
        given = frozenset(decode_locked_queues(reply.body))
        answered = locks.answered(queues, given, asked_at, trio.current_time())
        for queue in answered.lost:
            _log.warning("group %s: the lock of %s may be another's now", self._group, queue)
            self._on_lost(queue)
        for queue in answered.gained:
            self._on_gained(queue)
        for queue in answered.renewed:
            self._on_renewed(queue)
        if answered.gained:
            self._losses_changed.set()
            self._tell_if_all()

    async def _watch_losses(self) -> None:
        """Notice in time that a lock was not renewed, also while a request is under way."""
        while True:
            at = min((one.locks.next_loss() for one in self._brokers.values()), default=math.inf)
            with trio.move_on_at(at):
                await self._losses_changed.wait()
            for broker in self._brokers.values():
                for queue in broker.locks.take_lost(trio.current_time()):
                    _log.warning("group %s: the lock of %s was not renewed", self._group, queue)
                    self._on_lost(queue)

    async def _call(
        self,
        queue: MessageQueue,
        command: Command,
        what: str,
        timeout_s: float = LOCK_ATTEMPT_S,
    ) -> Command:
        return await call_master(
            self._client,
            queue,
            command,
            what,
            timeout_s=timeout_s,
            attempt_s=LOCK_ATTEMPT_S,
        )

    def _unlock(self, queues: Sequence[MessageQueue]) -> Command:
        return requests.unlock_queues(self._group, self._client.client_id, list(queues))

    def _tell_if_all(self) -> None:
        if not any(broker.locks.missing for broker in self._brokers.values()):
            self._held_all.unpark_all()


def _pieces(queues: Iterable[MessageQueue]) -> list[list[MessageQueue]]:
    """Cut queues into requests: each names queues of one topic."""
    pieces: list[list[MessageQueue]] = []
    for _topic, some in groupby(sorted(queues), key=lambda queue: queue.topic):
        of_topic = list(some)
        pieces += [of_topic[at : at + _MOST_QUEUES] for at in range(0, len(of_topic), _MOST_QUEUES)]
    return pieces
