"""Checks that no task depends on a later wake-up: all possible work is done before time goes on.

A lost wake-up shows late or never, because heartbeats, retries and the next request have the task
look again. So now and then, when no task can run and before time goes on, every task that waits for
work is woken though nothing happened, and every member takes a turn. Each of them finds nothing to
do, unless it should have been woken before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from types import FrameType
from typing import NamedTuple

import trio

from jepsen_like.chance import Chance
from jepsen_like.simulation.hosts.group_book import Broken

# Reading the clock alone may pass a deadline that is nearer.
_NEAREST_S = 1e-4


class Parked(NamedTuple):
    """A place in the product where a task waits to be woken, and in which lot."""

    lot: trio.lowlevel.ParkingLot
    where: str


class LastWakeUp:
    """Wakes everything now and then, and checks that no work results.

    `share` is that of the moments at rest that are looked at. `state` returns all that work
    changes, `left` what waits in vain at rest.
    """

    def __init__(
        self,
        chance: Chance,
        share: float,
        state: Callable[[], object],
        turns: Callable[[], Iterable[Callable[[], None]]],
        left: Callable[[], str],
        broken: Broken,
    ) -> None:
        self._chance = chance
        self._share = share
        self._state = state
        self._turns = turns
        self._left = left
        self._broken = broken
        self._before: object = None
        self._woken: list[str] = []
        self.looks = 0

    def at_rest(self, until_s: float) -> bool:
        """Wake all tasks, or check the results, as no task can run for so long; return whether any
        can.
        """
        if self._woken:
            woken, self._woken = self._woken, []
            if (now := self._state()) != self._before:
                how = f"woken: {sorted(set(woken))}; before: {self._before}, after: {now}"
                self._broken("work does not wait for another wake-up", how)
            return False
        if until_s < _NEAREST_S or not self._chance.happens(self._share):
            return False
        self.looks += 1
        if left := self._left():
            self._broken("nobody waits for what never comes", left)
        self._before = self._state()
        self._woken = ["a turn of each member"]
        for turn in self._turns():
            turn()
        for parked in parked_tasks():
            self._woken.append(parked.where)
            parked.lot.unpark_all()
        return True


def parked_tasks() -> list[Parked]:
    """Return where tasks of the product wait in a lot of its own; each looks again when woken."""
    root = trio.lowlevel.current_root_task()
    return [] if root is None else [found for task in _below(root) if (found := _parked(task))]


def _below(task: trio.lowlevel.Task) -> Iterator[trio.lowlevel.Task]:
    yield task
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield from _below(child)


def _parked(task: trio.lowlevel.Task) -> Parked | None:
    lot = task.custom_sleep_data
    if not isinstance(lot, trio.lowlevel.ParkingLot):
        return None
    calls: list[FrameType] = [frame for frame, _ in task.iter_await_frames()]
    for caller, called in pairwise(calls):
        if called.f_code.co_qualname == "ParkingLot.park":
            module = str(caller.f_globals["__name__"])
            if module.startswith("dledger."):
                return Parked(lot, f"{module}.{caller.f_code.co_name}")
    return None
