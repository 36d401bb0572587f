"""Requests that wait, by client and by deadline."""

from collections.abc import Callable, Iterator
from typing import Final, Generic, Protocol, TypeVar

from broker.serving.deadlines import Deadlines
from broker.serving.origin import Origin

# Requests of a client that is gone; each takes two microseconds.
_DROPPED_A_STEP: Final = 256


class Waiting(Protocol):
    """A request that waits until its deadline: seconds on the monotonic clock."""

    @property
    def origin(self) -> Origin: ...

    @property
    def deadline(self) -> float: ...


W = TypeVar("W", bound=Waiting)


class WaitingRequests(Generic[W]):
    """Requests of one kind, each until it is removed, in the order in which they came.

    Args:
        a_step: how many expired ones are taken at once: their answers are one step of the loop.
    """

    def __init__(self, a_step: int) -> None:
        self._by_origin: dict[Origin, dict[W, None]] = {}
        self._ends = Deadlines(self.has, a_step)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def has(self, one: W) -> bool:
        return one in self._by_origin.get(one.origin, ())

    def all(self) -> list[W]:
        return [one for waiting in self._by_origin.values() for one in waiting]

    def of(self, origin: Origin) -> list[W]:
        return list(self._by_origin.get(origin, ()))

    def drop(self, origin: Origin, forget: Callable[[W], None]) -> Iterator[None]:
        """Drop the requests of a client that is gone, in steps: there may be thousands.

        None waits from the first step on. `forget` is called with each.
        """
        dropped = list(self._by_origin.pop(origin, ()))
        self._count -= len(dropped)
        for at in range(0, len(dropped), _DROPPED_A_STEP):
            for one in dropped[at : at + _DROPPED_A_STEP]:
                forget(one)
            yield

    def count_of(self, origin: Origin) -> int:
        return len(self._by_origin.get(origin, ()))

    def add(self, one: W) -> None:
        self._by_origin.setdefault(one.origin, {})[one] = None
        self._count += 1
        self._ends.add(one.deadline, one, self._count)

    def remove(self, one: W) -> None:
        of_origin = self._by_origin[one.origin]
        del of_origin[one]
        if not of_origin:
            del self._by_origin[one.origin]
        self._count -= 1

    def expired(self, now: float) -> list[W]:
        """Return some whose deadline is over, each once. The caller removes them."""
        return self._ends.take(now)

    def take_all(self) -> list[W]:
        taken = self.all()
        self._by_origin = {}
        self._ends.clear()
        self._count = 0
        return taken
