"""The queues that an ordered consumer has locked at one group of brokers, as far as it can know."""

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from remoting.bodies.message_queue import MessageQueue

# RocketMQ's: the age at which a client renews a lock, and at which it begins no more calls with it.
RENEW_S: Final = 20.0
FRESH_S: Final = 30.0

# Brokers give a lock to another client 60 s after its holder's last request. The difference is for
# the end of a cancelled listener, and for clocks whose speeds differ by a twelfth.
LOST_S: Final = 55.0

# How often a queue that another member has locked is requested. It changes hands quickly, and a
# handful of members cost the broker little: each request is an entry of its log.
HELD_ELSEWHERE_S: Final = 0.5

# How long unlocking is tried. Locks outlive an outage, but a topic may be gone for good.
_GIVE_BACK_S: Final = 600.0


@dataclass(slots=True)
class _Lock:
    """A wanted queue.

    Attributes:
        asked_at: when the last successful request was sent; None if the queue is not locked.
        next_ask: when to send the next request.
        is_lost: it was locked and is not any more; calls that began with the lock may still run.
    """

    asked_at: float | None = None
    next_ask: float = -math.inf
    is_lost: bool = False

    def lose(self) -> None:
        self.asked_at, self.next_ask, self.is_lost = None, math.inf, True


@dataclass(frozen=True, slots=True)
class Answered:
    """The changes by a broker's answer to a lock request.

    Attributes:
        gained: queues that are newly locked.
        renewed: queues that are still locked.
        lost: queues that were locked, and that another client may have locked now.
    """

    gained: list[MessageQueue]
    renewed: list[MessageQueue]
    lost: list[MessageQueue]


class OwnLocks:
    """The queues that this client wants, and until when it surely holds each lock.

    A lock counts from the moment at which its request was sent: the broker's own time for it begins
    later, so it ends later, too. Only one request is under way at a time, so that the broker
    carries them out in their order. All times are seconds of one clock.

    - For `FRESH_S` a lock is fresh: calls of the listener may begin.
    - Until `LOST_S` the broker gives it to no other client, so that calls may go on. If the
      broker renews it by then, no other client had it.
    - Then it is lost: messages that were read under it must be dropped, and it is not requested
    again
      before it was given up.
    """

    def __init__(self) -> None:
        self._locks: dict[MessageQueue, _Lock] = {}
        self._given_up: dict[MessageQueue, float] = {}  # until when unlocking is tried

    @property
    def queues(self) -> Collection[MessageQueue]:
        """The queues that may be locked for this client, and those that it wants."""
        return self._locks.keys() | self._given_up.keys()

    @property
    def missing(self) -> list[MessageQueue]:
        return [queue for queue, lock in self._locks.items() if lock.asked_at is None]

    def want(self, queue: MessageQueue) -> bool:
        """Want a queue; return False if it is wanted already."""
        if queue in self._locks:
            return False
        self._locks[queue] = _Lock()
        return True

    def give_up(self, queue: MessageQueue, now: float) -> None:
        """Want a queue unlocked: its messages are not worked on any more."""
        if self._locks.pop(queue, None) is not None:
            # An answer may have been lost, so also unlock what does not seem to be locked.
            self._given_up[queue] = now + _GIVE_BACK_S

    def is_fresh(self, queue: MessageQueue, now: float) -> bool:
        """Return whether a call of the listener may begin."""
        asked_at = self._asked_at(queue)
        return asked_at is not None and now < asked_at + FRESH_S

    def to_unlock(self, now: float) -> list[MessageQueue]:
        for queue in [queue for queue, until in self._given_up.items() if now >= until]:
            del self._given_up[queue]
        return list(self._given_up)

    def unlocked(self, queues: Collection[MessageQueue]) -> None:
        for queue in queues:
            self._given_up.pop(queue, None)

    def to_lock(self, now: float) -> list[MessageQueue]:
        """Return the queues to request or renew now."""
        return [
            queue
            for queue, lock in self._locks.items()
            if lock.next_ask <= now and queue not in self._given_up
        ]

    def answered(
        self,
        asked: Collection[MessageQueue],
        given: Collection[MessageQueue],
        asked_at: float,
        now: float,
    ) -> Answered:
        """Handle the answer to a lock request for `asked`, first sent at `asked_at`."""
        result = Answered([], [], self.take_lost(now))
        for queue in asked:
            lock = self._locks.get(queue)
            if lock is None or lock.is_lost or queue in self._given_up:
                continue  # it is to be unlocked, and may be requested after that
            if queue in given:
                (result.gained if lock.asked_at is None else result.renewed).append(queue)
                lock.asked_at = asked_at
                lock.next_ask = asked_at + RENEW_S
                continue
            if lock.asked_at is None:
                lock.next_ask = now + HELD_ELSEWHERE_S
            else:
                lock.lose()
                result.lost.append(queue)
        return result

    def failed(self, asked: Collection[MessageQueue], again_at: float) -> None:
        """Try again at `again_at`: a lock request had no answer."""
        for queue in asked:
            if queue in self._locks and not self._locks[queue].is_lost:
                self._locks[queue].next_ask = again_at

    def take_lost(self, now: float) -> list[MessageQueue]:
        """Return the queues whose locks have just been lost, since no broker renewed them in
        time.
        """
        lost = []
        for queue, lock in self._locks.items():
            if lock.asked_at is not None and now >= lock.asked_at + LOST_S:
                lock.lose()
                lost.append(queue)
        return lost

    def next_request(self) -> float:
        """Return when the next request is due; infinite if none is."""
        if self._given_up:
            return -math.inf
        return min((lock.next_ask for lock in self._locks.values()), default=math.inf)

    def next_loss(self) -> float:
        """Return when the first lock is lost unless it is renewed; infinite if there is none."""
        asked = [lock.asked_at for lock in self._locks.values() if lock.asked_at is not None]
        return min(asked, default=math.inf) + LOST_S

    def _asked_at(self, queue: MessageQueue) -> float | None:
        lock = self._locks.get(queue)
        return None if lock is None else lock.asked_at
