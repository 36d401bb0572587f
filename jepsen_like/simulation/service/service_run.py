"""Runs a schedule of a service from its beginning to a verdict."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing, contextmanager

from jepsen_like.simulation.failure import Failure
from jepsen_like.simulation.service.other_process import NotElsewhere, OtherProcess
from jepsen_like.simulation.service.schedule import Schedule
from jepsen_like.simulation.service.service import Service, Simulated, service_of
from jepsen_like.simulation.service.world import World
from jepsen_like.simulation.trace import Trace


def run_schedule(simulated: Simulated, schedule: Schedule) -> World:
    """Run a schedule to its end; return the world as it is then.

    A service that can be imported is checked in another process as well: see `jepsen-like simulate
    --service`. Raises Failure.
    """
    service = service_of(simulated)
    world = world_of(service, schedule)
    try:
        elsewhere = OtherProcess(service)
    except NotElsewhere:
        run_to_the_end(world, schedule, None)
    else:
        with closing(elsewhere):
            run_to_the_end(world, schedule, elsewhere)
    return world


def world_of(
    service: Service, schedule: Schedule, *, records: bool = True, trace: Trace | None = None
) -> World:
    return World(
        service,
        schedule.nodes,
        schedule.seed,
        records=records,
        trace=trace,
        faults_s=schedule.length_s,
        largest_body_bytes=schedule.largest_body_bytes,
    )


def run_to_the_end(world: World, schedule: Schedule, elsewhere: OtherProcess | None) -> None:
    """Run a world that has not begun. Raises Failure."""
    with _same_random_numbers(schedule.seed):
        world.plan(schedule.steps)
        with world:
            world.run_for(schedule.length_s)
        if elsewhere is not None:
            world.check(lambda: elsewhere.check(world.book))


def failure_of(
    service: Service, schedule: Schedule, elsewhere: OtherProcess | None
) -> Failure | None:
    try:
        world = world_of(service, schedule, records=False)
        run_to_the_end(world, schedule, elsewhere)
    except Failure as failure:
        return failure
    return None


@contextmanager
def _same_random_numbers(seed: int) -> Iterator[None]:
    """Give a machine that draws from `random`, which it must not, the same numbers in each run."""
    before = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(before)
