"""Runs trio in virtual time, with every choice of its scheduler a function of a seed.

Time stands still while any task can run, and leaps to the next deadline when none can. trio leaves
the order of tasks that become ready together to chance; two private knobs of it, which its own
tests use as well, make that order a function of the seed.
"""

from __future__ import annotations

import gc
import math
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import trio
from trio._core import _run

Result = TypeVar("Result")

# Real seconds that trio may wait for its own wake-up call, when it ends without any deadline.
WAKE_UP_S = 0.001


# Virtual time that reading the clock takes. Without it, a task that waits for a time which is too
# small to be added to the clock would wait for ever.
LOOK_S = 1e-9


class LeapingClock(trio.abc.Clock):
    """A clock that leaps to the next deadline instead of waiting for it.

    Like trio.testing.MockClock with an autojump threshold of 0, without its second round of the
    loop for each leap. A task may only wait for other tasks: the clock would overtake a thread or a
    socket.
    """

    def __init__(self) -> None:
        self.now = 0.0
        # Called when no task can run, with the time until one can; returns whether one can now.
        self.at_rest: Callable[[float], bool] = lambda _until_s: False

    def start_clock(self) -> None: ...

    def current_time(self) -> float:
        """Return the virtual seconds since the beginning."""
        self.now += LOOK_S
        return self.now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Leap to that deadline, as no task can run, and sleep no real time."""
        if self.at_rest(deadline - self.now):
            return 0.0
        if deadline == math.inf:
            return WAKE_UP_S
        self.now = max(self.now, deadline)
        return 0.0


def _allow(deterministic: bool) -> None:
    vars(_run)["_ALLOW_DETERMINISTIC_SCHEDULING"] = deterministic


@contextmanager
def _decided_by(seed: int) -> Iterator[None]:
    """Make the random choices of trio and of the random module functions of the seed."""
    scheduling = _run._ALLOW_DETERMINISTIC_SCHEDULING
    tasks, other = _run._r.getstate(), random.getstate()
    _allow(True)
    _run._r.seed(f"{seed}/order of tasks")
    random.seed(f"{seed}/random")
    collects = gc.isenabled()
    # the time of a collection, and what it ends, depend on earlier runs in this process
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
        random.setstate(other)
        _run._r.setstate(tasks)
        _allow(scheduling)


def run_in_virtual_time(
    seed: int, clock: LeapingClock, main: Callable[[], Awaitable[Result]]
) -> Result:
    """Return the result of `trio.run(main)`; the same seed makes the same run."""
    with _decided_by(seed):
        return trio.run(main, clock=clock)
