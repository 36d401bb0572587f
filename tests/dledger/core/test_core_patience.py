"""A member's own lateness is not the silence of others, and no lease lasts longer because of it."""

from __future__ import annotations

import pytest

from dledger.core.member_state import Role
from dledger.core.patience import MOST_INTERVALS, Patience
from tests.dledger.core.core_group import Group

INTERVAL_S = 0.1
MOST_S = MOST_INTERVALS * INTERVAL_S


def test_a_member_on_time_loses_nothing() -> None:
    patience = Patience(INTERVAL_S, 7.0)
    for step in range(1, 200):
        patience.look(7.0 + step * MOST_S * 0.99)
    assert (patience.lost_s, patience.delays) == (0.0, 0)
    assert patience.at(9.0) == patience.due(9.0) == patience.true(9.0) == 9.0


@pytest.mark.parametrize("late_s", [0.3, 0.6, 5.0, 30.0, 1e6])
def test_only_a_little_of_the_time_between_two_looks_counts(late_s: float) -> None:
    patience = Patience(INTERVAL_S, 0.0)
    patience.look(0.05)
    patience.look(0.05 + late_s)
    assert patience.at(0.05 + late_s) == pytest.approx(0.05 + MOST_S)
    assert patience.delays == 1


def test_the_next_look_is_due_long_before_time_is_lost() -> None:
    patience = Patience(INTERVAL_S, 3.0)
    assert 3.0 < patience.next_look_at < 3.0 + MOST_S


def test_a_time_taken_before_a_delay_has_its_true_time_ever_after() -> None:
    patience = Patience(INTERVAL_S, 0.0)
    true_times, taken, now = [], [], 0.0
    for pause_s in (0.02, 2.0, 0.1, 0.0, 31.5, 0.149, 0.7, 0.7, 1e4, 0.05):
        now += pause_s
        patience.look(now)
        true_times.append(now)
        taken.append(patience.at(now))
    assert [patience.true(at) for at in taken] == pytest.approx(true_times)


def test_a_time_from_before_all_remembered_delays_is_taken_for_an_earlier_one() -> None:
    patience = Patience(INTERVAL_S, 0.0)
    patience.look(9.0)
    at = patience.at(9.0)
    for step in range(1_000):
        patience.look(10.0 + step)
    assert patience.true(at) <= 9.0
    assert patience.true(patience.at(1009.0)) == pytest.approx(1009.0)


def test_a_deadline_is_over_when_it_is_due_however_the_sums_are_rounded() -> None:
    patience = Patience(INTERVAL_S, 0.0)
    now = 0.0
    for step in range(1, 500):
        now += 0.37 * step / 7
        patience.look(now)
        deadline = patience.at(now) + 0.1 * step / 3
        assert patience.at(patience.due(deadline)) >= deadline


def late_group(*late: str, by_s: float) -> Group:
    """A group that n0 leads, whose `late` members did nothing for a while; the others waited."""
    group = Group([[], [], []])
    group.elect("n0")
    group.pass_time(0.2)
    group.pause(*late, for_s=by_s)
    return group


@pytest.mark.parametrize("by_s", [0.3, 0.6, 1.0, 5.0, 30.0])
def test_nobody_stands_and_no_leader_gives_up_when_all_were_late(by_s: float) -> None:
    group = late_group("n0", "n1", "n2", by_s=by_s)
    for member in ("n0", "n1", "n2"):
        group[member].replica.tick(group.now)
    assert [group[name].role for name in ("n0", "n1", "n2")] == [
        Role.LEADER,
        Role.FOLLOWER,
        Role.FOLLOWER,
    ]
    group.pass_time(2.0)
    assert group["n0"].role is Role.LEADER
    assert group["n0"].term == 1


def test_a_follower_that_was_late_alone_asks_for_no_votes() -> None:
    group = late_group("n1", by_s=2.0)
    group["n1"].replica.tick(group.now)
    assert group["n1"].role is Role.FOLLOWER


def test_a_member_that_is_late_again_and_again_still_notices_a_dead_leader() -> None:
    group = late_group("n1", by_s=0.0)
    replica = group["n1"].replica
    for _ in range(20):
        group.pause("n1", for_s=0.4)
        replica.tick(group.now)
    assert replica.state.role is Role.PRE_CANDIDATE
