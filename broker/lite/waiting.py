"""Pops of lite topics that wait for a message, by client."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from broker.lite.request import LiteRequest
from broker.lite.subscriptions import ClientKey
from broker.pop.limits import MAX_WAITING_A_CLIENT
from broker.serving.deadlines import Deadlines
from broker.serving.origin import Origin
from remoting.wire.command import Command

_POPS_A_STEP: Final = 16


@dataclass(slots=True, eq=False)
class WaitingLite:
    """A pop that waits.

    Attributes:
        command: the request, without its content.
        deadline: on the monotonic clock, in seconds.
    """

    origin: Origin
    command: Command
    request: LiteRequest
    deadline: float


class WaitingLites:
    """The waiting pops, up to a limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting: dict[ClientKey, dict[WaitingLite, None]] = {}  # the oldest first
        self._by_origin: dict[Origin, dict[WaitingLite, None]] = {}
        self._ends = Deadlines(self.waits, _POPS_A_STEP)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def has_room(self, origin: Origin) -> bool:
        of_origin = len(self._by_origin.get(origin, ()))
        return self._count < self._limit and of_origin < MAX_WAITING_A_CLIENT

    def add(self, pop: WaitingLite) -> None:
        """Add a pop. Callers check `has_room` first."""
        self._waiting.setdefault(pop.request.key, {})[pop] = None
        self._by_origin.setdefault(pop.origin, {})[pop] = None
        self._count += 1
        self._ends.add(pop.deadline, pop, self._count)

    def first(self, key: ClientKey) -> WaitingLite | None:
        return next(iter(self._waiting.get(key, ())), None)

    def has(self, key: ClientKey) -> bool:
        return key in self._waiting

    def waits(self, pop: WaitingLite) -> bool:
        return pop in self._by_origin.get(pop.origin, ())

    def remove(self, pop: WaitingLite) -> None:
        of_client = self._waiting[pop.request.key]
        del of_client[pop]
        if not of_client:
            del self._waiting[pop.request.key]
        of_origin = self._by_origin[pop.origin]
        del of_origin[pop]
        if not of_origin:
            del self._by_origin[pop.origin]
        self._count -= 1

    def take_expired(self, now: float) -> list[WaitingLite]:
        expired = self._ends.take(now)
        for pop in expired:
            self.remove(pop)
        return expired

    def take_all(self) -> list[WaitingLite]:
        taken = [pop for waiting in self._by_origin.values() for pop in waiting]
        self._waiting, self._by_origin = {}, {}
        self._ends.clear()
        self._count = 0
        return taken

    def take_client(self, key: ClientKey) -> Iterator[WaitingLite]:
        for pop in list(self._waiting.get(key, ())):
            self.remove(pop)
            yield pop

    def drop(self, origin: Origin) -> None:
        for pop in list(self._by_origin.get(origin, ())):
            self.remove(pop)
