"""Looks for a mistake by simulation."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import nullcontext

from jepsen_like.mutants.mutant import Fate, Mutant, Trial
from jepsen_like.mutants.showing import HOSTS_SHOW_AT, MEMBERS_SHOW_AT
from jepsen_like.simulation.failure import Failure
from jepsen_like.simulation.seeded_bug import planted
from jepsen_like.simulation.tiers import TIERS

# The log lines of simulated members are dropped.
logging.getLogger("dledger").addHandler(logging.NullHandler())

# Virtual seconds with faults in runs that are aimed at one mistake.
AIMED_SECONDS = 10.0


def simulated_trial(mutant: Mutant, budget_s: float) -> Trial:
    """Simulate seed after seed with a mistake until a promise breaks, or time is over.

    The mistake is planted in this process, by other functions in the place of the product's. The
    seed that shows it is run once more without it, and must break nothing then.

    Args:
        mutant: a mistake of a tier.
        budget_s: no seed begins after so many seconds.
    """
    begin_s = time.monotonic()
    tier = TIERS[mutant.area]
    aimed = tier.aimed.get(mutant.name)
    first = {**MEMBERS_SHOW_AT, **HOSTS_SHOW_AT}.get(mutant.name, 0) if aimed is None else 0
    seconds = None if aimed is None else AIMED_SECONDS

    def broken(seed: int, is_planted: bool) -> str | None:
        run = (aimed or tier.make)(seed, None, seconds, None)
        with planted(tier.bugs[mutant.name]) if is_planted else nullcontext():
            return _promise_broken(run.run)

    runs = 0
    while True:
        seed = first + runs
        runs += 1
        oracle = broken(seed, is_planted=True)
        passed_s = time.monotonic() - begin_s
        if oracle is not None:
            fate = Fate.CAUGHT if broken(seed, is_planted=False) is None else Fate.UNCLEAR
            return Trial(mutant, fate, oracle, seed, runs, time.monotonic() - begin_s)
        if passed_s >= budget_s:
            return Trial(mutant, Fate.SURVIVED, "", None, runs, passed_s)


def _promise_broken(run: Callable[[], None]) -> str | None:
    try:
        run()
    except Failure as failure:
        return failure.promise
    return None
