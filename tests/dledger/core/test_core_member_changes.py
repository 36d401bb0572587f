"""Changes of the group, message by message: who decides, who leads, who is left alone."""

import pytest

from dledger.core.agenda import TELL
from dledger.core.hard_state import HardState
from dledger.core.member_state import Role
from dledger.core.membership.catch_up import NEARLY_NONE_ENTRIES, Verdict
from dledger.core.membership.change_errors import (
    ChangePending,
    ConfigurationInvalid,
    ConfigurationMoved,
    LearnerBehind,
    VotersSilent,
)
from dledger.core.membership.configuration import Configuration
from dledger.core.membership.configuration_change import (
    AddLearner,
    AddVoter,
    Change,
    Demote,
    Promote,
    Remove,
    Transition,
    UpdateAddress,
)
from dledger.core.membership.configuration_codec import NumberedConfiguration
from dledger.core.messages import (
    Heartbeat,
    HeartbeatResponse,
    PushRequest,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from dledger.core.reads.read_index import ReadReady
from dledger.errors import NotLeader, TransferFailed
from tests.dledger.core.configurations import address_of, configuration
from tests.dledger.core.core_group import HEARTBEAT_S, TIMEOUT_S, Group, Member, take_messages

ADD_N3 = AddVoter("n3", address_of("n3"))
LEARN_N3 = AddLearner("n3", address_of("n3"))


def led_by_n0(size: int = 3, *joining: str) -> Group:
    group = Group([[] for _ in range(size)])
    for name in joining:
        group.join(name)
    group.elect("n0")
    group.pass_time(2 * HEARTBEAT_S)
    return group


def propose(
    group: Group,
    *changes: Change,
    leader: str = "n0",
    transition: Transition = Transition.AUTO,
) -> int:
    group[leader].take_writes()
    return group[leader].replica.propose_change(changes, transition)


def changed(
    group: Group,
    *changes: Change,
    leader: str = "n0",
    transition: Transition = Transition.AUTO,
) -> int:
    """A change that reaches everybody."""
    index = propose(group, *changes, leader=leader, transition=transition)
    group.run()
    group.pass_time(2 * HEARTBEAT_S)
    return index


def role(member: Member) -> Role:
    return member.role


def verdict(group: Group, learner: str) -> Verdict:
    return group["n0"].replica.followers.catch_ups[learner].verdict


def in_force(member: Member) -> Configuration:
    return member.replica.state.membership.configuration


# --- in force from the commit ---------------------------------------------------------------------


def test_a_change_is_in_force_on_every_member_once_it_is_committed() -> None:
    group = led_by_n0(3, "n3")
    index = propose(group, LEARN_N3)
    assert in_force(group["n0"]) == configuration(["n0", "n1", "n2"])
    group.run()
    group.pass_time(2 * HEARTBEAT_S)
    for name in group.names:
        assert in_force(group[name]) == configuration(["n0", "n1", "n2"], learners=["n3"]), name
        assert group[name].decided == [(index, None)]
    assert group["n3"].log == group["n0"].log


def test_a_change_that_was_cut_off_the_log_is_forgotten() -> None:
    group = led_by_n0()
    group.silent = {"n0"}
    index = propose(group, Remove("n1"))
    group.elect("n2")
    group.silent = set()
    group.pass_time(2 * TIMEOUT_S)
    assert group["n0"].log == group["n2"].log
    assert index not in group["n0"].changes
    assert in_force(group["n0"]) == configuration(["n0", "n1", "n2"])
    assert group["n0"].decided == []


def test_a_restarted_member_goes_by_what_the_changes_in_its_log_prove() -> None:
    group = led_by_n0(3, "n3")
    first = changed(group, LEARN_N3)
    propose(group, Promote("n3"))
    group.run(dropped=lambda _, __, message: isinstance(message, Heartbeat | VoteRequest))
    restarted = group.restart("n1")
    assert restarted.committed == first
    assert in_force(restarted) == configuration(["n0", "n1", "n2"], learners=["n3"])


def test_a_change_is_refused_by_whoever_does_not_lead_and_for_another_configuration() -> None:
    group = led_by_n0()
    with pytest.raises(NotLeader):
        group["n1"].replica.propose_change([Remove("n2")])
    with pytest.raises(ConfigurationMoved):
        group["n0"].replica.propose_change([Remove("n2")], expected=7)
    assert group["n0"].replica.propose_change([Remove("n2")], expected=-1) == 1


def test_a_change_that_no_segment_has_room_for_is_refused() -> None:
    group = led_by_n0()
    replica = group["n0"].replica
    replica.config = replica.config._replace(max_change_bytes=20)
    with pytest.raises(ConfigurationInvalid, match="room for 20"):
        replica.propose_change([Remove("n2")])
    assert group["n0"].log == [1]


# --- one change at a time -------------------------------------------------------------------------


def test_a_leader_changes_nothing_before_an_entry_of_its_own_term_is_committed() -> None:
    group = Group([[1], [1], [1]])
    group.stand("n0")
    group.run(until=lambda: group["n0"].role is Role.LEADER)
    group["n0"].take_writes()
    with pytest.raises(ChangePending) as refused:
        group["n0"].replica.propose_change([Remove("n1")])
    assert refused.value.index == 1
    group.run()
    group["n0"].replica.propose_change([Remove("n1")])


def test_a_second_change_waits_for_the_first_also_under_another_leader() -> None:
    group = led_by_n0()
    index = propose(group, Remove("n2"))
    with pytest.raises(ChangePending):
        group["n0"].replica.propose_change([Remove("n1")])
    group.run(dropped=lambda _, __, message: not isinstance(message, PushRequest))
    group.silent = {"n0"}
    group.stand("n1")
    group.run(until=lambda: group["n1"].role is Role.LEADER)
    group["n1"].take_writes()
    assert index in group["n1"].changes
    with pytest.raises(ChangePending):
        group["n1"].replica.propose_change([Remove("n0")])


# --- learners -------------------------------------------------------------------------------------


def test_a_learner_commits_nothing_by_what_it_has() -> None:
    group = led_by_n0(3, "n3", "n4")
    changed(group, LEARN_N3)
    changed(group, AddLearner("n4", address_of("n4")))
    group.silent = {"n1", "n2"}
    last = group.propose("n0", 1)
    group.run()
    assert group["n3"].replica.state.durable == last
    assert group["n0"].committed == last - 1


def test_a_learner_confirms_no_read_and_keeps_no_leader_in_office() -> None:
    group = led_by_n0(3, "n3", "n4")
    changed(group, LEARN_N3)
    changed(group, AddLearner("n4", address_of("n4")))
    group.silent = {"n1", "n2"}
    group["n0"].replica.request_read(1)
    assert take_messages(group["n0"].replica, group.now).reads_ready == []
    group.run()
    group.pass_time(1.5 * TIMEOUT_S)
    assert role(group["n0"]) is Role.LEADER
    group.pass_time(TIMEOUT_S)
    assert group["n0"].role is not Role.LEADER


def test_a_learner_never_stands_and_votes_when_it_is_asked() -> None:
    group = led_by_n0(3, "n3")
    changed(group, LEARN_N3)
    learner = group["n3"].replica
    later = group.now + 9 * TIMEOUT_S
    learner.tick(later)
    assert group["n3"].role is Role.FOLLOWER
    # Whoever asks may know that it was promoted, though it does not know so itself.
    learner.forget_leader()
    learner.receive("n1", VoteRequest(2, 9, 1, pre=False), later)
    group["n3"].sync(later)
    assert group["n3"].leaving(later) == [("n1", VoteResponse(2, True, False))]


def test_a_group_elects_with_the_vote_of_a_learner_that_was_promoted_unseen() -> None:
    group = led_by_n0(3, "n3")
    changed(group, LEARN_N3)
    index = propose(group, Promote("n3"))
    group.run(until=lambda: group["n3"].replica.state.durable == index)
    group.silent = {"n3"}
    group.pass_time(2 * HEARTBEAT_S)
    assert in_force(group["n1"]).voters == {"n0", "n1", "n2", "n3"}
    assert in_force(group["n3"]).learners == {"n3"}
    group.silent = {"n0"}
    group.stand("n1")
    group.run(until=lambda: group["n1"].role is Role.LEADER)
    assert group["n3"].replica.state.voted_for == "n1"


def test_a_member_that_lacks_much_of_the_log_cannot_become_a_voter() -> None:
    group = led_by_n0(3, "n3")
    group.propose("n0", NEARLY_NONE_ENTRIES + 1)
    group.run()
    with pytest.raises(LearnerBehind):
        group["n0"].replica.propose_change([ADD_N3])
    index = propose(group, LEARN_N3)
    with pytest.raises(ChangePending):
        group["n0"].replica.propose_change([Promote("n3")])
    group.silent = {"n3"}
    group.run()
    assert group["n0"].committed == index
    with pytest.raises(LearnerBehind):
        group["n0"].replica.propose_change([Promote("n3")])
    assert verdict(group, "n3") is Verdict.CATCHING_UP
    group.silent = set()
    group.pass_time(2 * TIMEOUT_S)
    assert verdict(group, "n3") is Verdict.CAUGHT_UP
    changed(group, Promote("n3"))
    assert in_force(group["n3"]).voters == {"n0", "n1", "n2", "n3"}


def test_a_learner_that_keeps_up_is_promoted_while_clients_write_more_than_a_little() -> None:
    group = led_by_n0(3, "n3")
    changed(group, LEARN_N3)
    assert verdict(group, "n3") is Verdict.CAUGHT_UP
    group.propose("n0", 2 * NEARLY_NONE_ENTRIES)
    changed(group, Promote("n3"))
    assert in_force(group["n3"]).voters == {"n0", "n1", "n2", "n3"}


# --- removed members ------------------------------------------------------------------------------


def test_a_removed_member_learns_of_it_and_stands_no_more() -> None:
    group = led_by_n0()
    changed(group, Remove("n2"))
    assert in_force(group["n2"]) == configuration(["n0", "n1"])
    group.pass_time(2 * TIMEOUT_S)
    assert "n2" not in group["n0"].replica.dispatchers
    group.sent.clear()
    group.pass_time(4 * TIMEOUT_S)
    assert not [message for sender, receiver, message in group.sent if "n2" in (sender, receiver)]
    assert (group["n0"].role, group["n0"].term) == (Role.LEADER, 1)


def test_a_removed_member_that_missed_it_deposes_nobody() -> None:
    group = led_by_n0()
    group.silent = {"n2"}
    changed(group, Remove("n2"))
    group.pass_time(4 * TIMEOUT_S)
    group.silent = set()
    group.pass_time(8 * TIMEOUT_S)
    assert (group["n0"].role, group["n0"].term) == (Role.LEADER, 1)
    assert group["n2"].term == 1


def test_an_answer_of_a_removed_member_from_a_higher_term_deposes_nobody() -> None:
    group = led_by_n0()
    changed(group, Remove("n2"))
    group["n0"].replica.receive("n2", HeartbeatResponse(9, 0), group.now)
    assert (group["n0"].role, group["n0"].term) == (Role.LEADER, 1)


def test_a_removed_leader_steps_down_and_names_its_successor() -> None:
    group = led_by_n0()
    index = propose(group, Remove("n0"))
    group.run()
    assert role(group["n0"]) is Role.FOLLOWER
    told = [receiver for _, receiver, message in group.sent if isinstance(message, TimeoutNow)]
    assert len(told) == 1
    assert group[told[0]].role is Role.LEADER
    assert group[told[0]].term == 2
    group.pass_time(2 * TIMEOUT_S)
    assert {in_force(group[name]) for name in ("n0", "n1", "n2")} == {configuration(["n1", "n2"])}
    assert group["n0"].committed >= index


def test_a_leader_that_becomes_a_learner_steps_down_and_gets_the_log() -> None:
    group = led_by_n0()
    changed(group, Demote("n0"))
    group.pass_time(2 * TIMEOUT_S)
    leading = [name for name in group.names if group[name].role is Role.LEADER]
    assert len(leading) == 1
    last = group.propose(leading[0], 3)
    group.run()
    assert role(group["n0"]) is Role.FOLLOWER
    assert group["n0"].replica.state.durable == last


def test_a_leader_that_is_to_leave_does_not_count_for_those_who_stay() -> None:
    group = led_by_n0(3, "n3")
    changed(group, LEARN_N3)
    changed(group, ADD_N3, Remove("n0"), transition=Transition.JOINT_MANUAL)
    assert in_force(group["n0"]) == configuration(["n1", "n2", "n3"], ["n0", "n1", "n2"])
    last = group.propose("n0", 1)
    group.silent = {"n2", "n3"}
    group.run()
    # n0 and n1 are a majority of those who were; of those who are to be, n1 is alone.
    assert group["n1"].replica.state.durable == last
    assert group["n0"].committed == last - 1
    group.silent = {"n2"}
    group.pass_time(TIMEOUT_S / 2)
    assert group["n0"].committed == last


def test_what_is_left_decides_at_once_when_somebody_leaves() -> None:
    group = led_by_n0(4)
    last = group.propose("n0", 1)
    propose(group, Remove("n3"))
    group.silent = {"n2", "n3"}
    group.run()
    assert group["n0"].committed == last - 1
    group.silent = {"n3"}
    group.pass_time(TIMEOUT_S / 2)
    assert group["n0"].committed == group["n0"].replica.view.last_index
    group.propose("n0", 1)
    group.silent = {"n2", "n3"}
    group.run()
    assert group["n0"].committed == group["n0"].replica.view.last_index


def test_one_of_two_may_leave_while_the_other_one_hears_it() -> None:
    group = led_by_n0(2)
    changed(group, Remove("n0"))
    group.silent = {"n0"}
    group.pass_time(3 * TIMEOUT_S)
    assert group["n1"].role is Role.LEADER


ENDING = {  # n2 and n3 take over from n0 and n1
    1: NumberedConfiguration(-1, configuration(["n2", "n3"], ["n0", "n1"], auto_leave=True)),
    2: NumberedConfiguration(1, configuration(["n2", "n3"])),
}


def taking_over() -> Group:
    """n0 and n1 know that they have left, and their logs are longer; n2 and n3 do not know."""
    group = Group([[], [], [], []])
    for name, terms, committed in (
        ("n0", [1] * 4, 2),
        ("n1", [1] * 4, 2),
        ("n2", [1] * 3, -1),
        ("n3", [1] * 3, -1),
    ):
        hard_state = HardState(1, None, committed)
        group.members[name] = Member(name, ["n0", "n1"], terms, hard_state, changes=ENDING)
    return group


def test_a_removed_leader_stays_until_the_others_know_that_it_was_removed() -> None:
    group = led_by_n0(2)
    index = propose(group, Remove("n0"))
    group.run(dropped=lambda _, __, message: isinstance(message, Heartbeat))
    assert group["n0"].committed == index
    group["n0"].replica.tick(group.now + HEARTBEAT_S / 2)
    assert role(group["n0"]) is Role.LEADER
    assert not group["n0"].replica.leadership.change_is_known
    group.pass_time(2 * HEARTBEAT_S)
    assert in_force(group["n1"]) == configuration(["n1"])
    assert group["n1"].role is Role.LEADER
    assert role(group["n0"]) is Role.FOLLOWER


def test_a_removed_leader_that_nobody_answers_leaves_all_the_same() -> None:
    group = led_by_n0(2)
    propose(group, Remove("n0"))
    group.run(dropped=lambda _, __, message: isinstance(message, Heartbeat))
    group.silent = {"n1"}
    group.pass_time(TIMEOUT_S * 0.9)
    assert role(group["n0"]) is Role.LEADER
    group.pass_time(TIMEOUT_S * 0.2)
    assert role(group["n0"]) is Role.FOLLOWER


def test_a_member_that_was_removed_tells_those_who_ask_for_its_vote_what_is_committed() -> None:
    group = taking_over()
    assert in_force(group["n0"]) == configuration(["n2", "n3"])
    assert in_force(group["n2"]) == ENDING[1].configuration
    group.stand("n2")
    group.run()
    assert group["n2"].role is not Role.LEADER
    assert in_force(group["n2"]) == configuration(["n2", "n3"])
    group.elect("n2")
    assert in_force(group["n3"]) == configuration(["n2", "n3"])


def test_an_answer_to_a_question_of_before_the_change_counts_for_nothing() -> None:
    # n1 alone decides now. It said yes when n0 was one of three, and n0 is no voter any more.
    alone = NumberedConfiguration(-1, configuration(["n1"]))
    member = Member("n0", ["n0", "n1", "n2"], [1, 1], HardState(1), changes={1: alone})
    member.replica.tick(10 * TIMEOUT_S)
    assert member.role is Role.PRE_CANDIDATE
    member.replica.receive("n2", VoteResponse(1, False, True, 1, 1), 10 * TIMEOUT_S)
    assert in_force(member) == configuration(["n1"])
    member.replica.receive("n1", VoteResponse(2, granted=True, pre=True), 10 * TIMEOUT_S)
    assert member.role is Role.PRE_CANDIDATE
    assert member.term == 1


def test_a_change_is_known_only_when_no_crash_makes_them_forget_it() -> None:
    # Else the one who stays would need the vote of the one who was removed, and may be gone.
    group = led_by_n0(2)
    leader = group["n0"]
    index = propose(group, Remove("n1"))
    group.run(until=lambda: leader.committed == index)
    assert in_force(leader) == configuration(["n0"])
    assert not leader.replica.record.change_is_durable
    assert not leader.replica.leadership.change_is_known
    _, _, record = leader.begin_sync()
    assert record is not None
    assert record.committed == index
    leader.replica.persisted(index, leader.replica.handler.epoch, record, group.now)
    assert leader.replica.record.change_is_durable


def test_a_leader_looks_at_every_answer_until_a_quorum_knows_of_a_change() -> None:
    # Else the answer that makes it known would be taken without a turn, and nothing would wake
    # those who wait for the change.
    group = led_by_n0(2)
    leader = group["n0"]
    index = propose(group, UpdateAddress("n1", "10.0.0.9:1"))
    group.run(dropped=lambda _, __, message: isinstance(message, Heartbeat))
    assert leader.committed == index
    assert leader.replica.record.change_is_durable
    assert not leader.replica.leadership.change_is_known
    leader.replica.tick(group.now)
    assert leader.replica.agenda.later & TELL
    leader.replica.agenda.later = 0
    group.pass_time(2 * HEARTBEAT_S)
    assert leader.replica.leadership.change_is_known
    leader.replica.agenda.later = 0
    leader.replica.tick(group.now)
    assert not leader.replica.agenda.later


def test_a_follower_that_could_forget_a_change_confirms_nothing_that_follows() -> None:
    group = led_by_n0(3)
    follower = group["n1"]
    index = propose(group, Remove("n2"))
    group.run(until=lambda: group["n0"].committed == index)
    term = group["n0"].term
    follower.leaving(group.now)
    follower.replica.receive("n0", Heartbeat(term, index, 99), group.now)
    rounds = [m.round for _, m in follower.leaving(group.now) if isinstance(m, HeartbeatResponse)]
    assert rounds == [0]
    follower.sync(group.now)
    rounds = [m.round for _, m in follower.leaving(group.now) if isinstance(m, HeartbeatResponse)]
    assert rounds == [99]


def test_a_removed_member_learns_it_from_a_voter_that_is_further() -> None:
    # It has the entry that removed it, and forgot that it is committed; the voters went on since.
    group = led_by_n0()
    index = changed(group, Remove("n2"))
    group.restart("n2")
    assert in_force(group["n2"]) == configuration(["n0", "n1", "n2"])
    group.silent = {"n2"}
    group.propose("n0", 5)
    group.pass_time(TIMEOUT_S)
    group.silent = set()
    assert group["n1"].committed > index
    group.pass_time(3 * TIMEOUT_S)
    assert in_force(group["n2"]) == configuration(["n0", "n1"])
    group.sent.clear()
    group.pass_time(4 * TIMEOUT_S)
    assert not [message for sender, _, message in group.sent if sender == "n2"]


@pytest.mark.parametrize(("committed", "term"), [(2, 2), (3, 1), (9, -1), (-1, -1)])
def test_a_candidate_believes_nobody_about_an_entry_that_it_does_not_have(
    committed: int, term: int
) -> None:
    group = taking_over()
    group.stand("n2")
    refusal = VoteResponse(1, False, True, committed, term)
    group["n2"].replica.receive("n0", refusal, group.now)
    assert group["n2"].committed == 1


# --- joint phases ---------------------------------------------------------------------------------


def test_a_joint_phase_begins_and_ends_by_itself() -> None:
    group = led_by_n0(3, "n3", "n4")
    changed(group, LEARN_N3, AddLearner("n4", address_of("n4")))
    begun = changed(group, ADD_N3, AddVoter("n4", address_of("n4")), Remove("n1"), Remove("n2"))
    group.pass_time(TIMEOUT_S)
    assert [at for at in group["n0"].changes if at >= begun] == [begun, begun + 1]
    for name in ("n0", "n3", "n4"):
        assert in_force(group[name]) == configuration(["n0", "n3", "n4"]), name


def test_a_new_leader_ends_the_joint_phase_of_its_predecessor_once() -> None:
    group = led_by_n0(3, "n3")
    changed(group, LEARN_N3)
    begun = propose(group, ADD_N3, Remove("n1"), transition=Transition.JOINT)
    group.run(until=lambda: begun in group["n2"].changes)
    group.silent = {"n0"}
    group.elect("n2")
    group.pass_time(2 * TIMEOUT_S)
    assert len([at for at in group["n2"].changes if at > begun]) == 1
    for name in ("n2", "n3"):
        assert in_force(group[name]) == configuration(["n0", "n2", "n3"]), name


def test_a_transfer_during_a_joint_phase_neither_loses_nor_repeats_its_end() -> None:
    group = led_by_n0()
    begun = changed(group, Demote("n1"), transition=Transition.JOINT_MANUAL)
    group["n0"].replica.transfer_leadership("n1", group.now)
    group.run()
    assert group["n1"].role is Role.LEADER
    group["n1"].take_writes()
    group["n1"].replica.propose_leave()
    group.pass_time(2 * TIMEOUT_S)
    assert len([at for at in group["n2"].changes if at > begun]) == 1
    assert in_force(group["n2"]) == configuration(["n0", "n2"], learners=["n1"])
    assert group["n1"].role is not Role.LEADER


def test_both_halves_elect() -> None:
    group = led_by_n0(3, "n3", "n4")
    changed(group, LEARN_N3, AddLearner("n4", address_of("n4")))
    changed(
        group,
        ADD_N3,
        AddVoter("n4", address_of("n4")),
        Remove("n1"),
        Remove("n2"),
        transition=Transition.JOINT_MANUAL,
    )
    assert in_force(group["n0"]) == configuration(["n0", "n3", "n4"], ["n0", "n1", "n2"])
    group.silent = {"n1", "n2"}
    group.pass_time(8 * TIMEOUT_S)
    assert not [name for name in ("n0", "n3", "n4") if group[name].role is Role.LEADER]
    group.silent = {"n1"}
    group.pass_time(8 * TIMEOUT_S)
    assert [name for name in group.names if name != "n1" and group[name].role is Role.LEADER]


def test_both_halves_keep_a_leader_in_office_and_confirm_its_reads() -> None:
    group = led_by_n0(3, "n3", "n4")
    changed(group, LEARN_N3, AddLearner("n4", address_of("n4")))
    changed(
        group,
        ADD_N3,
        AddVoter("n4", address_of("n4")),
        Remove("n1"),
        Remove("n2"),
        transition=Transition.JOINT_MANUAL,
    )
    group.silent = {"n3", "n4"}
    group["n0"].replica.request_read(1)
    ready: list[ReadReady] = []
    for _ in range(6):
        group.now += HEARTBEAT_S / 4
        group["n0"].replica.tick(group.now)
        for receiver, message in take_messages(group["n0"].replica, group.now).outgoing:
            if receiver in ("n1", "n2"):
                group[receiver].replica.receive("n0", message, group.now)
                for _, answer in group[receiver].leaving(group.now):
                    group["n0"].replica.receive(receiver, answer, group.now)
        ready += take_messages(group["n0"].replica, group.now).reads_ready
    assert ready == []
    group.pass_time(2 * TIMEOUT_S)
    assert group["n0"].role is not Role.LEADER


# --- transfers ------------------------------------------------------------------------------------


def test_leadership_is_not_handed_to_a_learner_or_to_a_removed_member() -> None:
    group = led_by_n0(3, "n3")
    changed(group, LEARN_N3)
    changed(group, Remove("n2"))
    for target in ("n2", "n3"):
        with pytest.raises(TransferFailed):
            group["n0"].replica.transfer_leadership(target, group.now)
    group.silent = {"n1"}
    group.pass_time(TIMEOUT_S / 2)
    with pytest.raises(TransferFailed, match="no other voter"):
        group["n0"].replica.transfer_leadership(None, group.now + TIMEOUT_S)


def test_a_new_voter_does_not_depose_the_leader_before_it_can_answer() -> None:
    group = led_by_n0(1, "n1")
    group.silent = {"n1"}
    changed(group, AddVoter("n1", address_of("n1")))
    assert in_force(group["n0"]).voters == {"n0", "n1"}
    assert role(group["n0"]) is Role.LEADER
    group.silent = set()
    group.pass_time(2 * TIMEOUT_S)
    assert (group["n0"].role, group["n0"].term) == (Role.LEADER, 1)
    assert in_force(group["n1"]).voters == {"n0", "n1"}
    assert NumberedConfiguration(1, in_force(group["n1"])) == group[
        "n0"
    ].replica.state.membership.at(1)


# --- voters that nobody has heard of --------------------------------------------------------------


def test_no_group_is_made_that_could_decide_nothing_without_a_voter_that_never_answered() -> None:
    group = Group([[] for _ in range(3)])
    group.silent = {"n2"}
    group.elect("n0")
    group.pass_time(2 * HEARTBEAT_S)
    with pytest.raises(VotersSilent) as refused:
        propose(group, Remove("n1"), transition=Transition.JOINT_MANUAL)
    assert refused.value.members == ["n2"]
    group.silent = set()
    group.pass_time(2 * HEARTBEAT_S)
    changed(group, Remove("n1"))
    assert in_force(group["n2"]).voters == {"n0", "n2"}


def test_a_silent_voter_can_be_removed_and_replaced() -> None:
    group = Group([[] for _ in range(3)])
    group.join("n3")
    group.silent = {"n2"}
    group.elect("n0")
    group.pass_time(2 * HEARTBEAT_S)
    changed(group, LEARN_N3)
    changed(group, Remove("n2"), ADD_N3)
    assert in_force(group["n0"]).voters == {"n0", "n1", "n3"}
