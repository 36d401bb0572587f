"""Members that were all ended and started again: a leader as soon as a quorum of them runs."""

from __future__ import annotations

from random import Random

import pytest

from dledger.core.member_state import Role
from tests.dledger.core.core_group import TIMEOUT_S
from tests.dledger.core.timed_group import TimedGroup

# Two turns of a group of five, and what an election takes at a millisecond a message and four a
# sync.
SOON_S = 0.4 * TIMEOUT_S


def restarted(size: int, seed: int, max_clock_drift: float | None = None) -> TimedGroup:
    """Members in term 3, none of which has reached another."""
    names = [f"n{at}" for at in range(size)]
    group = TimedGroup(
        names,
        lambda _a, _b: 0.001,
        lambda _name: 0.004,
        seed=seed,
        max_clock_drift=max_clock_drift,
        term=3,
    )
    for name in names:
        group.separate([name])
    return group


def connect(group: TimedGroup, one: str, other: str) -> None:
    """Both reach each other."""
    for sender, receiver in ((one, other), (other, one)):
        group.cut.discard((sender, receiver))
        group.members[sender].replica.reachable(receiver, group.now)
        group.turn(sender)


@pytest.mark.parametrize("size", [2, 3, 4, 5, 7])
def test_they_have_a_leader_soon_after_a_quorum_reaches_each_other(size: int) -> None:
    for seed in range(30):
        group = restarted(size, seed)
        chance = Random(seed)
        names = chance.sample(sorted(group.members), size // 2 + 1)
        group.run_for(chance.uniform(0.0, 0.4 * TIMEOUT_S))
        pairs = [(a, b) for at, a in enumerate(names) for b in names[at + 1 :]]
        for a, b in chance.sample(pairs, len(pairs)):
            group.run_for(chance.uniform(0.0, 0.01 * TIMEOUT_S))
            connect(group, a, b)
        group.run(lambda group=group: group.leader is not None, SOON_S)  # type: ignore[misc]


def test_one_whose_timer_has_fired_alone_asks_again_when_it_reaches_a_quorum() -> None:
    for seed in range(30):
        group = restarted(3, seed)
        group.run_for(5.0 * TIMEOUT_S)
        assert group.members["n2"].role is Role.PRE_CANDIDATE
        connect(group, "n2", "n1")
        group.run(lambda group=group: group.leader is not None, SOON_S)  # type: ignore[misc]


def test_one_that_reaches_a_working_group_deposes_nobody() -> None:
    for seed in range(30):
        group = restarted(3, seed)
        connect(group, "n0", "n1")
        group.run(lambda group=group: group.leader is not None, 5 * TIMEOUT_S)  # type: ignore[misc]
        leader = group.leader
        assert leader is not None
        term = leader.term
        group.run_for(0.1 * TIMEOUT_S)
        for name in ("n1", "n0") if leader.name == "n0" else ("n0", "n1"):  # its leader comes last
            connect(group, "n2", name)
        group.run_for(3 * TIMEOUT_S)
        assert group.leader is leader
        assert leader.term == term


def test_with_lease_reads_they_wait_for_their_timers() -> None:
    group = restarted(3, 1, max_clock_drift=0.001)
    connect(group, "n0", "n1")
    group.run_for(0.99 * TIMEOUT_S)
    assert all(member.role is Role.FOLLOWER for member in group.members.values())
