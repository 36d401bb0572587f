"""Items that are due at certain times."""

import heapq
from typing import Generic, TypeVar

import trio

from dledger.wake_up import WakeUp

Item = TypeVar("Item")


class Agenda(Generic[Item]):
    """Items by the time they are due, on trio's clock; items of one time keep their order."""

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, Item]] = []
        self._count = 0
        self._sooner = WakeUp()

    @property
    def next_time(self) -> float:
        """When the first item is due; infinite if there is none."""
        return self._entries[0][0] if self._entries else float("inf")

    def add(self, time: float, item: Item) -> None:
        if time < self.next_time:
            self._sooner.set()
        self._count += 1
        heapq.heappush(self._entries, (time, self._count, item))

    async def due(self) -> list[Item]:
        """Wait for the first item to be due; remove and return due items. One task may wait."""
        with trio.move_on_at(self.next_time):
            await self._sooner.wait()
        return self.take_due(trio.current_time())

    def take_due(self, now: float) -> list[Item]:
        """Remove the items that are due, and return them in the order of their times."""
        due: list[Item] = []
        while self._entries and self._entries[0][0] <= now:
            due.append(heapq.heappop(self._entries)[2])
        return due
