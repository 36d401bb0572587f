"""Deadlines of requests that wait, most of which are answered before."""

import heapq
from collections.abc import Callable
from typing import Final, Generic, TypeVar

W = TypeVar("W")

# Deadlines of what was answered meanwhile are kept; all are looked through when there are more of
# them than this beside twice those that still count.
_STALE_DEADLINES: Final = 1024


class Deadlines(Generic[W]):
    """When what waits has waited long enough.

    Args:
        waits: whether something still waits.
        a_step: how many are taken at once: their answers are one step of the loop.
    """

    def __init__(self, waits: Callable[[W], bool], a_step: int) -> None:
        self._waits = waits
        self._a_step = a_step
        self._heap: list[tuple[float, int, W]] = []
        self._last_number = 0  # tells apart what ends at one moment

    def __len__(self) -> int:
        """How many it keeps, those that were answered meanwhile included."""
        return len(self._heap)

    def add(self, deadline: float, waiting: W, count: int) -> None:
        """Something waits until then, in seconds; `count`: how many wait now."""
        self._last_number += 1
        heapq.heappush(self._heap, (deadline, self._last_number, waiting))
        if len(self._heap) > 2 * count + _STALE_DEADLINES:
            self._heap = [one for one in self._heap if self._waits(one[2])]
            heapq.heapify(self._heap)

    def take(self, now: float) -> list[W]:
        """A few of those that still wait and whose time is over; empty when there is none."""
        over: dict[W, None] = {}  # what was given up and waits again has two deadlines here
        while self._heap and self._heap[0][0] <= now and len(over) < self._a_step:
            waiting = heapq.heappop(self._heap)[2]
            if self._waits(waiting):
                over[waiting] = None
        return list(over)

    def clear(self) -> None:
        """Nothing waits any more."""
        self._heap.clear()
        self._last_number = 0
