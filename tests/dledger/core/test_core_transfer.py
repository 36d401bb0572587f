"""Handing leadership over: every case of it, without a network or a disk."""

import pytest

from dledger.core.handover import LeaderTransfer
from dledger.core.hard_state import HardState
from dledger.core.member_state import Role
from dledger.core.membership.configuration_codec import NumberedConfiguration
from dledger.core.messages import Message, TimeoutNow, VoteRequest, VoteResponse
from dledger.errors import LeadershipMoving, NotLeader, TransferFailed
from tests.dledger.core.configurations import configuration
from tests.dledger.core.core_group import HEARTBEAT_S, TIMEOUT_S, Group, Member

THREE = ["n0", "n1", "n2"]
WITHOUT_N1 = NumberedConfiguration(0, configuration(["n0", "n2"]))


def led_by_n0(size: int = 3) -> Group:
    group = Group([[] for _ in range(size)])
    group.elect("n0")
    group.pass_time(2 * HEARTBEAT_S)
    return group


def role(member: Member) -> Role:
    return member.role


def begin(group: Group, target: str | None, leader: str = "n0") -> LeaderTransfer:
    transfer = group[leader].replica.transfer_leadership(target, group.now)
    assert transfer is not None
    return transfer


def leaders(group: Group) -> list[str]:
    return [name for name in group.names if group[name].role is Role.LEADER]


def told(group: Group) -> list[str]:
    """Who was told to stand, in the order it happened."""
    return [receiver for _, receiver, message in group.sent if isinstance(message, TimeoutNow)]


def serves(group: Group, name: str) -> bool:
    """Whether a leader takes and commits a proposal."""
    index = group.propose(name, 1)
    group.pass_time(HEARTBEAT_S)
    return group[name].committed == index


def test_leadership_goes_to_a_follower_that_has_everything_within_no_time() -> None:
    group = led_by_n0()
    begin(group, "n1")
    group.run()
    assert leaders(group) == ["n1"]
    assert {group[name].term for name in THREE} == {2}
    assert serves(group, "n1")


def test_without_a_name_leadership_goes_to_the_longest_log_that_answers() -> None:
    group = led_by_n0()
    group.silent = {"n1"}
    group.propose("n0", 3)
    group.run()
    assert begin(group, None).target == "n2"
    group.run()
    assert leaders(group) == ["n2"]


def test_without_a_name_a_silent_member_is_not_chosen() -> None:
    group = led_by_n0(5)
    group.silent = {"n3", "n4"}
    group.pass_time(1.5 * TIMEOUT_S)
    assert begin(group, None).target in {"n1", "n2"}


def test_a_slow_follower_is_brought_up_to_date_first() -> None:
    group = led_by_n0()
    group.silent = {"n1"}
    index = group.propose("n0", 5)
    group.run()
    group.silent = set()
    begin(group, "n1")
    for _, message in group["n0"].leaving(group.now):
        assert not isinstance(message, TimeoutNow)
    group.pass_time(TIMEOUT_S)
    assert leaders(group) == ["n1"]
    assert group["n1"].log[: index + 1] == group["n0"].log[: index + 1]


def test_what_only_the_target_s_cache_has_is_not_enough() -> None:
    group = led_by_n0()
    group.propose("n0", 1)
    begin(group, "n1")
    leader, target = group["n0"], group["n1"]
    for receiver, message in leader.leaving(group.now):
        assert not isinstance(message, TimeoutNow)
        if receiver == "n1":
            target.replica.receive("n0", message, group.now)
    for _, message in target.leaving(group.now):
        leader.replica.receive("n1", message, group.now)
    assert not any(isinstance(m, TimeoutNow) for _, m in leader.leaving(group.now))
    target.sync(group.now)
    for _, message in target.leaving(group.now):
        leader.replica.receive("n1", message, group.now)
    assert [r for r, m in leader.leaving(group.now) if isinstance(m, TimeoutNow)] == ["n1"]


def test_a_member_that_does_not_lead_refuses_and_names_the_leader() -> None:
    group = led_by_n0()
    with pytest.raises(NotLeader) as caught:
        group["n1"].replica.transfer_leadership("n1", group.now)
    assert caught.value.leader == "n0"
    group.run()
    assert leaders(group) == ["n0"]


def test_handing_over_to_oneself_changes_nothing() -> None:
    group = led_by_n0()
    assert group["n0"].replica.transfer_leadership("n0", group.now) is None
    assert serves(group, "n0")
    assert told(group) == []


def test_an_unknown_member_is_refused_and_appends_go_on() -> None:
    group = led_by_n0()
    with pytest.raises(TransferFailed, match="n9") as caught:
        begin(group, "n9")
    assert caught.value.retry_safe
    assert serves(group, "n0")


