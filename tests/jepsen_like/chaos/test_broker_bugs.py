"""Mistakes that are planted in the brokers of a run."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from jepsen_like.__main__ import main
from jepsen_like.chaos.brokers.clients import BROKER_WORKLOADS
from jepsen_like.chaos.dirty import DIRTY_BROKERS, DIRTY_SERVICES
from jepsen_like.chaos.nemeses.catalogue import NEMESES


def test_each_mistake_names_what_shows_it() -> None:
    assert len(DIRTY_BROKERS) >= 8
    assert {mutant.workload for mutant in DIRTY_BROKERS.values()} <= BROKER_WORKLOADS.keys()
    for mutant in (*DIRTY_BROKERS.values(), *DIRTY_SERVICES.values()):
        assert set((mutant.nemesis or "kill").split(",")) <= NEMESES.keys()


@pytest.mark.parametrize(
    ("workload", "dirty", "whose"),
    [("messages", "stale-read", "services"), ("register", "offsets-in-memory", "brokers")],
)
def test_a_mistake_goes_with_a_workload_of_its_kind(workload: str, dirty: str, whose: str) -> None:
    ended = CliRunner().invoke(main, ["run", "--workload", workload, "--dirty", dirty])
    assert ended.exit_code == 2
    assert f"--dirty {dirty} is a mistake of {whose}" in ended.output
