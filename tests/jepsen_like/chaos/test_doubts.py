"""Whether faults took effect, and what a run says if they did not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from jepsen_like.chance import Chance
from jepsen_like.chaos.doubts import Doubts, doubts_of
from jepsen_like.chaos.links.condition import LinkCondition
from jepsen_like.chaos.links.counts import Counts, LinkCounts
from jepsen_like.chaos.members.group import Group
from jepsen_like.chaos.members.member import Member
from jepsen_like.chaos.nemeses.executor import executor_of
from jepsen_like.chaos.nemeses.network_faults import NetworkFaults
from jepsen_like.chaos.plan import RunPlan
from jepsen_like.chaos.run import RunResult
from jepsen_like.chaos.verdict import doubted, run_file
from jepsen_like.chaos.wiring import CLIENTS_HOST, PROXY_HOSTS, Addresses, Wiring
from jepsen_like.report.told_run import RunExit

FATES = {"lost": 3, "held": 5, "copied": 2}


class CountingNetwork:
    """Counts three lost packets, five held up and two doubled, each time that links break."""

    def __init__(self, *, works: bool, hosts: Sequence[str] = ()) -> None:
        nowhere = Addresses("", "", "")
        self.wiring = Wiring("counting", dict.fromkeys(hosts, nowhere), lambda _, argv: [*argv])
        self.cut: set[tuple[str, str]] = set()
        self._works = works
        self._counts: Counts = {}

    async def set_links(self, links: Mapping[tuple[str, str], LinkCondition]) -> None:
        self.cut.update(links)
        for link in links if self._works else ():
            counts = self._counts.setdefault(link, LinkCounts(passed=100))
            counts.lost += FATES["lost"]
            counts.held += FATES["held"]
            counts.copied += FATES["copied"]

    async def heal(self) -> None:
        await self.set_links({})

    async def counts(self) -> Counts:
        return {link: LinkCounts(**vars(one)) for link, one in self._counts.items()}


def group_of_three(folder: Path) -> Group:
    group = Group(lambda member: None)
    for name in ("n0", "n1", "n2"):
        group.start(Member(name, [], folder / name, folder))
    return group


@pytest.mark.parametrize(
    ("kind", "fate"),
    [
        ("halves", "lost"),
        ("loss", "lost"),
        ("delay", "held"),
        ("reorder", "held"),
        ("duplicate", "copied"),
    ],
)
async def test_a_fault_of_the_network_tells_how_many_packets_it_met(
    kind: str, fate: str, tmp_path: Path
) -> None:
    faults = NetworkFaults(CountingNetwork(works=True))  # type: ignore[arg-type]
    for _ in range(2):  # what an earlier fault met does not count
        chance = Chance(1, "fault 0")
        executor = executor_of(faults.executors, "partition", kind)
        async with executor(group_of_three(tmp_path), chance, kind) as done:
            links = len(done.details.get("cut", ())) or (6 if len(done.targets) == 3 else 4)
        assert done.effect() == {fate: links * FATES[fate]}


async def test_silence_cuts_clients_and_their_proxies_off_from_all_members(tmp_path: Path) -> None:
    outside = {CLIENTS_HOST, *PROXY_HOSTS}
    network = CountingNetwork(works=True, hosts=["n0", "n1", "n2", *outside])
    faults = NetworkFaults(network)  # type: ignore[arg-type]
    executor = executor_of(faults.executors, "silence", "clients-cut")
    async with executor(group_of_three(tmp_path), Chance(1, "fault 0"), "clients-cut"):
        pass
    members = {"n0", "n1", "n2"}
    one_way = {(source, target) for source in outside for target in members}
    assert network.cut == one_way | {(target, source) for source, target in one_way}


async def test_a_fault_whose_network_does_not_obey_has_no_effect(tmp_path: Path) -> None:
    faults = NetworkFaults(CountingNetwork(works=False))  # type: ignore[arg-type]
    chance = Chance(1, "fault 0")
    executor = executor_of(faults.executors, "partition", "halves")
    async with executor(group_of_three(tmp_path), chance, "halves") as done:
        pass
    assert done.effect() == {"lost": 0}


def ended(number: int, kind: str, **fields: object) -> dict[str, object]:
    return {"event": "end", "fault": number, "nemesis": "any", "kind": kind, **fields}


def test_faults_that_met_nothing_are_named_and_others_are_not() -> None:
    events = [
        ended(0, "kill-leader"),
        ended(1, "halves", effect={"lost": 3}),
        ended(2, "majorities-ring", effect={"lost": 0}),
        ended(3, "delay", effect={"held": 0}),
        ended(4, "a user's", effect={"writes refused": 0}),
        ended(5, "fsync-slow-all", effect={"delayed": 0}),
        ended(6, "fsync-fails-random", effect={"failed": 0}),
        ended(7, "clock-all", effect={"stepped": 0}),
    ]
    assert doubts_of(events, {("a", "b"): LinkCounts(lost=3)}) == Doubts(
        (
            "fault 2 (majorities-ring) lost no packet: it broke nothing",
            "fault 3 (delay) held up no packet: it broke nothing",
            "fault 4 (a user's) says writes refused: 0: it broke nothing",
            "fault 5 (fsync-slow-all) delayed no sync: it broke nothing",
            "fault 6 (fsync-fails-random) failed no sync: it broke nothing",
            "fault 7 (clock-all) met no reading of the clock: it broke nothing",
        ),
        nothing_broke=False,
    )


def test_packets_lost_for_want_of_room_are_told() -> None:
    links = {("a", "b"): LinkCounts(overflowed=2), ("b", "a"): LinkCounts(overflowed=5)}
    assert doubts_of([], links) == Doubts(
        ("the switch lost 7 packets for want of room: the run was overloaded",),
        nothing_broke=False,
    )


def test_a_run_whose_network_broke_nothing_is_undecided() -> None:
    broke_nothing = doubts_of([ended(0, "halves", effect={"lost": 0})], {})
    assert doubted("all is well", broke_nothing) == (
        RunExit.UNDECIDED,
        "all is well; but fault 0 (halves) lost no packet: it broke nothing",
    )


def test_a_run_with_one_fault_in_doubt_says_so_and_has_found_nothing() -> None:
    assert doubted("all is well", Doubts(("a", "b"), nothing_broke=False)) == (
        RunExit.NOTHING_FOUND,
        "all is well; but a, and 1 more in doubt",
    )
    assert doubted("all is well", doubts_of([], {})) == (RunExit.NOTHING_FOUND, "all is well")


def test_run_json_has_what_became_of_the_packets_of_each_link() -> None:
    result = RunResult(network="namespaces", links={("a", "b"): LinkCounts(9, 2, 3, 4, 5)})
    assert run_file(RunPlan("set", ()), "again", [], result)["network"] == {
        "kind": "namespaces",
        "left_out": [],
        "links": [
            {
                "source": "a",
                "target": "b",
                "passed": 9,
                "lost": 2,
                "held": 3,
                "copied": 4,
                "overflowed": 5,
            }
        ],
    }
