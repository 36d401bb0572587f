"""Schedules of faults are functions of the seed, and keep to their lanes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from jepsen_like.chaos.client_process import ClientProcess
from jepsen_like.chaos.loopback import loopback
from jepsen_like.chaos.nemeses.catalogue import NEMESES, Lane
from jepsen_like.chaos.nemeses.executor import executor_of
from jepsen_like.chaos.nemeses.schedule import Fault, schedule
from jepsen_like.chaos.plan import RunPlan
from jepsen_like.chaos.run import Run

SEEDS = range(40)
ALL = tuple(NEMESES)


def by_lane(faults: list[Fault]) -> list[list[Fault]]:
    lanes = sorted({fault.lane for fault in faults})
    return [[fault for fault in faults if fault.lane == lane] for lane in lanes]


def test_a_seed_names_one_schedule() -> None:
    assert schedule(7, ALL, 60.0) == schedule(7, tuple(reversed(ALL)), 60.0)
    assert schedule(7, ALL, 60.0) != schedule(8, ALL, 60.0)


def test_a_longer_run_begins_like_a_shorter_one() -> None:
    short, long = schedule(3, ("kill",), 40.0), schedule(3, ("kill",), 80.0)
    assert long[: len(short)] == short
    assert len(long) > len(short)


@pytest.mark.parametrize("seed", SEEDS)
def test_faults_of_a_lane_follow_one_another_and_end_in_time(seed: int) -> None:
    faults = schedule(seed, ("kill", "freeze", "partition", "loss"), 60.0)
    assert faults
    for lane in by_lane(faults):
        for earlier, later in pairwise(lane):
            assert earlier.begin_s + earlier.lasts_s < later.begin_s
        assert all(fault.begin_s + fault.lasts_s <= 60.0 for fault in lane)


def test_some_seeds_run_two_lanes_side_by_side_and_some_do_not() -> None:
    lanes = [len(by_lane(schedule(seed, ("kill", "partition"), 60.0))) for seed in SEEDS]
    assert {1, 2} == set(lanes)


def test_two_lanes_overlap_now_and_then() -> None:
    overlaps = 0
    for seed in SEEDS:
        lanes = by_lane(schedule(seed, ("kill", "partition"), 60.0))
        if len(lanes) == 2:
            overlaps += any(
                one.begin_s < other.begin_s + other.lasts_s
                and other.begin_s < one.begin_s + one.lasts_s
                for one in lanes[0]
                for other in lanes[1]
            )
    assert overlaps


@pytest.mark.parametrize("seed", SEEDS)
def test_every_kind_comes_before_one_comes_again(seed: int) -> None:
    kinds = [fault.kind for fault in schedule(seed, ("kill", "freeze"), 120.0)]
    first = kinds[: len({kind.name for name in ("kill", "freeze") for kind in NEMESES[name].kinds})]
    assert len(set(first)) == len(first)


def test_each_fault_draws_from_a_stream_of_its_own() -> None:
    faults = schedule(1, ALL, 200.0)
    assert len({fault.chance for fault in faults}) == len(faults)
    assert [fault.number for fault in faults] == list(range(len(faults)))


def test_nothing_breaks_without_a_nemesis() -> None:
    assert schedule(1, (), 60.0) == []


def test_a_run_of_seconds_has_faults_too() -> None:
    assert all(schedule(seed, ("kill", "freeze"), 5.0) for seed in SEEDS)


def test_kinds_have_names_of_their_own() -> None:
    names = [kind.name for nemesis in NEMESES.values() for kind in nemesis.kinds]
    assert len(set(names)) == len(names)
    assert {nemesis.lane for nemesis in NEMESES.values()} == set(Lane)


def test_a_run_carries_out_each_kind_or_says_why_not(tmp_path: Path) -> None:
    run = Run(RunPlan("register", ()), tmp_path, lambda progress: None)
    run._wiring = loopback(["n0"])
    executors = run._executors({}, ClientProcess([], tmp_path / "clients.log"))
    kinds = [(name, kind.name) for name, one in NEMESES.items() for kind in one.kinds]
    assert executors.keys() <= NEMESES.keys() | {kind for _, kind in kinds}
    for name, kind in kinds:
        assert executor_of(executors, name, kind) is not None