def test_a_group_of_one_has_nobody_to_hand_over_to() -> None:
    group = Group([[]])
    group["n0"].replica.tick(0.0)
    group.run()
    with pytest.raises(TransferFailed, match="no other voter"):
        begin(group, None)
    assert serves(group, "n0")


def test_proposals_are_refused_while_leadership_moves() -> None:
    group = led_by_n0()
    group.silent = {"n1"}
    begin(group, "n1")
    with pytest.raises(LeadershipMoving) as caught:
        group.propose("n0", 1)
    assert (caught.value.target, caught.value.retry_safe) == ("n1", True)
    assert group["n0"].replica.view.last_index == 0


def test_a_transfer_is_given_up_after_one_election_timeout_and_appends_go_on() -> None:
    group = led_by_n0()
    group.silent = {"n1"}
    transfer = begin(group, "n1")
    group.pass_time(0.8 * TIMEOUT_S)
    assert transfer.end is None
    group.pass_time(0.3 * TIMEOUT_S)
    assert "election timeout" in str(transfer.end)
    assert leaders(group) == ["n0"]
    assert serves(group, "n0")


def test_a_second_transfer_to_the_same_member_joins_the_first_and_gains_no_time() -> None:
    group = led_by_n0()
    group.silent = {"n1"}
    first = begin(group, "n1")
    group.pass_time(0.6 * TIMEOUT_S)
    assert begin(group, "n1") is first
    group.pass_time(0.6 * TIMEOUT_S)
    assert first.end is not None


def test_a_transfer_to_another_member_replaces_the_one_that_runs() -> None:
    group = led_by_n0()
    group.silent = {"n1"}
    first = begin(group, "n1")
    group.pass_time(0.2 * TIMEOUT_S)
    second = begin(group, "n2")
    assert "n2" in str(first.end)
    assert second.deadline == pytest.approx(group.now + TIMEOUT_S)
    group.run()
    assert leaders(group) == ["n2"]


def test_handing_over_to_oneself_gives_up_the_transfer_that_runs() -> None:
    group = led_by_n0()
    group.silent = {"n1"}
    transfer = begin(group, "n1")
    assert group["n0"].replica.transfer_leadership("n0", group.now) is None
    assert transfer.end is not None
    assert serves(group, "n0")


def test_a_leader_that_is_deposed_meanwhile_forgets_the_transfer() -> None:
    group = led_by_n0()
    group.silent = {"n1"}
    transfer = begin(group, "n1")
    group["n0"].replica.receive("n2", VoteResponse(7, granted=False, pre=False), group.now)
    assert group["n0"].role is Role.FOLLOWER
    assert transfer.end is not None
    assert group["n0"].replica.handover.transfer is None
    group.elect("n0")
    assert serves(group, "n0")


def test_a_leader_that_loses_its_quorum_meanwhile_forgets_the_transfer() -> None:
    group = led_by_n0()
    group.silent = {"n1", "n2"}
    group.pass_time(1.8 * TIMEOUT_S)
    transfer = begin(group, "n1")
    group.pass_time(0.5 * TIMEOUT_S)
    assert leaders(group) == []
    assert "stepped down" in str(transfer.end)


def test_a_vote_in_a_higher_term_ends_the_transfer() -> None:
    # n2 was told to stand by n0 and its requests come late: after n0 turned to n1.
    group = led_by_n0()
    begin(group, "n2")
    group.run(dropped=lambda s, r, m: isinstance(m, VoteRequest))
    assert group["n2"].role is Role.CANDIDATE
    group.pass_time(0.0)
    transfer = begin(group, "n1")
    group.silent = {"n1"}
    last = group["n0"].replica.view
    late = VoteRequest(2, last.last_index, last.last_term, pre=False, handed_over=True)
    group["n0"].replica.receive("n2", late, group.now)
    assert transfer.end is not None
    assert (group["n0"].role, group["n0"].term) == (Role.FOLLOWER, 2)
    group.run()
    assert leaders(group) == ["n2"]


def test_a_target_that_is_no_voter_any_more_ends_the_transfer() -> None:
    group = led_by_n0()
    group.silent = {"n1"}
    transfer = begin(group, "n1")
    leader = group["n0"].replica
    leader.state.membership.install(WITHOUT_N1)
    leader.tick(group.now)
    assert "voter" in str(transfer.end)
    leader.check_proposable()


def test_a_member_that_is_no_voter_does_not_stand_when_told() -> None:
    group = led_by_n0()
    member = group["n1"]
    member.replica.state.membership.install(WITHOUT_N1)
    member.replica.receive("n0", TimeoutNow(1), group.now)
    assert (member.role, member.term) == (Role.FOLLOWER, 1)


