import pytest

from dledger.core.hard_state import HardState
from dledger.core.leader_elector import GRANTED_WAIT
from dledger.core.member_state import Role
from dledger.core.messages import (
    Heartbeat,
    HeartbeatResponse,
    Phase,
    PushResponse,
    VoteRequest,
    VoteResponse,
)
from dledger.core.replica import Outgoing
from dledger.errors import PeerFault
from tests.dledger.core.core_group import TIMEOUT_S, Group, Member, take_messages

THREE = ["n0", "n1", "n2"]
LATER = 2 * TIMEOUT_S
PUSHED = PushResponse(5, Phase.APPEND, True, 3, 3)


def votes(messages: list[Outgoing]) -> list[VoteResponse]:
    return [message for _, message in messages if isinstance(message, VoteResponse)]


def role(member: Member) -> Role:
    return member.role


def candidate() -> Member:
    """n0, which has won the pre-vote of term 1 and has not synced yet."""
    member = Member("n0", THREE)
    member.replica.tick(LATER)
    member.leaving(LATER)
    member.replica.receive("n1", VoteResponse(1, granted=True, pre=True), LATER)
    assert role(member) is Role.CANDIDATE
    return member


def test_a_group_elects_one_leader_and_commits_its_no_op() -> None:
    group = Group([[], [], []])
    group.elect("n1")
    assert [group[name].role for name in group.names].count(Role.LEADER) == 1
    assert group["n1"].committed == 0
    assert group["n1"].log == [1]


def test_a_pre_vote_raises_no_term() -> None:
    group = Group([[], [], []])
    group.silent = {"n0"}
    for _ in range(5):
        group.stand("n0")
        assert group["n0"].role is Role.PRE_CANDIDATE
    assert [group[name].term for name in group.names] == [0, 0, 0]


def test_a_member_that_comes_back_from_isolation_deposes_nobody() -> None:
    group = Group([[], [], []])
    group.elect("n1")
    group.silent = {"n0"}
    for _ in range(20):
        group.pass_time(TIMEOUT_S / 4)
        group["n0"].replica.tick(group.now)
    group.silent = set()
    group.pass_time(1.0)
    assert group["n1"].role is Role.LEADER
    assert {group[name].term for name in group.names} == {1}


@pytest.mark.parametrize("pre", [True, False])
def test_a_member_that_hears_a_leader_votes_for_nobody_else(pre: bool) -> None:
    member = Member("n0", THREE)
    member.replica.receive("n1", Heartbeat(1, -1, 1), 0.0)
    member.sync(0.0)
    request = VoteRequest(2, last_index=9, last_term=1, pre=pre)
    member.replica.receive("n2", request, TIMEOUT_S * 0.99)
    assert [v.granted for v in votes(member.leaving(0.5))] == [False]
    assert member.term == 1
    member.replica.receive("n2", request, TIMEOUT_S)
    member.sync(TIMEOUT_S)
    assert [v.granted for v in votes(member.leaving(0.5))] == [True]


def test_a_vote_is_answered_only_when_it_is_on_disk() -> None:
    member = Member("n0", THREE)
    member.replica.receive("n1", VoteRequest(1, -1, -1, pre=False), LATER)
    assert member.leaving(LATER) == []
    index, epoch, record = member.begin_sync()
    assert record == HardState(1, "n1", -1)
    assert member.leaving(LATER) == []
    member.replica.persisted(index, epoch, record, LATER)
    assert member.leaving(LATER) == [("n1", VoteResponse(1, granted=True, pre=False))]


def test_a_sync_that_began_before_the_vote_releases_no_vote() -> None:
    member = Member("n0", THREE)
    member.replica.receive("n2", Heartbeat(1, -1, 1), 0.0)
    begun = member.begin_sync()
    member.replica.receive("n1", VoteRequest(2, -1, -1, pre=False), LATER)
    member.replica.persisted(*begun, LATER)
    assert votes(member.leaving(LATER)) == []
    member.sync(LATER)
    assert [v.granted for v in votes(member.leaving(LATER))] == [True]


def test_a_candidate_asks_for_votes_only_when_its_own_is_on_disk() -> None:
    # Else it could crash, stand in the same term again with a shorter log, and count the answers
    # that were given to the longer one.
    member = candidate()
    assert member.leaving(LATER) == []
    member.sync(LATER)
    assert {peer for peer, _ in member.leaving(LATER)} == {"n1", "n2"}
    assert member.replica.state.hard_state == HardState(1, "n0", -1)


def test_a_candidate_does_not_count_its_own_vote_before_it_is_on_disk() -> None:
    member = candidate()
    member.replica.receive("n1", VoteResponse(1, granted=True, pre=False), LATER)
    assert role(member) is Role.CANDIDATE
    member.sync(LATER)
    assert role(member) is Role.LEADER


