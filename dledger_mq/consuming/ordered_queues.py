"""Keeps the queues of an ordered consumer locked at their leaders (41), and unlocks them (42)."""

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
# be frozen: ask a name server for another before the next request.
LOCK_ATTEMPT_S: Final = 1.0

# How long the end of a consumer waits until a leader has released its locks. A frozen leader costs
# one attempt, and an election about a second. Otherwise the other members wait 60 s for the locks
# to expire.
LEAVE_S: Final = 5.0

# The most queues in one request; brokers of this project accept ten times as many.
_MOST_QUEUES: Final = 1000


@dataclass(slots=True)
class _BrokerLocks:
    """The locks at one group of brokers; `changed` wakes the task that requests them."""

    locks: OwnLocks = field(default_factory=OwnLocks)
    changed: WakeUp = field(default_factory=WakeUp)


class OrderedQueues:
    """Locks queues for one consumer, so that no other member of its group reads them meanwhile.

    One task for each group of brokers keeps the locks. Called with a queue: `on_gained` when it is
    newly locked; `on_renewed` when calls may begin again, or still; `on_lost` when its lock is
    lost. Then it is requested again after `give_up` and `want`.
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
        """Lock a queue now, and keep it locked."""
        broker = self._brokers.get(queue.broker_name)
        if broker is None:
            broker = self._brokers[queue.broker_name] = _BrokerLocks()
            self._nursery.start_soon(self._keep, broker)
        if broker.locks.want(queue):
            broker.changed.set()

    def keep_only(self, topic: str, queues: Collection[MessageQueue]) -> None:
        """Stop requesting queues of a topic that are not locked yet, other than these."""
        now = trio.current_time()
        for broker in self._brokers.values():
            for queue in broker.locks.missing:
                if queue.topic == topic and queue not in queues:
                    broker.locks.give_up(queue, now)
                    broker.changed.set()
        self._wake_if_all_held()

    def give_up(self, queue: MessageQueue) -> None:
        """Unlock a queue: its messages are not worked on any more."""
        broker = self._brokers[queue.broker_name]
        broker.locks.give_up(queue, trio.current_time())
        broker.changed.set()

    def is_fresh(self, queue: MessageQueue) -> bool:
        """Return whether a call of the listener may begin."""
        broker = self._brokers.get(queue.broker_name)
        return broker is not None and broker.locks.is_fresh(queue, trio.current_time())

    async def wait_held(self) -> None:
        """Wait until every wanted queue is locked."""
        while any(broker.locks.missing for broker in self._brokers.values()):
            await self._held_all.park()

    async def unlock_all(self) -> None:
        """Unlock all queues that this client may have locked, through elections.

        Queues that no leader unlocks within `LEAVE_S` stay locked, up to 60 s from the last
        request for them. Several groups of brokers are asked at once.
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
        """Send the requests that are due at one group of brokers, one after the other, for ever."""
        locks, failures = broker.locks, 0
        while True:
            now = trio.current_time()
            unlock, lock = locks.to_unlock(now), locks.to_lock(now)
            if not unlock and not lock:
                with trio.move_on_at(locks.next_request()):
                    await broker.changed.wait()
                continue
            problem: MessagingError | RemotingError | None = None
            # By topic, so that a topic without a route does not delay others.
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
            self._wake_if_all_held()

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

    def _wake_if_all_held(self) -> None:
        if not any(broker.locks.missing for broker in self._brokers.values()):
            self._held_all.unpark_all()


def _pieces(queues: Iterable[MessageQueue]) -> list[list[MessageQueue]]:
    """Split queues into requests of one topic each."""
    pieces: list[list[MessageQueue]] = []
    for _topic, some in groupby(sorted(queues), key=lambda queue: queue.topic):
        of_topic = list(some)
        pieces += [of_topic[at : at + _MOST_QUEUES] for at in range(0, len(of_topic), _MOST_QUEUES)]
    return pieces
