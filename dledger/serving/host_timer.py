"""One alarm clock for all groups of a process."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from typing import Protocol

import trio

_NEVER = float("inf")

# Alarms due this soon are handled in the same pass. Most are elections that a heartbeat has put off
# since; each group's alarm would wake the process once or twice a second by itself.
SOON_S = 0.05

# If the timer wakes up this late, messages that arrived meanwhile come first.
LATE_S = 0.05


class Timed(Protocol):
    """An object with a deadline: the driver of a group.

    Attributes:
        alarm_at: when the timer looks at it next; only the timer sets it.
    """

    alarm_at: float

    def alarm(self, now: float) -> None:
        """Do what is due, and call `move` with the next deadline."""
        ...

    def fail(self, error: Exception) -> None:
        """End only this group's node: `alarm` raised `error`."""
        ...


class Collects(Protocol):
    """Gathers the heartbeats of all groups that take a turn in one pass."""

    collecting: bool

    def flush(self) -> None: ...


class HostTimer:
    """Wakes up once for all deadlines that have passed, and has their groups take a turn in a row.

    Moving a deadline back costs nothing, and each heartbeat does so with an election: the timer
    notices it when the old deadline passes.
    """

    def __init__(self, collector: Collects) -> None:
        self._collector = collector
        self._alarms: list[tuple[float, int, Timed]] = []
        self._numbers = count()  # so that the heap never compares two groups
        self._scope = trio.CancelScope()
        self._wakes_at = -_NEVER  # awake: it looks at all alarms before it sleeps

    def move(self, timed: Timed, deadline: float) -> None:
        if deadline >= timed.alarm_at:
            return
        timed.alarm_at = deadline
        heappush(self._alarms, (deadline, next(self._numbers), timed))
        if deadline < self._wakes_at:
            self._wakes_at = self._scope.deadline = deadline

    async def run(self) -> None:
        """Keep all deadlines, without end."""
        while True:
            self._wakes_at = self._alarms[0][0] if self._alarms else _NEVER
            with trio.CancelScope(deadline=self._wakes_at) as self._scope:
                await trio.sleep_forever()
            late = trio.current_time() - self._wakes_at > LATE_S
            self._wakes_at = -_NEVER
            if late:
                # Tasks whose sockets have data are awake as well, and run before this one goes on.
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