def test_the_target_stands_without_a_pre_vote_and_voters_do_not_spare_the_leader() -> None:
    group = led_by_n0()
    group.sent.clear()
    begin(group, "n1")
    group.run()
    requests = [message for _, _, message in group.sent if isinstance(message, VoteRequest)]
    assert requests
    assert all(message.handed_over and not message.pre for message in requests)


def test_voters_spare_the_leader_from_a_candidate_whom_nobody_told_to_stand() -> None:
    group = led_by_n0()
    for handed_over, role in ((False, Role.LEADER), (True, Role.FOLLOWER)):
        request = VoteRequest(2, 0, 1, pre=False, handed_over=handed_over)
        group["n0"].replica.receive("n1", request, group.now)
        assert group["n0"].role is role


def test_a_target_with_a_shorter_log_is_told_and_still_gets_no_vote() -> None:
    group = led_by_n0()
    group.silent = {"n1"}
    group.propose("n0", 1)
    group.run()
    group.silent = set()
    group["n1"].replica.receive("n0", TimeoutNow(1), group.now)
    group.run(dropped=lambda s, r, m: not isinstance(m, VoteRequest | VoteResponse))
    assert group["n1"].role is not Role.LEADER


def test_only_the_first_round_of_a_told_member_is_exempt() -> None:
    member = Member("n0", THREE, hard_state=HardState(1))
    member.replica.receive("n1", TimeoutNow(1), 0.0)
    assert (role(member), member.term) == (Role.CANDIDATE, 2)
    assert member.replica.elector.request(pre=False).handed_over
    later = member.replica.elector.deadline
    member.replica.tick(later)
    assert role(member) is Role.PRE_CANDIDATE
    assert not member.replica.elector.request(pre=True).handed_over
    member.replica.receive("n1", VoteResponse(3, granted=True, pre=True), later)
    assert role(member) is Role.CANDIDATE
    assert not member.replica.elector.request(pre=False).handed_over


def test_a_told_member_asks_for_votes_only_when_its_own_is_on_disk() -> None:
    member = Member("n0", THREE, hard_state=HardState(1))
    member.replica.receive("n1", TimeoutNow(1), 0.0)
    assert not any(isinstance(m, VoteRequest) for _, m in member.leaving(0.0))
    member.sync(0.0)
    asked = [peer for peer, m in member.leaving(0.0) if isinstance(m, VoteRequest)]
    assert asked == ["n1", "n2"]


@pytest.mark.parametrize("term", [0, 1])
def test_a_late_or_repeated_word_to_stand_is_ignored(term: int) -> None:
    group = led_by_n0()
    begin(group, "n1")
    group.run()
    assert leaders(group) == ["n1"]
    group["n2"].replica.receive("n0", TimeoutNow(term), group.now)
    assert (group["n2"].role, group["n2"].term) == (Role.FOLLOWER, 2)


def test_a_lost_word_to_stand_is_said_again() -> None:
    group = led_by_n0()
    lost: list[Message] = []

    def first_one(sender: str, receiver: str, message: Message) -> bool:
        if isinstance(message, TimeoutNow) and not lost:
            lost.append(message)
            return True
        return False

    begin(group, "n1")
    group.run(dropped=first_one)
    assert leaders(group) == ["n0"]
    group.pass_time(2 * HEARTBEAT_S)
    assert leaders(group) == ["n1"]


def test_leadership_comes_back_when_it_is_handed_back() -> None:
    group = led_by_n0()
    for leader, target in (("n0", "n2"), ("n2", "n0"), ("n0", "n1")):
        begin(group, target, leader)
        group.run()
        assert leaders(group) == [target]
        assert serves(group, target)


def test_a_new_leader_hands_over_before_its_term_has_committed() -> None:
    group = Group([[1, 1], [1, 1], [1, 1]])
    group.stand("n0")
    group.run(until=lambda: group["n0"].role is Role.LEADER)
    begin(group, "n1")
    group.run()
    assert leaders(group) == ["n1"]
    assert serves(group, "n1")


def test_a_target_that_dies_costs_no_more_than_the_wait() -> None:
    group = led_by_n0()
    begin(group, "n1")
    group.silent = {"n1"}
    group.pass_time(1.2 * TIMEOUT_S)
    assert leaders(group) == ["n0"]
    assert serves(group, "n0")


def test_entries_that_were_on_their_way_are_committed_by_the_new_leader() -> None:
    group = led_by_n0()
    index = group.propose("n0", 4)
    begin(group, "n1")
    group.pass_time(TIMEOUT_S)
    assert leaders(group) == ["n1"]
    assert all(group[name].committed >= index for name in THREE)
    assert all(group[name].log[: index + 1] == [1] * (index + 1) for name in THREE)
