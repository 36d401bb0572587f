"""Known traps of elections; docs/traps.md says which test stands for which."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dledger.core.hard_state import HardState
from dledger.core.member_state import Role
from dledger.core.messages import Heartbeat, Message, Phase, PushRequest, VoteRequest, VoteResponse
from dledger.core.replica import Outgoing
from tests.dledger.core.core_group import HEARTBEAT_S, TIMEOUT_S, Group, Member

THREE = ["n0", "n1", "n2"]
LATER = 2 * TIMEOUT_S


def votes(messages: list[Outgoing]) -> list[tuple[str, VoteResponse]]:
    return [(peer, message) for peer, message in messages if isinstance(message, VoteResponse)]


def test_a_candidate_that_lost_its_log_does_not_get_the_vote_it_once_got() -> None:
    # n1 has the vote of term 3, and comes back with a shorter log: the vote was for the longer one.
    member = Member("n0", THREE, [1, 1, 2], HardState(3, "n1"))
    member.replica.receive("n1", VoteRequest(3, 0, 1, pre=False), LATER)
    member.replica.receive("n1", VoteRequest(3, 2, 2, pre=False), LATER)
    assert [vote.granted for _, vote in votes(member.leaving(LATER))] == [False, True]


@pytest.mark.parametrize("vote", ["n0", "n1"])
def test_a_vote_is_kept_when_the_leader_of_its_term_is_heard(vote: str) -> None:
    # A vote forgotten within its term is given twice, once the leader is silent again.
    member = Member("n0", THREE, [1, 1], HardState(5, vote))
    probe = PushRequest(5, Phase.COMPARE, 7, 4, 7, -1)
    member.replica.receive("n1", probe, 0.0)
    member.sync(0.0)
    assert member.replica.state.voted_for == vote
    member.replica.tick(LATER)
    assert member.role is Role.PRE_CANDIDATE
    member.leaving(LATER)
    member.replica.receive("n2", VoteRequest(5, 9, 5, pre=False), LATER)
    member.sync(LATER)
    assert votes(member.leaving(LATER)) == [("n2", VoteResponse(5, granted=False, pre=False))]


def test_a_pre_vote_for_an_old_term_is_answered_with_the_new_one() -> None:
    # Without an answer, a member with the better log and the lower term would ask for ever.
    group = Group([[1, 1], [1], [1]])
    for name in ("n1", "n2"):
        group.members[name] = Member(name, THREE, [1], HardState(9))
    group.stand("n0")
    group.run()
    assert (group["n0"].role, group["n0"].term) == (Role.FOLLOWER, 9)
    group.elect("n0")
    assert group["n0"].log == [1, 1, group["n0"].term]


def test_a_self_vote_that_reaches_the_disk_too_late_counts_for_no_later_term() -> None:
    member = Member("n0", THREE)
    member.replica.tick(LATER)
    member.replica.receive("n1", VoteResponse(1, granted=True, pre=True), LATER)
    assert member.role is Role.CANDIDATE
    begun = member.begin_sync()
    # The sync of that vote takes so long that the member stands again, two terms later.
    member.replica.receive("n2", VoteResponse(2, granted=False, pre=False), LATER)
    member.replica.tick(2 * LATER)
    member.leaving(2 * LATER)
    member.replica.receive("n1", VoteResponse(3, granted=True, pre=True), 2 * LATER)
    assert (member.role.value, member.term) == ("candidate", 3)
    member.replica.persisted(*begun, 2 * LATER)
    member.replica.receive("n1", VoteResponse(3, granted=True, pre=False), 2 * LATER)
    assert member.role.value == "candidate"
    assert member.leaving(2 * LATER) == []


def cut_both_ways(sender: str, receiver: str) -> bool:
    return {sender, receiver} == {"n0", "n1"}


def cut_from_the_leader(sender: str, receiver: str) -> bool:
    return (sender, receiver) == ("n0", "n1")


def cut_to_the_leader(sender: str, receiver: str) -> bool:
    return (sender, receiver) == ("n1", "n0")


@pytest.mark.parametrize("cut", [cut_both_ways, cut_from_the_leader, cut_to_the_leader])
def test_a_cut_between_two_of_three_members_leaves_one_stable_leader(
    cut: Callable[[str, str], bool],
) -> None:
    # n2 hears both. Each of the others could win its vote, depose the other, and so on for ever.
    group = Group([[], [], []])
    group.elect("n0")

    def dropped(sender: str, receiver: str, message: Message) -> bool:
        return cut(sender, receiver)

    led: list[tuple[str, int]] = []
    end = group.now + 20 * TIMEOUT_S
    while group.now < end:
        group.now += HEARTBEAT_S / 4
        for member in group.members.values():
            member.replica.tick(group.now)
        group.run(dropped=dropped)
        for name, member in group.members.items():
            if member.role is Role.LEADER and (name, member.term) not in led:
                led.append((name, member.term))
    assert len(led) == 1
    index = group.propose(led[0][0], 1)
    group.run(dropped=dropped)
    assert group[led[0][0]].committed == index


@pytest.mark.parametrize("term", [4, 5])
def test_only_the_granted_vote_makes_a_voter_wait(term: int) -> None:
    # A candidate whose log is too short must not keep the others from standing by asking.
    member = Member("n0", THREE, [1, 2], HardState(4))
    deadline = member.replica.elector.deadline
    member.replica.receive("n1", VoteRequest(term, 0, 1, pre=False), 0.4)
    assert member.replica.elector.deadline == deadline
    member.replica.receive("n2", VoteRequest(term, 1, 2, pre=False), 0.4)
    assert member.replica.elector.deadline > deadline


def test_a_heartbeat_of_an_old_term_does_not_make_a_member_wait() -> None:
    member = Member("n0", THREE, hard_state=HardState(4))
    deadline = member.replica.elector.deadline
    member.replica.receive("n1", Heartbeat(3, -1, 1), 0.4)
    assert member.replica.elector.deadline == deadline


def test_a_pre_candidate_that_hears_its_leader_again_follows_it() -> None:
    member = Member("n0", THREE)
    member.replica.receive("n1", Heartbeat(1, -1, 1), 0.0)
    member.replica.tick(LATER)
    assert (member.role, member.replica.state.leader) == (Role.PRE_CANDIDATE, None)
    member.replica.receive("n1", Heartbeat(1, -1, 2), LATER)
    assert (member.role.value, member.replica.state.leader) == ("follower", "n1")


def test_a_leader_that_steps_down_for_want_of_a_quorum_names_no_leader() -> None:
    group = Group([[], [], []])
    leader = group.elect("n0")
    group.now += 3 * TIMEOUT_S
    leader.replica.tick(group.now)
    assert (leader.role, leader.replica.state.leader) == (Role.FOLLOWER, None)


@pytest.mark.parametrize(("term", "granted"), [(4, False), (5, False), (6, True)])
def test_a_pre_vote_is_granted_only_for_a_term_that_is_still_to_come(
    term: int, granted: bool
) -> None:
    member = Member("n0", THREE, hard_state=HardState(5))
    member.replica.receive("n1", VoteRequest(term, 9, 9, pre=True), LATER)
    [(_, answer)] = votes(member.leaving(LATER))
    assert answer == VoteResponse(max(term, 5), granted, pre=True)


def test_a_pre_vote_granted_for_another_term_counts_nothing() -> None:
    member = Member("n0", THREE, hard_state=HardState(5))
    member.replica.tick(LATER)
    for term in (5, 7):
        member.replica.receive("n1", VoteResponse(term, granted=True, pre=True), LATER)
    assert (member.role, member.term) == (Role.PRE_CANDIDATE, 5)
    member.replica.receive("n1", VoteResponse(6, granted=True, pre=True), LATER)
    assert (member.role.value, member.term) == ("candidate", 6)
