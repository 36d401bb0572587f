"""Looks for a mistake by simulation."""

from __future__ import annotations

from jepsen_like.mutants.mutant import Fate, Mutant, Trial
from jepsen_like.mutants.search import Found, search
from jepsen_like.mutants.showing import BROKERS_SHOW_AT, HOSTS_SHOW_AT, MEMBERS_SHOW_AT
from jepsen_like.simulation.campaign import Plan, run_seed
from jepsen_like.simulation.tiers import TIERS

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
    is_aimed = mutant.name in TIERS[mutant.area].aimed
    show_at = {**MEMBERS_SHOW_AT, **HOSTS_SHOW_AT, **BROKERS_SHOW_AT}
    first = show_at.get(mutant.name, 0)
    seconds = AIMED_SECONDS if is_aimed else None
    plan = Plan(first, 1, None, seconds, mutant.name, mutant.area, aimed=True)

    def look(seed: int) -> Found | None:
        broken = run_seed(plan, seed).broken
        if broken is None:
            return None
        without = run_seed(plan._replace(is_planted=False), seed).broken
        return Found(broken.promise, Fate.CAUGHT if without is None else Fate.UNCLEAR)

    return search(mutant, first, budget_s, look)
