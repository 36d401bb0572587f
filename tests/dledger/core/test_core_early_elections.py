"""Members that see the process of their leader end: they ask for pre-votes soon, and no more."""

from __future__ import annotations

from itertools import pairwise

import pytest

from dledger.core.admission.standing import Standing
from dledger.core.hard_state import HardState
from dledger.core.leader_elector import MUCH_TO_APPLY_ENTRIES, EarlyTurns
from dledger.core.member_state import Role
from dledger.core.messages import Heartbeat, VoteRequest, VoteResponse
from dledger.core.replica import Replica, ReplicaConfig
from tests.dledger.core.configurations import configuration
from tests.dledger.core.core_group import (
    HEARTBEAT_S,
    TIMEOUT_S,
    EntriesAtOnce,
    Group,
    Member,
    view_of,
)

THREE = ["n0", "n1", "n2"]
# With a share of 0.5, when the timer of a member fires that heard its leader at 0.
ORDINARY_S = 1.5 * TIMEOUT_S


def follower(name: str = "n0", standing: Standing = Standing.PROVEN) -> Member:
    """It follows n1 in term 1, whom it heard at 0."""
    member = Member(name, THREE, standing=standing)
    member.replica.receive("n1", Heartbeat(1, -1, 1), 0.0)
    member.sync(0.0)
    member.leaving(0.0)
    return member


def pre_votes(member: Member, now: float) -> list[str]:
    """Whom it asks at that moment."""
    member.replica.tick(now)
    asked = member.leaving(now)
    return [peer for peer, m in asked if isinstance(m, VoteRequest) and m.pre]


def grants(member: Member, now: float, *, pre: bool) -> bool:
    member.replica.receive("n2", VoteRequest(2, 5, 5, pre=pre), now)
    member.sync(now)
    (vote,) = [m for _, m in member.leaving(now) if isinstance(m, VoteResponse)]
    return vote.granted


# --- turns ----------------------------------------------------------------------------------------


def test_members_take_turns_in_the_order_of_their_names_from_the_lost_leader_on() -> None:
    names = ["a", "b", "c", "d", "e"]
    found = {name: EarlyTurns.of(name, "c", names, 1.0) for name in names if name != "c"}
    assert sorted(found, key=lambda name: found[name].first_s) == ["d", "e", "a", "b"]
    assert found["d"].first_s == pytest.approx(0.02)
    assert found["b"].first_s == pytest.approx(0.17)
    assert {turns.round_s for turns in found.values()} == {0.25}


def test_groups_that_lose_the_same_leader_begin_with_different_members() -> None:
    names = "abcd"
    first = {
        spread: min("abd", key=lambda name: EarlyTurns.of(name, "c", names, 1.0, spread).first_s)
        for spread in range(6)
    }
    assert first == {0: "d", 1: "a", 2: "b", 3: "d", 4: "a", 5: "b"}
    for spread in range(3):
        turns = sorted(EarlyTurns.of(name, "c", names, 1.0, spread).first_s for name in "abd")
        assert turns == pytest.approx([0.02, 0.07, 0.12])


def test_no_two_members_share_a_turn_even_if_the_leader_had_no_vote() -> None:
    for leader in ("a", "b", "z"):
        turns = [EarlyTurns.of(name, leader, "abc", 0.5) for name in "abc" if name != leader]
        assert len({turn.first_s for turn in turns}) == len(turns)
        assert all(turn.first_s > 0.0 for turn in turns)


# --- one member -----------------------------------------------------------------------------------


def test_a_member_that_sees_the_end_of_its_leader_asks_at_its_turn_and_not_before() -> None:
    member = follower()
    assert member.replica.leader_gone("n1", 1, 0.1)
    assert member.replica.state.leader is None
    at = member.replica.next_deadline()
    assert at == pytest.approx(0.1 + EarlyTurns.of("n0", "n1", THREE, TIMEOUT_S).first_s)
    assert pre_votes(member, at - 0.001) == []
    assert pre_votes(member, at) == ["n1", "n2"]
    assert (member.role, member.term) == (Role.PRE_CANDIDATE, 1)


def test_it_asks_again_at_each_of_its_turns_until_its_timer_would_have_fired() -> None:
    member = follower()
    member.replica.leader_gone("n1", 1, 0.1)
    times = []
    while (at := member.replica.elector.deadline) <= ORDINARY_S:
        times.append(at)
        assert pre_votes(member, at) == ["n1", "n2"]
    rounds = [later - at for at, later in pairwise(times)]
    assert rounds[:-1] == pytest.approx([3 * 0.05 * TIMEOUT_S] * (len(rounds) - 1))
    assert times[-1] == pytest.approx(ORDINARY_S)
    assert at == pytest.approx(ORDINARY_S + ORDINARY_S)


