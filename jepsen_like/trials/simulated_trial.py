"""Looks for a mistake by simulation."""

from __future__ import annotations

from jepsen_like.mutants.mutant import Mutant
from jepsen_like.simulation.campaign import Plan, run_seed
from jepsen_like.simulation.tiers import tier_of
from jepsen_like.trials.trial import Fate, Found, Trial, search

# Virtual seconds with faults in runs that are aimed at one mistake.
AIMED_S = 10.0


def simulated_trial(mutant: Mutant, budget_s: float) -> Trial:
    """Simulate seed after seed with a mistake until a promise breaks, or time is over.

    The seed that shows it is run once more without it, and must break nothing then.
    """
    assert mutant.tier is not None
    is_aimed = mutant.name in tier_of(mutant.tier).aimed
    fault_s = AIMED_S if is_aimed else None
    plan = Plan(0, 1, None, fault_s, mutant.name, mutant.tier, aimed=is_aimed)

    def look(seed: int) -> Found | None:
        broken = run_seed(plan, seed).broken
        if broken is None:
            return None
        without = run_seed(plan._replace(is_planted=False), seed).broken
        return Found(broken.promise, Fate.CAUGHT if without is None else Fate.UNCLEAR)

    return search(mutant, plan.first_seed, budget_s, look)
