"""Pops that wait for a message, by topic and group."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from broker.access.shares import Counts
from broker.pop.limits import MAX_WAITING_A_CLIENT
from broker.pop.request import PopRequest
from broker.serving.origin import Origin
from broker.serving.waiting_requests import WaitingRequests
from remoting.wire.command import Command

# Expired pops that one step takes.
_POPS_A_STEP: Final = 16


@dataclass(slots=True, eq=False)
class WaitingPop:
    """A pop that waits.

    Attributes:
        command: the request, without its content.
        deadline: on the monotonic clock, in seconds.
        user: whose share of waiting requests it counts in; None if it counts in no share.
    """

    origin: Origin
    command: Command
    request: PopRequest
    deadline: float
    user: str | None = None


class WaitingPops:
    """The waiting pops, up to a limit."""

    def __init__(self, limit: int, users: Counts) -> None:
        self._limit = limit
        self._users = users
        # By topic, then by group, in the order in which they came.
        self._waiting: dict[str, dict[str, dict[WaitingPop, None]]] = {}
        self._requests = WaitingRequests[WaitingPop](_POPS_A_STEP)

    def __len__(self) -> int:
        return len(self._requests)

    def has_room(self, origin: Origin) -> bool:
        """Return whether another pop of a client may wait, by the limits of all and of
        each client.
        """
        of_client = self._requests.count_of(origin)
        return len(self._requests) < self._limit and of_client < MAX_WAITING_A_CLIENT

    def add(self, pop: WaitingPop) -> None:
        """Add a pop. Callers check `has_room` first."""
        groups = self._waiting.setdefault(pop.request.topic, {})
        groups.setdefault(pop.request.group, {})[pop] = None
        self._requests.add(pop)
        self._users.add(pop.user)

    def groups(self, topic: str) -> Iterable[str]:
        return self._waiting.get(topic, ())

    def of(self, group: str, topic: str) -> list[WaitingPop]:
        """Return the waiting pops of a group and topic, the oldest first."""
        return list(self._waiting.get(topic, {}).get(group, ()))

    def count(self, group: str, topic: str) -> int:
        return len(self._waiting.get(topic, {}).get(group, ()))

    def take_expired(self, now: float) -> list[WaitingPop]:
        expired = self._requests.expired(now)
        for pop in expired:
            self.remove(pop)
        return expired

    def take_all(self) -> list[WaitingPop]:
        for groups in self._waiting.values():
            for waiting in groups.values():
                for pop in waiting:
                    self._users.remove(pop.user)
        self._waiting = {}
        return self._requests.take_all()

    def take_topic(self, topic: str) -> Iterator[WaitingPop]:
        """Yield the waiting pops of a topic. Pops may be added or removed between steps."""
        for waiting in list(self._waiting.get(topic, {}).values()):
            for pop in list(waiting):
                if self.waits(pop):
                    self.remove(pop)
                    yield pop

    def drop(self, origin: Origin) -> Iterator[None]:
        """Drop the pops of a client, in steps: see `WaitingRequests.drop`."""
        return self._requests.drop(origin, self._forget)

    def remove(self, pop: WaitingPop) -> None:
        self._requests.remove(pop)
        self._forget(pop)

    def _forget(self, pop: WaitingPop) -> None:
        request = pop.request
        groups = self._waiting.get(request.topic, {})
        waiting = groups.get(request.group, {})
        if pop not in waiting:
            return  # all were taken meanwhile
        del waiting[pop]
        if not waiting:
            del groups[request.group]
        if not groups:
            del self._waiting[request.topic]
        self._users.remove(pop.user)

    def waits(self, pop: WaitingPop) -> bool:
        return self._requests.has(pop)
