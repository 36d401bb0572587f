"""Runs many seeds on all cores and adds up what they reached."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from jepsen_like.mutants.planting import planted
from jepsen_like.simulation.coverage import Coverage
from jepsen_like.simulation.failure import Failure
from jepsen_like.simulation.service.service_campaign import ServiceRun
from jepsen_like.simulation.tiers import MakeRun, tier_of
from jepsen_like.simulation.trace import LineSink, Trace
from jepsen_like.workers import each_in_workers

# The log lines of simulated members are dropped.
logging.getLogger("dledger").addHandler(logging.NullHandler())

# Seeds handed to a worker at once: a second of work, so that the hand-over costs nothing and a
# failure is still reported soon.
SEEDS_AT_ONCE = 5


class Plan(NamedTuple):
    """The runs of a campaign.

    Attributes:
        nodes, fault_s: as each seed draws them if None.
        tier: the kind of simulation, unless `service` is given.
        aimed: use the load and the faults under which the seeded bug shows soon.
        service: the user's state machine, as `module:Machine`.
        time_budget_s: no seed begins after so many seconds.
        is_planted: False runs the unchanged product under the faults of an aim.
    """

    first_seed: int
    seeds: int
    nodes: int | None = None
    fault_s: float | None = None
    seeded_bug: str | None = None
    tier: str = "members"
    aimed: bool = False
    service: str | None = None
    time_budget_s: float | None = None
    is_planted: bool = True


class Broken(NamedTuple):
    """One run that broke a promise; `before_run` if the run could not be made."""

    seed: int
    at_s: float
    promise: str
    how: str
    before_run: bool = False


class SeedResult(NamedTuple):
    seed: int
    virtual_s: float
    counts: dict[str, int]
    broken: Broken | None


class CampaignResult(NamedTuple):
    seeds: int
    virtual_s: float
    real_s: float
    coverage: Coverage
    broken: Broken | None


def run_seed(plan: Plan, seed: int, trace: Trace | None = None) -> SeedResult:
    if plan.service is not None:
        make: MakeRun = partial(ServiceRun, plan.service)
    else:
        tier = tier_of(plan.tier)
        make = tier.aimed.get(plan.seeded_bug or "", tier.make) if plan.aimed else tier.make
    broken = None
    bug = plan.seeded_bug if plan.is_planted else None
    try:
        simulation = make(seed, plan.nodes, plan.fault_s, trace)
    except Failure as failure:  # the run could not be made
        return SeedResult(seed, 0.0, {}, Broken(seed, 0.0, failure.promise, failure.how, True))
    with planted(bug):
        try:
            simulation.run()
        except Failure as failure:
            broken = Broken(seed, failure.at_s, failure.promise, failure.how)
    return SeedResult(seed, simulation.virtual_s, simulation.coverage.counts(), broken)


def trace_seed(plan: Plan, seed: int, sink: LineSink | None = None) -> Trace:
    trace = Trace(sink)
    run_seed(plan, seed, trace)
    return trace


def _results(plan: Plan, jobs: int) -> Iterator[SeedResult]:
    seeds = range(plan.first_seed, plan.first_seed + plan.seeds)
    run = partial(run_seed, plan)
    if jobs == 1 or plan.seeds == 1:
        yield from map(run, seeds)
        return
    # In the order of the seeds: the first failure reported is that of the lowest seed.
    yield from each_in_workers(run, seeds, min(jobs, plan.seeds), SEEDS_AT_ONCE)


def run_campaign(
    plan: Plan, jobs: int, each: Callable[[SeedResult], None] = lambda result: None
) -> CampaignResult:
    """Run the seeds of a plan until one fails or the time budget is spent.

    `each` is called with every result, in the order of the seeds.
    """
    begin_s = time.monotonic()
    coverage, seeds, virtual_s, broken = Coverage(), 0, 0.0, None
    for result in _results(plan, jobs):
        seeds += 1
        virtual_s += result.virtual_s
        coverage.add(result.counts)
        each(result)
        if result.broken is not None:
            broken = result.broken
            break
        budget_s = plan.time_budget_s
        if budget_s is not None and time.monotonic() - begin_s >= budget_s:
            break
    real_s = time.monotonic() - begin_s
    return CampaignResult(seeds, virtual_s, real_s, coverage, broken)
