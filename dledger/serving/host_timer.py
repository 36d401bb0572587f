"""One alarm clock for all groups of a process."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from typing import Protocol

import trio

_NEVER = float("inf")

# Alarms due this soon are handled in the same pass. Most are those of elections that a heartbeat
# has put off since; each group's would wake the process once or twice a second by itself.
SOON_S = 0.05

# A timer that wakes up so late was kept from it: messages that arrived meanwhile come first.
LATE_S = 0.05


class Timed(Protocol):
    """Something with a deadline: the driver of a group.

    Attributes:
        alarm_at: when the timer looks at it next; the timer's own note.
    """

    alarm_at: float

    def alarm(self, now: float) -> None:
        """Do what is due, if anything is, and call `move` with the next deadline."""
        ...

    def fail(self, error: Exception) -> None:
        """End this group's node alone: `alarm` raised `error`."""
        ...


class Collects(Protocol):
    """Gathers the heartbeats of all groups that take a turn in one pass."""

    collecting: bool

    def flush(self) -> None:
        """Send them."""
        ...


class HostTimer:
    """Wakes up once for all deadlines that have passed, and has their groups take a turn in a row.

    A deadline that moves back costs nothing, as each heartbeat puts off an election: the timer
    notices it when the old deadline passes.
    """

    def __init__(self, collector: Collects) -> None:
        self._collector = collector
        self._alarms: list[tuple[float, int, Timed]] = []
        self._numbers = count()  # so that the heap never compares two groups
        self._scope = trio.CancelScope()
        self._wakes_at = -_NEVER  # awake: it looks at all alarms before it sleeps

    def move(self, timed: Timed, deadline: float) -> None:
        """Set the deadline of `timed`."""
        if deadline >= timed.alarm_at:
            return
        timed.alarm_at = deadline
        heappush(self._alarms, (deadline, next(self._numbers), timed))
        if deadline < self._wakes_at:
            self._wakes_at = self._scope.deadline = deadline

    async def run(self) -> None:
        """Keep all deadlines, for ever."""
        while True:
            self._wakes_at = self._alarms[0][0] if self._alarms else _NEVER
            with trio.CancelScope(deadline=self._wakes_at) as self._scope:
                await trio.sleep_forever()
            late = trio.current_time() - self._wakes_at > LATE_S
            self._wakes_at = -_NEVER
            if late:
                # All tasks whose sockets have data are awake as well, and run before this one does.
                await trio.lowlevel.checkpoint()
            self._pass(trio.current_time())

    def _pass(self, now: float) -> None:
        due = []
        while self._alarms and self._alarms[0][0] <= now + SOON_S:
            at, _, timed = heappop(self._alarms)
            if timed.alarm_at == at:  # else the deadline moved forward, and was handled then
                timed.alarm_at = _NEVER
                due.append(timed)
        self._collector.collecting = True
        for timed in due:
            try:
                timed.alarm(now)
            except Exception as error:
                timed.fail(error)
        self._collector.flush()
