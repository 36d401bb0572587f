"""Pops of lite topics that wait for a message, by client."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from broker.access.shares import Counts
from broker.lite.request import LiteRequest
from broker.lite.subscriptions import ClientKey
from broker.pop.limits import MAX_WAITING_A_CLIENT
from broker.serving.origin import Origin
from broker.serving.waiting_requests import WaitingRequests
from remoting.wire.command import Command

_POPS_A_STEP: Final = 16


@dataclass(slots=True, eq=False)
class WaitingLite:
    """A pop that waits.

    Attributes:
        command: the request, without its content.
        deadline: on the monotonic clock, in seconds.
        user: whose share of waiting requests it counts in; None if it counts in no share.
    """

    origin: Origin
    command: Command
    request: LiteRequest
    deadline: float
    user: str | None = None


class WaitingLites:
    """The waiting pops, up to a limit."""

    def __init__(self, limit: int, users: Counts) -> None:
        self._limit = limit
        self._users = users
        self._waiting: dict[ClientKey, dict[WaitingLite, None]] = {}  # the oldest first
        self._requests = WaitingRequests[WaitingLite](_POPS_A_STEP)

    def __len__(self) -> int:
        return len(self._requests)

    def has_room(self, origin: Origin) -> bool:
        of_origin = self._requests.count_of(origin)
        return len(self._requests) < self._limit and of_origin < MAX_WAITING_A_CLIENT

    def add(self, pop: WaitingLite) -> None:
        """Add a pop. Callers check `has_room` first."""
        self._waiting.setdefault(pop.request.key, {})[pop] = None
        self._requests.add(pop)
        self._users.add(pop.user)

    def first(self, key: ClientKey) -> WaitingLite | None:
        return next(iter(self._waiting.get(key, ())), None)

    def has(self, key: ClientKey) -> bool:
        return key in self._waiting

    def waits(self, pop: WaitingLite) -> bool:
        return self._requests.has(pop)

    def remove(self, pop: WaitingLite) -> None:
        self._requests.remove(pop)
        self._forget(pop)

    def _forget(self, pop: WaitingLite) -> None:
        of_client = self._waiting.get(pop.request.key, {})
        if pop not in of_client:
            return  # all were taken meanwhile
        del of_client[pop]
        if not of_client:
            del self._waiting[pop.request.key]
        self._users.remove(pop.user)

    def take_expired(self, now: float) -> list[WaitingLite]:
        expired = self._requests.expired(now)
        for pop in expired:
            self.remove(pop)
        return expired

    def take_all(self) -> list[WaitingLite]:
        for of_client in self._waiting.values():
            for pop in of_client:
                self._users.remove(pop.user)
        self._waiting = {}
        return self._requests.take_all()

    def take_client(self, key: ClientKey) -> Iterator[WaitingLite]:
        for pop in list(self._waiting.get(key, ())):
            self.remove(pop)
            yield pop

    def drop(self, origin: Origin) -> Iterator[None]:
        """Drop the pops of a client, in steps: see `WaitingRequests.drop`."""
        return self._requests.drop(origin, self._forget)