def test_a_repeated_vote_counts_once() -> None:
    member = Member("n0", ["n0", "n1", "n2", "n3", "n4"])
    member.replica.tick(LATER)
    for _ in range(4):
        member.replica.receive("n1", VoteResponse(1, granted=True, pre=True), LATER)
    assert role(member) is Role.PRE_CANDIDATE
    member.replica.receive("n2", VoteResponse(1, granted=True, pre=True), LATER)
    member.sync(LATER)
    for _ in range(4):
        member.replica.receive("n1", VoteResponse(1, granted=True, pre=False), LATER)
        member.sync(LATER)
    assert role(member) is Role.CANDIDATE


def test_a_vote_of_another_term_counts_nothing() -> None:
    member = candidate()
    member.sync(LATER)
    member.replica.receive("n1", VoteResponse(0, granted=True, pre=False), LATER)
    assert role(member) is Role.CANDIDATE


@pytest.mark.parametrize(
    ("ours", "last_index", "last_term", "granted"),
    [
        ([1, 1], 1, 1, True),
        ([1, 1], 0, 1, False),
        ([1, 1], 0, 2, True),
        ([1, 2], 9, 1, False),
        ([1, 1], 2, 1, True),
        ([], -1, -1, True),
    ],
)
def test_only_a_log_as_complete_as_ours_gets_a_vote(
    ours: list[int], last_index: int, last_term: int, granted: bool
) -> None:
    for pre in (True, False):
        member = Member("n0", THREE, ours)
        member.replica.receive("n1", VoteRequest(7, last_index, last_term, pre), LATER)
        member.sync(LATER)
        assert [v.granted for v in votes(member.leaving(LATER))] == [granted]


def test_one_vote_a_term_also_across_a_restart() -> None:
    member = Member("n0", THREE, hard_state=HardState(3, "n1"))
    member.replica.receive("n2", VoteRequest(3, 9, 3, pre=False), LATER)
    member.replica.receive("n1", VoteRequest(3, 9, 3, pre=False), LATER)
    answers = [
        (peer, v.granted) for peer, v in member.leaving(LATER) if isinstance(v, VoteResponse)
    ]
    assert answers == [("n2", False), ("n1", True)]


def test_a_refused_candidate_does_not_keep_others_from_standing() -> None:
    member = Member("n0", THREE, [1, 1])
    deadline = member.replica.elector.deadline
    member.replica.receive("n1", VoteRequest(5, -1, -1, pre=False), LATER)
    assert member.term == 5
    assert member.replica.elector.deadline == deadline


def test_a_granted_pre_vote_promises_nothing() -> None:
    member = Member("n0", THREE)
    for peer, now in (("n1", LATER), ("n2", LATER + 0.01)):
        member.replica.receive(peer, VoteRequest(4, 0, 1, pre=True), now)
    answers = votes(member.leaving(LATER))
    assert answers == [VoteResponse(4, granted=True, pre=True)] * 2
    assert (member.term, member.replica.state.voted_for) == (0, None)
    assert member.record_due is None


def test_a_member_waits_for_one_candidate_that_it_granted_a_pre_vote_and_for_no_second() -> None:
    member = Member("n0", THREE)
    for peer, now in (("n1", LATER), ("n2", LATER + 0.01)):
        member.replica.receive(peer, VoteRequest(4, 0, 1, pre=True), now)
    assert member.replica.elector.deadline == LATER + GRANTED_WAIT * TIMEOUT_S


def _asking(name: str, log: list[int]) -> Member:
    """A member that has just asked for pre-votes."""
    member = Member(name, THREE, log)
    member.replica.tick(LATER)
    assert member.role is Role.PRE_CANDIDATE
    return member


@pytest.mark.parametrize(
    ("candidate", "last_index", "stands"),
    [("n0", 1, False), ("n2", 1, True), ("n2", 2, False), ("n0", 0, True)],
    ids=["earlier name", "later name", "longer log", "shorter log"],
)
def test_of_two_members_that_ask_for_pre_votes_at_once_one_stands(
    candidate: str, last_index: int, stands: bool
) -> None:
    member = _asking("n1", [1, 1])
    member.replica.receive(candidate, VoteRequest(2, last_index, 1, pre=True), LATER)
    for peer in ("n0", "n2"):
        member.replica.receive(peer, VoteResponse(2, granted=True, pre=True), LATER)
    assert (member.role is Role.CANDIDATE) == stands


def test_a_candidate_that_is_asked_for_a_pre_vote_goes_on() -> None:
    member = _asking("n1", [1, 1])
    member.replica.receive("n0", VoteResponse(2, granted=True, pre=True), LATER)
    member.sync(LATER)
    member.replica.receive("n0", VoteRequest(3, 1, 1, pre=True), LATER)
    member.replica.receive("n2", VoteResponse(2, granted=True, pre=False), LATER)
    assert member.role is Role.LEADER


