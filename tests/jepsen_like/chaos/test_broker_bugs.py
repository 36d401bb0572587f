"""Mistakes that are planted in the brokers of a run."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from jepsen_like.__main__ import main
from jepsen_like.chaos.brokers.clients import BROKER_WORKLOADS
from jepsen_like.chaos.brokers.known_bugs import KNOWN_BUGS
from jepsen_like.chaos.brokers.seeded_bugs import SEEDED_BUGS
from jepsen_like.chaos.members.seeded_bugs import BUGS
from jepsen_like.chaos.nemeses.catalogue import NEMESES
from jepsen_like.simulation.seeded_bug import planted


def test_what_is_said_of_each_mistake_is_what_its_code_says() -> None:
    assert {name: bug.what for name, bug in KNOWN_BUGS.items()} == {
        name: bug.what for name, bug in SEEDED_BUGS.items()
    }
    assert not KNOWN_BUGS.keys() & BUGS.keys()


@pytest.mark.parametrize("name", list(KNOWN_BUGS))
def test_each_mistake_can_be_planted_and_names_what_shows_it(name: str) -> None:
    bug = KNOWN_BUGS[name]
    assert bug.workload in BROKER_WORKLOADS
    assert set(bug.nemesis.split(",")) <= NEMESES.keys()
    replaced = SEEDED_BUGS[name].replacements()
    assert replaced
    before = [getattr(owner, attribute) for owner, attribute, _ in replaced]
    with planted(SEEDED_BUGS[name]):
        assert all(
            getattr(owner, attribute) is not one
            for (owner, attribute, _), one in zip(replaced, before, strict=True)
        )


@pytest.mark.parametrize(
    ("workload", "dirty", "whose"),
    [("messages", "stale-read", "services"), ("register", "offsets-in-memory", "brokers")],
)
def test_a_mistake_goes_with_a_workload_of_its_kind(workload: str, dirty: str, whose: str) -> None:
    ended = CliRunner().invoke(main, ["run", "--workload", workload, "--dirty", dirty])
    assert ended.exit_code == 2
    assert f"--dirty {dirty} is a mistake of {whose}" in ended.output
