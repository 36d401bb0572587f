"""Nemeses of users: how they are found, and what goes wrong in them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from jepsen_like.chance import Chance
from jepsen_like.chaos.harness_failed import HarnessFailed
from jepsen_like.chaos.members.group import Group
from jepsen_like.chaos.nemeses.catalogue import NEMESES, Kind, Lane
from jepsen_like.chaos.nemeses.executor import Done, Skipped, at_most
from jepsen_like.chaos.nemeses.schedule import schedule
from jepsen_like.chaos.nemeses.users_nemesis import NemesisUnusable, find_nemeses

HERE = __name__


class Quake:
    """Everything shakes."""

    kinds: tuple[Kind, ...] = (Kind("tremor", 1.0, 2.0), Kind("quake", 3.0, 4.0))
    lane = Lane.NETWORK

    @asynccontextmanager
    async def carry_out(self, group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
        yield Done((), {"strength": chance.uniform(1.0, 9.0), "kind": kind})


class Needy(Quake):
    def __init__(self, needed: int) -> None:
        raise AssertionError(needed)


class Kindless(Quake):
    kinds = ()


class Endless(Quake):
    kinds = (Kind("endless", 5.0, 4.0),)


class NeverSettled(Quake):
    kinds = (Kind("unsettled", 1.0, 2.0, settle_s=float("nan")),)


class SameKind(Quake):
    kinds = (Kind("kill-leader", 1.0, 2.0),)


class Laneless(Quake):
    lane: Any = "network"


class Idle:
    kinds = (Kind("idle", 1.0, 2.0),)


class Silent(Quake):
    @asynccontextmanager
    async def carry_out(self, group: Group, chance: Chance, kind: str) -> AsyncIterator[Any]:
        yield None


class Clumsy(Quake):
    @asynccontextmanager
    async def carry_out(self, group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
        raise ZeroDivisionError("a fault in the nemesis")
        yield Done(())


class Ending(Quake):
    @asynccontextmanager
    async def carry_out(self, group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
        raise SystemExit(0)
        yield Done(())


class EndingWhenMade(Quake):
    def __init__(self) -> None:
        raise SystemExit(0)


class Choosy(Quake):
    @asynccontextmanager
    async def carry_out(self, group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
        raise Skipped("not today")
        yield Done(())


def done_by(class_: str) -> Done:
    """Carry out one fault of a class of this module."""
    found = find_nemeses([f"{HERE}:{class_}"])

    async def carried_out() -> Done:
        group = Group(lambda member: None)
        (executor,) = found.executors.values()
        async with executor(group, Chance(1, "fault 0"), "quake") as done:
            return done

    return trio.run(carried_out)


def test_a_nemesis_of_a_user_is_scheduled_in_its_lane_beside_those_of_the_catalogue() -> None:
    found = find_nemeses(["kill", f"{HERE}:Quake"])
    assert found.catalogue.keys() == {*NEMESES, f"{HERE}:Quake"}
    assert found.catalogue[f"{HERE}:Quake"].explanation == "Everything shakes."
    kinds: set[str] = set()
    lanes: set[int] = set()
    for seed in range(10):
        faults = schedule(seed, ["kill", f"{HERE}:Quake"], 60.0, found.catalogue)
        kinds |= {fault.kind for fault in faults}
        lanes |= {fault.lane for fault in faults}
    assert {"tremor", "quake", "kill-leader"} <= kinds
    assert lanes == {0, 1}


def test_its_choices_come_from_the_seed_and_what_it_did_is_told() -> None:
    done = done_by("Quake")
    assert done == done_by("Quake")
    assert done.details["kind"] == "quake"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("quake", "no nemesis is named quake: `jepsen-like list` has them all"),
        ("nowhere:Quake", "cannot import nowhere"),
        (f"{HERE}:Flood", "has no class Flood"),
        (f"{HERE}:Needy", "not made without arguments"),
        (f"{HERE}:EndingWhenMade", "not made without arguments: SystemExit: 0"),
        (f"{HERE}:Kindless", "`kinds` is no tuple of Kind"),
        (f"{HERE}:Endless", "endless lasts from shortest_s to longest_s"),
        (f"{HERE}:NeverSettled", "unsettled lasts from shortest_s to longest_s"),
        (f"{HERE}:SameKind", "there is a kind kill-leader already"),
        (f"{HERE}:Laneless", "`lane` is no Lane"),
        (f"{HERE}:Idle", "has no carry_out"),
    ],
)
def test_a_class_that_is_no_nemesis_is_refused_in_a_line(name: str, said: str) -> None:
    with pytest.raises(NemesisUnusable, match=re.escape(said)) as refused:
        find_nemeses([name])
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("class_", "said"),
    [
        ("Silent", "yields None and no Done"),
        ("Clumsy", "ZeroDivisionError"),
        ("Ending", "SystemExit: 0"),
    ],
)
def test_what_goes_wrong_in_a_nemesis_is_told_as_a_failure_of_the_harness(
    class_: str, said: str
) -> None:
    with pytest.raises(HarnessFailed, match=said):
        done_by(class_)


def test_a_nemesis_may_leave_a_fault_out() -> None:
    with pytest.raises(Skipped, match="not today"):
        done_by("Choosy")


async def test_a_fault_that_does_not_end_is_given_up(
    autojump_clock: trio.testing.MockClock,
) -> None:
    said = r"fault 3 \(stutter\) did not end within 300 s"
    with pytest.raises(HarnessFailed, match=said), at_most(300.0, "fault 3 (stutter)"):
        await trio.sleep(301.0)
    with at_most(300.0, "fault 3 (stutter)"):
        await trio.sleep(299.0)
