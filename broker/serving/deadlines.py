"""Deadlines of waiting requests, most of which are answered earlier."""

import heapq
from collections.abc import Callable
from typing import Final, Generic, TypeVar

W = TypeVar("W")

# Deadlines of answered requests stay in the heap until there are more deadlines than this, plus
# twice the waiting requests.
_STALE_DEADLINES: Final = 1024


class Deadlines(Generic[W]):
    """A heap of deadlines.

    Args:
        waits: whether a request still waits.
        a_step: how many requests `take` returns at most: their answers are one step of the loop.
    """

    def __init__(self, waits: Callable[[W], bool], a_step: int) -> None:
        self._waits = waits
        self._a_step = a_step
        self._heap: list[tuple[float, int, W]] = []
        self._last_number = 0  # orders equal deadlines

    def __len__(self) -> int:
        """Count the deadlines, including those of answered requests."""
        return len(self._heap)

    def add(self, deadline: float, waiting: W, count: int) -> None:
        """Add a request that waits until `deadline`, in seconds. `count` requests wait now."""
        self._last_number += 1
        heapq.heappush(self._heap, (deadline, self._last_number, waiting))
        if len(self._heap) > 2 * count + _STALE_DEADLINES:
            self._heap = [one for one in self._heap if self._waits(one[2])]
            heapq.heapify(self._heap)

    def take(self, now: float) -> list[W]:
        """Take a few requests that still wait and whose time is over."""
        over: dict[W, None] = {}  # a request that waits for a second time has two deadlines
        while self._heap and self._heap[0][0] <= now and len(over) < self._a_step:
            waiting = heapq.heappop(self._heap)[2]
            if self._waits(waiting):
                over[waiting] = None
        return list(over)

    def clear(self) -> None:
        self._heap.clear()
        self._last_number = 0
