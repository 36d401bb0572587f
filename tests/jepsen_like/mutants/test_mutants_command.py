"""`jepsen-like mutants`: known mistakes are found, and told when they are not."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from jepsen_like import mutants_command
from jepsen_like.__main__ import main
from jepsen_like.mutants.mutant import Mutant, all_mutants
from jepsen_like.mutants_command import AREAS, known_mutants
from jepsen_like.simulation.campaign import Broken, SeedResult
from jepsen_like.trials import simulated_trial
from jepsen_like.trials.chaos_trial import TrialFailed
from jepsen_like.trials.trial import Fate, Trial


def mutants(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["mutants", *arguments])


@pytest.fixture
def harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake that is none."""
    mutant = all_mutants()["vote-twice"]
    monkeypatch.setitem(all_mutants(), mutant.name, mutant._replace(changes=()))


def test_there_are_mistakes_in_every_area_with_names_of_their_own() -> None:
    known = known_mutants()
    assert len({mutant.name for mutant in known}) == len(known) >= 70
    assert {mutant.area for mutant in known} == set(AREAS)


def test_a_mistake_that_is_caught_is_told_with_its_seed_and_the_promise_it_breaks() -> None:
    ended = mutants("--only", "vote-not-durable", "--only", "half-messages-seen", "--jobs", "1")
    assert ended.exit_code == 0
    *rows, last = ended.stdout.splitlines()
    assert last == "mutants: caught 2/2"
    assert [row.split("  ")[:3] for row in rows] == [
        ["vote-not-durable", "members", "caught"],
        ["half-messages-seen", "brokers", "caught"],
    ]


@pytest.mark.usefixtures("harmless")
def test_a_mistake_that_nothing_shows_fails_the_command() -> None:
    ended = mutants("--only", "vote-twice", "--time-budget", "1", "--json")
    assert ended.exit_code == 1
    told = json.loads(ended.stdout)
    assert (told["mutants"], told["caught"]) == (1, 0)
    (trial,) = told["trials"]
    assert (trial["fate"], trial["oracle"], trial["seed"]) == ("survived", "", None)


def test_a_promise_that_breaks_without_the_mistake_as_well_is_no_catch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = SeedResult(0, 1.0, {}, Broken(0, 1.0, "always broken", "whatever is planted"))
    monkeypatch.setattr(simulated_trial, "run_seed", lambda _plan, _seed: broken)
    ended = mutants("--only", "vote-twice")
    assert ended.exit_code == 1
    assert "also without it" in ended.stdout
    assert ended.stdout.endswith("mutants: caught 0/1\n")


@pytest.mark.parametrize(
    ("trial", "status"),
    [
        (lambda mutant, _: Trial(mutant, Fate.CAUGHT, "not linearizable", 1, 1, 60.0), 0),
        (lambda mutant, _: Trial(mutant, Fate.SURVIVED, "", None, 1, 60.0), 1),
    ],
)
def test_mistakes_of_services_are_looked_for_in_runs_of_real_processes(
    trial: Callable[[Mutant, float], Trial], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutants_command, "chaos_trial", trial)
    ended = mutants("--area", "services")
    assert ended.exit_code == status
    services = sum(mutant.area == "services" for mutant in known_mutants())
    caught = 0 if status else services
    assert ended.stdout.endswith(f"mutants: caught {caught}/{services}\n")


def test_a_run_that_cannot_be_made_is_told_and_what_was_found_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(mutant: Mutant, _budget_s: float) -> Trial:
        raise TrialFailed(f"{mutant.name}: no network")

    monkeypatch.setattr(mutants_command, "chaos_trial", fails)
    ended = mutants("--only", "stale-read", "--only", "vote-not-durable")
    assert ended.exit_code == 3
    assert "a run failed: stale-read: no network" in ended.stderr
    assert ended.stdout.endswith("mutants: caught 1/2\n")


def test_a_name_that_no_mistake_has_is_a_wrong_call() -> None:
    ended = mutants("--only", "no-such-mistake")
    assert ended.exit_code == 2
    assert "no mistake is called no-such-mistake" in ended.stderr


def test_the_list_says_what_each_mistake_is() -> None:
    ended = mutants("--list")
    assert ended.exit_code == 0
    assert len(ended.stdout.splitlines()) == len(known_mutants())


def test_a_mistake_is_shown_as_a_diff_of_the_function_that_it_replaces() -> None:
    ended = mutants("--show", "offsets-in-memory")
    assert ended.exit_code == 0
    assert ended.stdout.startswith("offsets-in-memory (services): offsets are kept in the leader's")
    assert "\n--- broker/offsets/commits.py\n" in ended.stdout
    assert "\n-            self._waiting.thens.append(then)\n" in ended.stdout
    assert "\n+            then(None)\n" in ended.stdout


def test_each_mistake_has_a_diff() -> None:
    for mutant in known_mutants():
        lines = mutant.diff().splitlines()
        assert {"-", "+"} & {line[0] for line in lines if line[:3] not in ("---", "+++")}


def test_a_mistake_that_is_not_there_is_not_shown() -> None:
    ended = mutants("--show", "no-such-mistake")
    assert ended.exit_code == 2
    assert "no mistake is called no-such-mistake" in ended.stderr