def test_a_timer_that_fires_earlier_is_not_put_off() -> None:
    member = follower()
    member.replica.leader_gone("n1", 1, ORDINARY_S - 0.001)
    assert member.replica.elector.deadline == pytest.approx(ORDINARY_S)


def test_the_next_word_of_the_leader_undoes_it() -> None:
    member = follower()
    member.replica.leader_gone("n1", 1, 0.1)
    member.replica.receive("n1", Heartbeat(1, -1, 2), 0.105)
    assert member.replica.state.leader == "n1"
    assert member.replica.elector.deadline == pytest.approx(0.105 + ORDINARY_S)
    member.leaving(0.105)
    assert not grants(member, 0.11, pre=True)
    assert pre_votes(member, 0.3) == []


def test_a_sign_of_somebody_elses_end_or_of_another_terms_leader_means_nothing() -> None:
    member = follower()
    deadline = member.replica.elector.deadline
    assert not member.replica.leader_gone("n2", 1, 0.1)
    assert not member.replica.leader_gone("n1", 0, 0.1)
    assert not member.replica.leader_gone("n1", 2, 0.1)
    assert member.replica.state.leader == "n1"
    assert member.replica.elector.deadline == deadline


def test_a_leader_and_a_candidate_take_nobody_for_gone() -> None:
    group = Group([[], [], []])
    group.elect("n0")
    assert not group["n0"].replica.leader_gone("n0", 1, group.now)
    assert group["n0"].role is Role.LEADER
    candidate = Member("n1", THREE)
    candidate.replica.tick(5.0)
    assert not candidate.replica.leader_gone("n0", 0, 5.0)
    assert candidate.role is Role.PRE_CANDIDATE


@pytest.mark.parametrize("pre", [True, False])
def test_a_vote_is_free_only_for_members_that_lost_the_leader_as_well(pre: bool) -> None:
    member = follower()
    assert not grants(member, 0.1, pre=pre)
    member.replica.leader_gone("n1", 1, 0.1)
    assert grants(member, 0.1, pre=pre)


def test_a_member_that_grants_a_pre_vote_misses_its_turn() -> None:
    member = follower()
    member.replica.leader_gone("n1", 1, 0.1)
    turns = EarlyTurns.of("n0", "n1", THREE, TIMEOUT_S)
    assert grants(member, 0.11, pre=True)
    assert pre_votes(member, 0.1 + turns.first_s) == []
    assert pre_votes(member, 0.11 + turns.round_s + turns.first_s) == ["n1", "n2"]


def test_a_member_that_grants_a_pre_vote_after_it_asked_counts_on_no_answer() -> None:
    member = follower()
    member.replica.leader_gone("n1", 1, 0.1)
    asked_at = member.replica.elector.deadline
    assert pre_votes(member, asked_at) == ["n1", "n2"]
    assert grants(member, asked_at, pre=True)
    member.replica.receive("n2", VoteResponse(2, granted=True, pre=True), asked_at)
    assert (member.role, member.term) == (Role.PRE_CANDIDATE, 1)
    again_at = member.replica.elector.deadline
    assert again_at > asked_at
    assert pre_votes(member, again_at) == ["n1", "n2"]
    member.replica.receive("n2", VoteResponse(2, granted=True, pre=True), again_at)
    assert (member.role, member.term) == (Role.CANDIDATE, 2)


def test_a_member_that_refuses_a_pre_vote_keeps_its_turn() -> None:
    member = follower()
    member.replica.view.extend(1, 3)
    member.replica.leader_gone("n1", 1, 0.1)
    member.replica.receive("n2", VoteRequest(2, 0, 1, pre=True), 0.11)
    assert pre_votes(member, 0.1 + EarlyTurns.of("n0", "n1", THREE, TIMEOUT_S).first_s) != []


def test_a_member_in_doubt_or_without_a_vote_does_not_ask() -> None:
    doubting = follower(standing=Standing.LOST)
    learner = Member("n9", [], began_with=configuration(THREE, learners=["n9"]))
    learner.replica.receive("n1", Heartbeat(1, -1, 1), 0.0)
    learner.leaving(0.0)
    for member in (doubting, learner):
        assert member.replica.leader_gone("n1", 1, 0.1)
        assert [pre_votes(member, 0.1 + step / 100) for step in range(40)] == [[]] * 40


