"""What is to be done at which time."""

import heapq
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Agenda(Generic[Item]):
    """Items by the time they are due; those of one time keep their order."""

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, Item]] = []
        self._count = 0

    @property
    def next_time(self) -> float:
        """When the first item is due; infinite when there is none."""
        return self._entries[0][0] if self._entries else float("inf")

    def add(self, time: float, item: Item) -> None:
        """Note an item that is due at `time`."""
        self._count += 1
        heapq.heappush(self._entries, (time, self._count, item))

    def take_due(self, now: float) -> list[Item]:
        """Remove the items that are due, and return them in the order of their times."""
        due: list[Item] = []
        while self._entries and self._entries[0][0] <= now:
            due.append(heapq.heappop(self._entries)[2])
        return due
