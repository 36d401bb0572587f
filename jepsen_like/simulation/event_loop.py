"""Virtual time: a heap of events, which alone move the clock of a run."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush


class EventLoop:
    """Runs events in the order of their times; events of one time run in the order given."""

    __slots__ = ("_events", "_number", "count", "now")

    def __init__(self) -> None:
        self._events: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._number = 0
        self.now = 0.0  # seconds since the run began
        self.count = 0  # events run so far

    def at(self, time_s: float, action: Callable[..., None], *arguments: object) -> None:
        """Call `action` at `time_s`, or now if that is past."""
        self._number += 1
        heappush(self._events, (max(time_s, self.now), self._number, action, arguments))

    def after(self, delay_s: float, action: Callable[..., None], *arguments: object) -> None:
        """Call `action` in `delay_s` seconds."""
        self._number += 1
        heappush(self._events, (self.now + delay_s, self._number, action, arguments))

    def step(self, end_s: float) -> bool:
        """Run the next event up to `end_s`; if there is none, it is `end_s`, and False returned."""
        events = self._events
        if not events or events[0][0] > end_s:
            self.now = end_s
            return False
        self.now, _, action, arguments = heappop(events)
        self.count += 1
        action(*arguments)
        return True

    def run_until(self, end_s: float) -> None:
        """Run every event up to `end_s`; then it is `end_s`."""
        events = self._events
        while events and events[0][0] <= end_s:
            self.now, _, action, arguments = heappop(events)
            self.count += 1
            action(*arguments)
        self.now = end_s
