"""Runs seeds of a user's service, and shrinks one that fails."""

from __future__ import annotations

import atexit
import time
from contextlib import suppress
from functools import cache
from typing import NamedTuple

from jepsen_like.simulation.failure import Failure
from jepsen_like.simulation.service.drawn_schedule import drawn_schedule
from jepsen_like.simulation.service.other_process import NotElsewhere, OtherProcess
from jepsen_like.simulation.service.schedule import Schedule
from jepsen_like.simulation.service.service import Service, random_body
from jepsen_like.simulation.service.service_name import service_named
from jepsen_like.simulation.service.service_run import failure_of, run_to_the_end, world_of
from jepsen_like.simulation.service.shrinking import Shrunk
from jepsen_like.simulation.service.world import World
from jepsen_like.simulation.trace import Trace

# What several hundred seeds must reach; a run that never appends says nothing about a machine.
EXPECTED_OF_SERVICES = ("appends done",)


class LoadedService(NamedTuple):
    """A service in this process, and the process that runs its logs again, or `why_not`."""

    service: Service
    elsewhere: OtherProcess | None
    why_not: str


@cache
def loaded(name: str) -> LoadedService:
    """Load a service, once in a process. Raises ServiceUnusable."""
    service = service_named(name)
    try:
        elsewhere = OtherProcess(service)
    except NotElsewhere as error:
        return LoadedService(service, None, str(error))
    atexit.register(elsewhere.close)
    return LoadedService(service, elsewhere, "")


class ServiceRun:
    def __init__(
        self, name: str, seed: int, nodes: int | None, fault_s: float | None, trace: Trace | None
    ) -> None:
        there = loaded(name)
        self._elsewhere = there.elsewhere
        self._schedule = drawn_schedule(there.service, seed, nodes, fault_s)
        self._world = world_of(there.service, self._schedule, records=False, trace=trace)
        self.coverage = self._world.coverage

    @property
    def virtual_s(self) -> float:
        return self._world.now

    def run(self) -> None:
        run_to_the_end(self._world, self._schedule, self._elsewhere)


def shrunk(
    name: str, seed: int, nodes: int | None, fault_s: float | None, budget_s: float
) -> Shrunk | None:
    """Return the shortest failing schedule that is found in so many seconds; None if none fails.

    Raises Failure if the seed has no schedule.
    """
    there = loaded(name)
    schedule = drawn_schedule(there.service, seed, nodes, fault_s)

    def fails(shorter: Schedule) -> Failure | None:
        return failure_of(there.service, shorter, there.elsewhere)

    failure = fails(schedule)
    if failure is None:
        return None
    over_s = time.monotonic() + budget_s
    search = Shrunk(
        schedule,
        failure,
        fails,
        cuts_bodies=there.service.operations is random_body,
        is_over=lambda: time.monotonic() > over_s,
    )
    search.shrink()
    return search


def recorded(name: str, schedule: Schedule) -> World:
    """Run a schedule with its events noted, whether it fails or not; return its world."""
    there = loaded(name)
    world = world_of(there.service, schedule)
    with suppress(Failure):
        run_to_the_end(world, schedule, there.elsewhere)
    return world
