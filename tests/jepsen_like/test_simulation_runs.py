import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jepsen_like.simulation.campaign import Plan, run_campaign, run_seed, trace_seed
from jepsen_like.simulation.simulation import Simulation
from jepsen_like.simulation.swarm import swarm_of
from jepsen_like.simulation.trace import Trace

JOBS = 2


def test_no_seed_of_a_short_campaign_breaks_a_promise() -> None:
    result = run_campaign(Plan(first_seed=0, seeds=3), jobs=1)  # the long one begins with them, too
    assert result.broken is None
    assert result.seeds == 3


@pytest.mark.parametrize("seeds", [1, pytest.param(15, marks=pytest.mark.long)])
def test_members_that_come_back_with_older_folders_break_no_promise(seeds: int) -> None:
    bug = "restored-folder-is-believed"
    plan = Plan(0, seeds, seeded_bug=bug, aimed=True, is_planted=False)
    result = run_campaign(plan, jobs=1)
    assert result.broken is None
    assert result.coverage.counts()["restored folders"] > 2 * seeds


@pytest.mark.long
def test_no_seed_breaks_a_promise_and_every_fault_is_met() -> None:
    result = run_campaign(Plan(first_seed=0, seeds=250), JOBS)
    assert result.broken is None
    assert result.seeds == 250
    assert result.coverage.missing() == []


@pytest.mark.parametrize(
    "seed",
    [
        7001166,  # a sync fails before the last fault, and its member hears of it afterwards
        7001338,  # a member is closed between the end of a sync and the report of it
    ],
)
def test_a_fault_at_a_rare_moment_is_no_broken_promise(seed: int) -> None:
    assert run_seed(Plan(seed, 1), seed).broken is None


@pytest.mark.parametrize(
    ("nodes", "seeds"),
    [(nodes, 1) for nodes in (1, 2, 5)]
    + [pytest.param(nodes, 4, marks=pytest.mark.long) for nodes in (1, 2, 5)],
)
def test_a_group_of_a_given_size_keeps_its_promises(nodes: int, seeds: int) -> None:
    result = run_campaign(Plan(first_seed=500, seeds=seeds, nodes=nodes), jobs=1)
    assert result.broken is None
    assert result.coverage.counts()["acknowledged appends"] > 0


@pytest.fixture(scope="module")
def told_of_seven() -> str:
    sink = io.StringIO()
    trace_seed(Plan(7, 1, fault_s=5.0), 7, sink)
    return sink.getvalue()


def test_one_seed_gives_one_trace(told_of_seven: str) -> None:
    plan = Plan(7, 1, fault_s=5.0)
    again = io.StringIO()
    trace_seed(plan._replace(fault_s=1.0), 8, io.StringIO())
    trace_seed(plan, 7, again)
    assert again.getvalue() == told_of_seven
    assert len(told_of_seven.splitlines()) > 200


def test_two_seeds_give_two_traces() -> None:
    traces = set()
    for seed in range(2):
        sink = io.StringIO()
        trace_seed(Plan(seed, 1, fault_s=2.0), seed, sink)
        traces.add(sink.getvalue())
    assert len(traces) == 2


def test_a_trace_changes_nothing_in_a_run() -> None:
    trace = Trace()
    simulation = Simulation(swarm_of(11, fault_s=5.0), trace)
    simulation.run()
    assert len(trace.last(100_000)) > 200
    assert simulation.coverage.counts() == run_seed(Plan(11, 1, fault_s=5.0), 11).counts


def test_a_process_with_another_hash_seed_gives_the_same_trace(
    tmp_path: Path, told_of_seven: str
) -> None:
    target = tmp_path / "trace"
    command = [sys.executable, "-m", "jepsen_like", "simulate", "--seed", "7", "--seeds", "1"]
    subprocess.run(
        [*command, "--seconds", "5", "--jobs", "1", "--json", "--trace", str(target)],
        env={**os.environ, "PYTHONHASHSEED": "12345"},
        check=True,
        capture_output=True,
        timeout=120,
    )
    assert target.read_text() == told_of_seven


def test_seeds_choose_groups_of_all_sizes_and_faults_of_all_kinds() -> None:
    swarms = [swarm_of(seed) for seed in range(200)]
    assert {swarm.nodes for swarm in swarms} == {1, 2, 3, 5}
    assert {swarm.network.connections for swarm in swarms} == {True, False}
    assert {swarm.network.cuts_hold for swarm in swarms} == {True, False}
    assert any(s.faults.crash_every_s == s.faults.partition_every_s == float("inf") for s in swarms)


def test_what_is_asked_for_replaces_what_the_seed_chooses() -> None:
    swarm = swarm_of(3, nodes=5, fault_s=1.5)
    assert (swarm.nodes, swarm.fault_s) == (5, 1.5)
    assert swarm.network == swarm_of(3).network
