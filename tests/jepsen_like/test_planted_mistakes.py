"""Mistakes planted in the product: the simulation finds each of them."""

import pytest

from jepsen_like.mutants.mutant import all_mutants, mutants_of
from jepsen_like.simulation.campaign import Plan, run_campaign, run_seed
from jepsen_like.simulation.tiers import TIERS, tier_of
from jepsen_like.trials.simulated_trial import AIMED_S

# Seed after seed is tried until one shows a mistake. Most show within five; a rare one takes some
# hundred, the rarest a thousand, a second each.
SEEDS = 2_500

SIMULATED = {mutant.name: mutant for tier in TIERS for mutant in mutants_of(tier)}
AIMED = {name for tier in TIERS for name in tier_of(tier).aimed}


def named(names: set[str]) -> list[object]:
    """The names as parameters; those that do not show quickly are for the long run."""
    return [
        pytest.param(name, marks=() if SIMULATED[name].quick else pytest.mark.long)
        for name in sorted(names)
    ]


def is_found(name: str, *, aimed: bool) -> bool:
    """Whether one of the first seeds shows a mistake."""
    tier = SIMULATED[name].tier or ""
    fault_s = AIMED_S if aimed and name in tier_of(tier).aimed else None
    plan = Plan(0, SEEDS, None, fault_s, name, tier=tier, aimed=aimed)
    return run_campaign(plan, jobs=1).broken is not None


def test_each_tier_has_mistakes_and_the_default_suite_looks_for_some_of_each() -> None:
    for tier in TIERS:
        mutants = mutants_of(tier)
        assert len(mutants) > 12
        assert 3 < sum(mutant.quick for mutant in mutants) < 15
        assert tier_of(tier).aimed.keys() <= {mutant.name for mutant in mutants}


@pytest.mark.parametrize("name", named(set(SIMULATED)))
def test_a_mistake_is_found(name: str) -> None:
    assert is_found(name, aimed=True), f"no seed shows {name}"


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(name for name in AIMED if not SIMULATED[name].only_aimed))
def test_a_mistake_is_found_without_an_aim(name: str) -> None:
    assert is_found(name, aimed=False), f"no seed shows {name}"


@pytest.mark.parametrize("name", named(AIMED))
def test_an_aim_breaks_no_promise_by_itself(name: str) -> None:
    make = tier_of(SIMULATED[name].tier or "").aimed[name]
    fault_s = AIMED_S / 5 if SIMULATED[name].quick else AIMED_S / 2
    make(sorted(AIMED).index(name), None, fault_s, None).run()


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(name for name in AIMED if SIMULATED[name].quick))
def test_an_aim_breaks_no_promise_by_itself_for_as_long_as_it_is_used(name: str) -> None:
    make = tier_of(SIMULATED[name].tier or "").aimed[name]
    make(sorted(AIMED).index(name), None, AIMED_S, None).run()


def test_a_mistake_is_gone_after_its_run() -> None:
    plan = Plan(0, 1, seeded_bug="vote-not-durable")
    assert run_seed(plan, 0).broken is not None
    assert run_seed(plan._replace(seeded_bug=None), 0).broken is None
    assert "vote-not-durable" in all_mutants()