def test_a_deposed_leader_is_told_of_the_newer_term() -> None:
    member = Member("n0", THREE, hard_state=HardState(4))
    member.replica.receive("n1", Heartbeat(3, -1, 8), LATER)
    assert member.leaving(LATER) == [("n1", HeartbeatResponse(4, 0))]


def test_a_member_kept_out_by_its_higher_term_gets_back_in() -> None:
    # A candidate that nobody hears keeps a higher term; the others follow a leader and refuse it.
    group = Group([[], [], []])
    group.elect("n1")
    group.members["n0"] = Member("n0", THREE, [1], HardState(9), now=group.now)
    group.pass_time(6 * TIMEOUT_S)
    leaders = [name for name in THREE if group[name].role is Role.LEADER]
    assert len(leaders) == 1
    assert group[leaders[0]].term > 9
    assert {tuple(group[name].log) for name in THREE} == {tuple(group[leaders[0]].log)}


def test_a_leader_that_no_quorum_answers_steps_down() -> None:
    group = Group([[], [], []])
    group.elect("n1")
    group.silent = {"n0", "n2"}
    begin = group.now
    while group["n1"].role is Role.LEADER and group.now < begin + 10:
        group.pass_time(0.01)
    # No sooner than the last follower stands: if they only paused, no election is needed.
    assert 2 * TIMEOUT_S < group.now - begin <= 2 * TIMEOUT_S + 0.2
    assert group["n1"].term == 1


def test_a_leader_that_a_quorum_answers_stays() -> None:
    group = Group([[], [], []])
    group.elect("n1")
    group.silent = {"n0"}
    group.pass_time(5 * TIMEOUT_S)
    assert group["n1"].role is Role.LEADER


def test_a_group_of_one_leads_itself_once_its_vote_is_on_disk() -> None:
    member = Member("n0", ["n0"])
    member.replica.tick(0.0)
    assert role(member) is Role.CANDIDATE
    member.sync(0.0)
    assert role(member) is Role.LEADER
    assert member.committed == -1
    member.sync(0.0)
    assert member.committed == 0


def test_a_group_of_two_needs_both() -> None:
    group = Group([[], []])
    group.silent = {"n1"}
    group.stand("n0")
    group.run()
    assert role(group["n0"]) is Role.PRE_CANDIDATE
    group.silent = set()
    group.elect("n0")
    group.silent = {"n1"}
    index = group.propose("n0", 1)
    group.run()
    assert group["n0"].committed < index
    group.silent = set()
    group["n0"].replica.reachable("n1", group.now)
    group.run()
    assert group["n0"].committed == index


def test_a_second_leader_of_a_term_is_refused_by_name() -> None:
    member = Member("n0", THREE)
    member.replica.receive("n1", Heartbeat(1, -1, 1), 0.0)
    with pytest.raises(PeerFault, match="n2: it leads term 1, as n1 does"):
        member.replica.receive("n2", Heartbeat(1, -1, 1), 0.0)


def test_answers_of_strangers_and_messages_of_oneself_are_ignored() -> None:
    member = Member("n0", THREE)
    member.replica.receive("n0", VoteRequest(5, 9, 4, pre=False), LATER)
    for answer in (VoteResponse(5, False, False), HeartbeatResponse(5, 0), PUSHED):
        member.replica.receive("n9", answer, LATER)
    assert (member.term, member.leaving(LATER)) == (0, [])


def test_a_stranger_that_asks_for_a_vote_gets_one() -> None:
    member = Member("n0", THREE)
    member.replica.receive("n9", VoteRequest(5, 9, 4, pre=False), LATER)
    member.sync(LATER)
    assert member.leaving(LATER) == [("n9", VoteResponse(5, True, False))]


def test_a_node_that_is_no_member_never_stands() -> None:
    stranger = Member("n9", THREE)
    for number in range(1, 9):
        stranger.replica.tick(number * LATER)
    assert (stranger.role, stranger.leaving(9 * LATER)) == (Role.FOLLOWER, [])


def test_a_leader_without_a_quorum_steps_down_at_its_deadline_however_that_is_rounded() -> None:
    # A deadline at which nothing happened would stay: the member would take turns without end.
    for step in range(100):
        group = Group([[], [], []])
        leader = group.elect("n0").replica
        now = group.now + step / 97
        for dispatcher in leader.dispatchers.values():
            dispatcher.last_answer_at = now
        leader.tick(now)
        take_messages(leader, now)
        while leader.state.role is Role.LEADER:
            before, now = now, leader.next_deadline()
            assert now > before
            leader.tick(now)
            take_messages(leader, now)