def test_with_lease_reads_no_sign_is_believed() -> None:
    config = ReplicaConfig("n0", configuration(THREE), TIMEOUT_S, HEARTBEAT_S, 0.01)
    replica = Replica(config, view_of([]), HardState(), EntriesAtOnce(9), lambda: 0.5, 0.0)
    replica.receive("n1", Heartbeat(1, -1, 1), 0.0)
    deadline = replica.elector.deadline
    assert not replica.leader_gone("n1", 1, 0.1)
    assert replica.state.leader == "n1"
    assert replica.elector.deadline == deadline


# --- a group --------------------------------------------------------------------------------------


def test_a_group_that_sees_its_leader_end_elects_another_in_a_fifth_of_the_timeout() -> None:
    group = Group([[], [], []])
    group.elect("n1")
    group.pass_time(0.3)
    group.silent = {"n1"}
    began = group.now
    for name in ("n0", "n2"):
        assert group[name].replica.leader_gone("n1", 1, group.now)
    group.pass_time(TIMEOUT_S / 5)
    assert group["n2"].role is Role.LEADER
    assert group["n0"].replica.state.leader == "n2"
    assert group.now - began < TIMEOUT_S


@pytest.mark.parametrize("wrong", ["n0", "n2"])
def test_a_member_that_is_wrong_about_its_leader_deposes_nobody(wrong: str) -> None:
    group = Group([[], [], []])
    group.elect("n1")
    group.pass_time(0.3)
    for _ in range(20):
        assert group[wrong].replica.leader_gone("n1", 1, group.now)
        group.pass_time(0.3)
        assert group["n1"].role is Role.LEADER
    assert {member.term for member in group.members.values()} == {1}


def test_a_leader_that_is_heard_before_the_first_turn_stays_though_everybody_was_wrong() -> None:
    group = Group([[], [], []])
    group.elect("n1")
    group.pass_time(0.3)
    for name in ("n0", "n2"):
        assert group[name].replica.leader_gone("n1", 1, group.now)
    group.propose("n1", 1)
    group.run()
    group.pass_time(1.0)
    assert group["n1"].role is Role.LEADER
    assert group["n1"].term == 1


# --- who would keep clients waiting ---------------------------------------------------------------

LONG_LOG = [1] * (MUCH_TO_APPLY_ENTRIES + 10)
LAST = len(LONG_LOG) - 1


def restarted(voters: list[str], applied: int) -> Member:
    """It has just been started over a long log, and heard n1 at 0."""
    member = Member("n0", voters, LONG_LOG, HardState(1, None, LAST))
    if voters != ["n0"]:
        member.replica.receive("n1", Heartbeat(1, LAST, 1), 0.0)
        member.sync(0.0)
        member.leaving(0.0)
    member.replica.applied_to(applied)
    return member


def test_a_member_with_much_to_apply_lets_others_stand_first_but_only_once() -> None:
    member = restarted(THREE, applied=3)
    assert pre_votes(member, ORDINARY_S) == []
    assert member.replica.next_deadline() == pytest.approx(2 * ORDINARY_S)
    assert pre_votes(member, 2 * ORDINARY_S) == ["n1", "n2"]
    member.replica.receive("n2", Heartbeat(2, LAST, 1), 4.0)
    member.leaving(4.0)
    assert pre_votes(member, 4.0 + ORDINARY_S) == []


def test_a_member_with_little_to_apply_stands_when_its_timer_fires() -> None:
    member = restarted(THREE, applied=LAST - MUCH_TO_APPLY_ENTRIES)
    assert pre_votes(member, ORDINARY_S) == ["n1", "n2"]


def test_a_member_with_much_to_apply_passes_its_early_turns_until_it_has_applied() -> None:
    member = restarted(THREE, applied=3)
    member.replica.leader_gone("n1", 1, 0.01)
    turns: list[float] = []
    while len(turns) < 3:
        turns.append(member.replica.next_deadline())
        assert turns[-1] < TIMEOUT_S
        assert pre_votes(member, turns[-1]) == []
    member.replica.applied_to(LAST)
    assert pre_votes(member, member.replica.next_deadline()) == ["n1", "n2"]


def test_a_member_with_much_to_apply_votes_for_others() -> None:
    member = restarted(THREE, applied=3)
    member.replica.receive("n2", VoteRequest(2, LAST, 1, pre=False), TIMEOUT_S)
    member.sync(TIMEOUT_S)
    (vote,) = [m for _, m in member.leaving(TIMEOUT_S) if isinstance(m, VoteResponse)]
    assert vote.granted


def test_a_group_of_one_waits_for_nobody_however_much_it_has_to_apply() -> None:
    member = restarted(["n0"], applied=3)
    member.replica.tick(0.0)
    member.sync(0.0)
    assert member.role is Role.LEADER
