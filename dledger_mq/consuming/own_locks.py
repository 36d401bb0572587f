"""The queues that an ordered consumer has locked at one group of brokers, as far as it can know."""

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from remoting.bodies.message_queue import MessageQueue

# RocketMQ's: a client asks again for what it holds, and begins nothing with a lock of that age.
RENEW_S: Final = 20.0
FRESH_S: Final = 30.0

# Brokers let another client have a lock 60 s after its holder asked for it last. The rest is for a
# listener to end that is cancelled, and for clocks that differ by a twelfth.
LOST_S: Final = 55.0

# A queue that another member holds is asked for so often that it changes hands quickly, and no more
# often than a handful of members cost the broker little: each question is an entry of its log.
HELD_ELSEWHERE_S: Final = 0.5

# How long a lock is tried to be given back: an outage ends none, but a topic may be gone for good.
_GIVE_BACK_S: Final = 600.0


@dataclass(slots=True)
class _Lock:
    """A queue that is wanted.

    Attributes:
        asked_at: when the request was sent by which the broker gave it last; None when it has not.
        next_ask: when to ask for it.
        is_lost: it was held and is not any more; what was begun with it may still have to end.
    """

    asked_at: float | None = None
    next_ask: float = -math.inf
    is_lost: bool = False

    def lose(self) -> None:
        """It is another's, or may be."""
        self.asked_at, self.next_ask, self.is_lost = None, math.inf, True


@dataclass(frozen=True, slots=True)
class Answered:
    """What the broker's answer to a lock request has changed.

    Attributes:
        gained: queues that this client holds now, and did not before.
        renewed: queues that it still holds.
        lost: queues that it held, and that another client may hold now.
    """

    gained: list[MessageQueue]
    renewed: list[MessageQueue]
    lost: list[MessageQueue]


class OwnLocks:
    """Which queues this client wants, and until when it surely holds each.

    A lock counts from the moment at which its request was sent: the broker's own time for it
    begins later, so it ends later, too. Only one request is under way at a time, so that the broker
    carries them out in their order. All times are seconds of one clock.

    - For `FRESH_S` a lock is fresh: calls of the listener may begin.
    - Until `LOST_S` the broker gives it to no other, so that calls may go on. If the broker
      renews it by then, it was never another's.
    - Then it is lost: what was read under it must be forgotten, and it is not asked for before it
      was given up.
    """

    def __init__(self) -> None:
        self._locks: dict[MessageQueue, _Lock] = {}
        self._given_up: dict[MessageQueue, float] = {}  # and until when that is tried

    @property
    def queues(self) -> Collection[MessageQueue]:
        """Those that may be locked for this client, and those that it wants."""
        return self._locks.keys() | self._given_up.keys()

    @property
    def missing(self) -> list[MessageQueue]:
        """Queues that are wanted and not held."""
        return [queue for queue, lock in self._locks.items() if lock.asked_at is None]

    def want(self, queue: MessageQueue) -> bool:
        """Have a queue asked for; False if it is wanted already."""
        if queue in self._locks:
            return False
        self._locks[queue] = _Lock()
        return True

    def give_up(self, queue: MessageQueue, now: float) -> None:
        """Have a queue unlocked: nothing is done with its messages any more."""
        if self._locks.pop(queue, None) is not None:
            # An answer may have been lost, so also what seems not to be held is given back.
            self._given_up[queue] = now + _GIVE_BACK_S

    def is_fresh(self, queue: MessageQueue, now: float) -> bool:
        """Whether a call of the listener may begin."""
        asked_at = self._asked_at(queue)
        return asked_at is not None and now < asked_at + FRESH_S

    def to_unlock(self, now: float) -> list[MessageQueue]:
        """Queues to give back now."""
        for queue in [queue for queue, until in self._given_up.items() if now >= until]:
            del self._given_up[queue]
        return list(self._given_up)

    def unlocked(self, queues: Collection[MessageQueue]) -> None:
        """The broker has taken these back."""
        for queue in queues:
            self._given_up.pop(queue, None)

    def to_lock(self, now: float) -> list[MessageQueue]:
        """Queues to ask for now, those that are held included; none of those to give back."""
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
        """The broker has answered a lock request.

        Args:
            asked: what was asked for.
            given: what the broker says is this client's.
            asked_at: when the request was sent first.
            now: when the answer has come.
        """
        result = Answered([], [], self.take_lost(now))
        for queue in asked:
            lock = self._locks.get(queue)
            if lock is None or lock.is_lost or queue in self._given_up:
                continue  # it is to be unlocked, and may then be asked for anew
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
        """There was no answer to a lock request."""
        for queue in asked:
            if queue in self._locks and not self._locks[queue].is_lost:
                self._locks[queue].next_ask = again_at

    def take_lost(self, now: float) -> list[MessageQueue]:
        """Queues whose locks have just been lost, since no broker has renewed them for too long."""
        lost = []
        for queue, lock in self._locks.items():
            if lock.asked_at is not None and now >= lock.asked_at + LOST_S:
                lock.lose()
                lost.append(queue)
        return lost

    def next_request(self) -> float:
        """When something is to be asked for or given back; infinite if nothing is."""
        if self._given_up:
            return -math.inf
        return min((lock.next_ask for lock in self._locks.values()), default=math.inf)

    def next_loss(self) -> float:
        """When the first lock is lost unless it is renewed; infinite if none is held."""
        asked = [lock.asked_at for lock in self._locks.values() if lock.asked_at is not None]
        return min(asked, default=math.inf) + LOST_S

    def _asked_at(self, queue: MessageQueue) -> float | None:
        lock = self._locks.get(queue)
        return None if lock is None else lock.asked_at
