"""Whole hosts in virtual time: no seed breaks a promise, planted bugs are found, runs repeat."""

import os
import subprocess
import sys

import pytest

from jepsen_like.simulation.campaign import Plan, run_campaign
from jepsen_like.simulation.hosts.host_simulation import HostSimulation
from jepsen_like.simulation.hosts.plan import plan_of
from jepsen_like.simulation.trace import Trace

PRINT_DIGEST = """
from jepsen_like.simulation.hosts.host_simulation import HostSimulation
from jepsen_like.simulation.hosts.plan import plan_of
run = HostSimulation(plan_of(3, hosts=3, fault_s=0.5))
run.run()
print(run.digest)
"""


def digest_of(seed: int) -> str:
    run = HostSimulation(plan_of(seed, hosts=3, fault_s=0.5))
    run.run()
    return run.digest


@pytest.fixture(scope="module")
def told_before() -> str:
    """What one run of the third seed is; it takes seconds."""
    return digest_of(3)


def test_no_seed_breaks_a_promise_of_a_host() -> None:
    result = run_campaign(Plan(first_seed=0, seeds=1, fault_s=6.0, tier="hosts"), jobs=1)
    assert result.broken is None
    counts = result.coverage.counts()
    for reached in ("acknowledged by members", "acknowledged to clients", "members replaced"):
        assert counts[reached] > 0
    assert counts["kills"] > 0


@pytest.mark.long
@pytest.mark.parametrize(
    "seed",
    [
        7000011,  # the old member is still being opened when it is to make room for the new one
        5026,  # the old member is closed, and its group cannot begin without it
    ],
)
def test_a_member_is_replaced_at_a_rare_moment(seed: int) -> None:
    assert run_campaign(Plan(seed, seeds=1, tier="hosts"), jobs=1).broken is None


@pytest.mark.long  # a run with a trace, and one in another process, are the same as well
def test_the_same_seed_makes_the_same_run_of_hosts(told_before: str) -> None:
    assert digest_of(4) != told_before
    assert digest_of(3) == told_before


@pytest.mark.parametrize("hash_seed", ["1", pytest.param("random", marks=pytest.mark.long)])
def test_a_run_of_hosts_is_the_same_in_another_process(hash_seed: str, told_before: str) -> None:
    told = subprocess.run(
        [sys.executable, "-c", PRINT_DIGEST],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == told_before


def test_a_trace_tells_what_happened_and_changes_nothing(told_before: str) -> None:
    trace = Trace()
    run = HostSimulation(plan_of(3, hosts=3, fault_s=0.5), trace)
    run.run()
    assert run.digest == told_before
    assert any("hosts opened" in line for line in trace.last(2_000))
