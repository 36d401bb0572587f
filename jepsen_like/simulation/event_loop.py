"""Virtual time: a heap of events, which alone move the clock of a run."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from jepsen_like.chance import Chance

NEVER: Final = float("inf")


class EventLoop:
    """Runs events in the order of their times; events of one time run in the order given.

    No fault begins from `faults_end_s` on.
    """

    __slots__ = ("_events", "_number", "count", "faults_end_s", "now")

    def __init__(self, faults_end_s: float = NEVER) -> None:
        self.faults_end_s = faults_end_s
        self._events: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._number = 0
        self.now = 0.0  # seconds since the run began
        self.count = 0  # events run so far

    def at(self, time_s: float, action: Callable[..., None], *arguments: object) -> None:
        """Call `action` at `time_s`, or now if that is past."""
        self._number += 1
        heappush(self._events, (max(time_s, self.now), self._number, action, arguments))

    def after(self, delay_s: float, action: Callable[..., None], *arguments: object) -> None:
        self._number += 1
        heappush(self._events, (self.now + delay_s, self._number, action, arguments))

    def fault(self, chance: Chance, every_s: float, begin: Callable[[], None]) -> None:
        """Draw when the next fault of a kind begins, one every `every_s` seconds on the average."""
        if every_s != NEVER:
            at_s = self.now + chance.wait_s(every_s)
            if at_s < self.faults_end_s:
                self.at(at_s, begin)

    def step(self, end_s: float) -> bool:
        """Run the next event up to `end_s`. If there is none, set the clock to `end_s` and return
        False.
        """
        events = self._events
        if not events or events[0][0] > end_s:
            self.now = end_s
            return False
        self.now, _, action, arguments = heappop(events)
        self.count += 1
        action(*arguments)
        return True

    def run_until(self, end_s: float) -> None:
        """Run every event up to `end_s`, then set the clock to `end_s`."""
        events = self._events
        while events and events[0][0] <= end_s:
            self.now, _, action, arguments = heappop(events)
            self.count += 1
            action(*arguments)
        self.now = end_s
