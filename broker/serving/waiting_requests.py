"""Requests that wait: RocketMQ's long polling, without a task or an event for each."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, Generic, TypeVar

from broker.serving.counts import Counts
from broker.serving.deadlines import Deadlines
from broker.serving.origin import Origin
from remoting.wire.command import Command

# Requests that are examined or answered in one step; an answer takes about 60 microseconds.
_A_STEP: Final = 16

# Requests of a client that is gone; each takes two microseconds.
_DROPPED_A_STEP: Final = 256

R = TypeVar("R")  # what is asked
P = TypeVar("P")  # a part of what it waits for: a queue of a topic, or a group


@dataclass(slots=True, eq=False)
class Waiting(Generic[R]):
    """A request that waits.

    Attributes:
        command: the request, without its content.
        deadline: on the monotonic clock, in seconds.
        user: whose share of waiting requests it counts in; None if it counts in no share.
    """

    origin: Origin
    command: Command
    request: R
    deadline: float
    user: str | None = None


def _one(_request: object) -> int:
    return 1


class WaitingRequests(Generic[R, P]):
    """Requests of one kind, each until it is taken or removed, in the order in which they came.

    Args:
        limit: how many may wait.
        client_limit: how many of one client, which must leave room for others.
        users: counts them by user.
        key_of: a name and a part: what a request waits for.
        weight_of: as how many a request counts for `limit`, and for its user.
    """

    def __init__(
        self,
        limit: int,
        client_limit: int,
        users: Counts,
        key_of: Callable[[R], tuple[str, P]],
        weight_of: Callable[[R], int] = _one,
    ) -> None:
        self._limit = limit
        self._client_limit = client_limit
        self._users = users
        self._key_of = key_of
        self._weight_of = weight_of
        self._by_key: dict[str, dict[P, dict[Waiting[R], None]]] = {}
        self._by_origin: dict[Origin, dict[Waiting[R], None]] = {}
        self._ends = Deadlines(self.waits, _A_STEP)
        self._count = 0
        self._weight = 0
        self._weights = Counts()  # the same by user

    def __len__(self) -> int:
        return self._count

    def waits(self, one: Waiting[R]) -> bool:
        return one in self._by_origin.get(one.origin, ())

    def all(self) -> list[Waiting[R]]:
        return [one for waiting in self._by_origin.values() for one in waiting]

    def parts(self, name: str) -> Iterable[P]:
        return self._by_key.get(name, ())

    def of_name(self, name: str) -> list[Waiting[R]]:
        """Return those of all parts."""
        return list(chain.from_iterable(self._by_key.get(name, {}).values()))

    def of(self, name: str, part: P) -> list[Waiting[R]]:
        """Return those of a part, the oldest first."""
        return list(self._by_key.get(name, {}).get(part, ()))

    def count(self, name: str, part: P) -> int:
        return len(self._by_key.get(name, {}).get(part, ()))

    def first(self, name: str, part: P) -> Waiting[R] | None:
        return next(iter(self._by_key.get(name, {}).get(part, ())), None)

    def has_room(self, one: Waiting[R]) -> bool:
        """Return whether another request may wait, by the limits of all and of its client."""
        of_client = len(self._by_origin.get(one.origin, ()))
        weight = self._weight + self._weight_of(one.request)
        return weight <= self._limit and of_client < self._client_limit

    def add(self, one: Waiting[R]) -> None:
        """Add a request. Callers check `has_room` first."""
        name, part = self._key_of(one.request)
        self._by_key.setdefault(name, {}).setdefault(part, {})[one] = None
        self._by_origin.setdefault(one.origin, {})[one] = None
        self._count += 1
        weight = self._weight_of(one.request)
        self._weight += weight
        for counts in (self._weights, self._users):
            counts.add(one.user, weight)
        self._ends.add(one.deadline, one, self._count)

    def remove(self, one: Waiting[R]) -> None:
        of_origin = self._by_origin[one.origin]
        del of_origin[one]
        if not of_origin:
            del self._by_origin[one.origin]
        self._count -= 1
        self._forget(one)

    def take(
        self, waiting: Sequence[Waiting[R]], wanted: Callable[[Waiting[R]], bool]
    ) -> Iterator[list[Waiting[R]]]:
        """Examine requests a few at a time; take those that are wanted and still wait.

        Others may be added or removed between steps.
        """
        for at in range(0, len(waiting), _A_STEP):
            few = waiting[at : at + _A_STEP]
            yield self._taken([one for one in few if self.waits(one) and wanted(one)])

    def take_each(self, waiting: Iterable[Waiting[R]]) -> Iterator[Waiting[R]]:
        """Take those that still wait, one at a time."""
        for one in waiting:
            if self.waits(one):
                self.remove(one)
                yield one

    def take_expired(self, now: float) -> list[Waiting[R]]:
        """Take some whose deadline is over."""
        return self._taken(self._ends.take(now))

    def take_all(self) -> list[Waiting[R]]:
        taken = self.all()
        for user, weight in self._weights.all():
            self._users.remove(user, weight)
        self._weights = Counts()
        self._by_key, self._by_origin = {}, {}
        self._ends.clear()
        self._count = self._weight = 0
        return taken

    def drop(self, origin: Origin) -> Iterator[None]:
        """Drop the requests of a client that is gone, in steps: there may be thousands.

        None waits from the first step on.
        """
        dropped = list(self._by_origin.pop(origin, ()))
        self._count -= len(dropped)
        for at in range(0, len(dropped), _DROPPED_A_STEP):
            for one in dropped[at : at + _DROPPED_A_STEP]:
                self._forget(one)
            yield

    def _taken(self, taken: list[Waiting[R]]) -> list[Waiting[R]]:
        for one in taken:
            self.remove(one)
        return taken

    def _forget(self, one: Waiting[R]) -> None:
        name, part = self._key_of(one.request)
        parts = self._by_key.get(name, {})
        waiting = parts.get(part, {})
        if one not in waiting:
            return  # all were taken meanwhile
        del waiting[one]
        if not waiting:
            del parts[part]
        if not parts:
            del self._by_key[name]
        weight = self._weight_of(one.request)
        self._weight -= weight
        for counts in (self._weights, self._users):
            counts.remove(one.user, weight)
