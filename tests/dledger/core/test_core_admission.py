"""Members whose folder was emptied, and groups that are new."""

from __future__ import annotations

import pytest

from dledger.core.admission.beginning import Hold
from dledger.core.admission.standing import Standing, Told
from dledger.core.hard_state import HardState
from dledger.core.member_state import Role
from dledger.core.membership.change_errors import GrowthNotNoted, VoterInDoubt
from dledger.core.membership.configuration import Configuration
from dledger.core.membership.configuration_change import AddLearner, AddVoter, UpdateAddress
from dledger.core.membership.configuration_codec import NumberedConfiguration
from dledger.core.messages import (
    Heartbeat,
    HeartbeatResponse,
    Inquiry,
    InquiryAnswer,
    Message,
    Phase,
    PushRequest,
    PushResponse,
    Reminder,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from dledger.core.snapshot.snapshot_offer import LogBegin
from dledger.errors import TransferFailed
from tests.dledger.core.configurations import configuration
from tests.dledger.core.core_group import HEARTBEAT_S, TIMEOUT_S, Group, Member

THREE = ["n0", "n1", "n2"]
HALF_S = TIMEOUT_S / 2


def new_group(size: int, told: Told = Told.NOTHING) -> Group:
    """Members whose folders are all empty."""
    group = Group([[]] * size)
    for name in group.names:
        group.wipe(name, told=told)
    return group


def led_group(size: int = 3, entries: int = 5) -> Group:
    """A leader n0 that everybody follows, and some entries, committed and known to be."""
    group = Group([[]] * size)
    group.elect("n0")
    group.propose("n0", entries)
    group.pass_time(2 * HEARTBEAT_S)
    assert {member.committed for member in group.members.values()} == {entries}
    return group


def number_of(member: Member, now: float) -> int:
    """Under which number a member asks."""
    asked = {m.number for _, m in member.leaving(now) if isinstance(m, Inquiry)}
    (number,) = asked
    return number


def proven(group: Group) -> set[str]:
    return {name for name, member in group.members.items() if member.replica.state.proven}


# --- new groups -----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 3, 5])
def test_a_new_group_is_ready_as_soon_as_everybody_has_answered(size: int) -> None:
    group = new_group(size)
    for member in group.members.values():
        member.replica.tick(group.now)
    group.run()
    for member in group.members.values():
        member.replica.tick(group.now)
    assert proven(group) == set(group.names)
    assert group.elect("n0").log == [1]


def test_a_member_in_doubt_asks_again_at_once_when_a_member_can_be_reached() -> None:
    group = led_group()
    group.wipe("n2")
    member = group["n2"]
    member.replica.tick(group.now)
    assert number_of(member, group.now) > 0
    now = group.now + 0.001
    assert not any(isinstance(message, Inquiry) for _, message in member.leaving(now))
    member.replica.reachable("n0", now)
    assert number_of(member, now) > 0


def test_a_pause_of_the_member_itself_is_no_silence_of_the_other_first_voters() -> None:
    group = new_group(3)
    group.silent = {"n1"}
    group.pass_time(2 * TIMEOUT_S)
    replica, later = group["n0"].replica, group.now + 20 * TIMEOUT_S
    replica.patience.look(later)
    assert replica.hold(later) is None


@pytest.mark.parametrize("size", [2, 3, 5])
def test_one_silent_first_voter_keeps_a_group_from_beginning(size: int) -> None:
    group = new_group(size)
    group.silent = {"n1"}
    group.pass_time(20 * TIMEOUT_S)
    assert proven(group) == set()
    hold = group["n0"].replica.admission.hold(group.now)
    assert hold == Hold(("n1",), grown=False)
    group.silent = set()
    group.pass_time(2 * TIMEOUT_S)
    assert proven(group) == set(group.names)
    assert group["n0"].replica.admission.hold(group.now) is None


def test_a_quorum_that_is_told_that_the_group_is_new_waits_half_a_timeout_for_the_others() -> None:
    group = new_group(3, Told.NEW)
    group.silent = {"n2"}
    group.pass_time(0.9 * HALF_S)
    assert proven(group) == set()
    group.pass_time(0.2 * HALF_S)
    assert proven(group) == {"n0", "n1"}


def test_a_minority_that_is_told_that_the_group_is_new_does_not_begin_it() -> None:
    group = new_group(3, Told.NEW)
    group.silent = {"n1", "n2"}
    group.pass_time(20 * TIMEOUT_S)
    assert proven(group) == set()


@pytest.mark.parametrize("told", [Told.NOTHING, Told.NEW])
def test_an_answer_of_a_member_that_holds_the_group_wins_over_what_the_others_are_told(
    told: Told,
) -> None:
    group = led_group()
    group.wipe("n0", told=told)
    group.wipe("n1", told=told)
    group.pass_time(20 * TIMEOUT_S)
    assert proven(group) == {"n2"}
    assert group["n0"].replica.admission.hold(group.now) is None  # n2 answered


def test_two_wiped_members_of_three_wait_for_the_third_that_is_down() -> None:
    group = led_group()
    group.silent = {"n2"}
    group.wipe("n0")
    group.wipe("n1")
    group.pass_time(20 * TIMEOUT_S)
    assert proven(group) == {"n2"}
    assert group["n0"].replica.admission.hold(group.now) == Hold(("n2",), grown=False)
    group.silent = set()
    group.pass_time(20 * TIMEOUT_S)
    assert proven(group) == {"n2"}


def test_first_voters_of_a_group_that_has_grown_beyond_them_do_not_begin_it_anew() -> None:
    # The group was moved to other members, and these were emptied; one of them kept the note.
    group = new_group(3)
    group.wipe("n1", told=Told.GROWN)
    group.pass_time(20 * TIMEOUT_S)
    assert proven(group) == set()
    assert group["n1"].replica.admission.hold(group.now) == Hold((), grown=True)


def test_a_member_that_is_not_new_tells_a_quorum_of_new_ones_that_the_group_is_old() -> None:
    group = led_group()
    group.wipe("n0")
    group.wipe("n1")
    for member in group.members.values():
        member.replica.tick(group.now)
    group.run()
    group.pass_time(10 * TIMEOUT_S)
    assert proven(group) == {"n2"}
    assert all(member.role is not Role.LEADER for member in group.members.values())


def test_a_folder_that_is_known_to_have_lost_something_is_never_new() -> None:
    group = new_group(3)
    group.wipe("n0", Standing.LOST)
    group.wipe("n1", Standing.LOST)
    group.pass_time(3 * TIMEOUT_S)
    assert proven(group) == set()


def test_a_member_that_starts_late_joins_its_group() -> None:
    group = new_group(3, Told.NEW)
    group.silent = {"n2"}
    group.pass_time(HALF_S * 1.1)
    group.elect("n0")
    group.silent = set()
    group.pass_time(2 * TIMEOUT_S)
    assert proven(group) == set(THREE)


# --- what a member in doubt does not do -----------------------------------------------------------


def test_a_wiped_member_gives_no_vote_and_no_pre_vote() -> None:
    member = Member("n0", THREE, standing=Standing.FRESH)
    later = 10 * TIMEOUT_S
    for pre in (True, False):
        member.replica.receive("n1", VoteRequest(9, 50, 8, pre), later)
        member.sync(later)
        answers = [m for _, m in member.leaving(later) if isinstance(m, VoteResponse)]
        assert [answer.granted for answer in answers] == [False]
    assert member.replica.state.voted_for is None


def test_a_wiped_member_does_not_stand() -> None:
    member = Member("n0", THREE, standing=Standing.FRESH)
    for step in range(1, 50):
        member.replica.tick(step * TIMEOUT_S)
        assert member.role is Role.FOLLOWER
        assert not [m for _, m in member.leaving(step * TIMEOUT_S) if isinstance(m, VoteRequest)]


def test_a_wiped_member_does_not_stand_for_its_leader_either() -> None:
    member = Member("n0", THREE, standing=Standing.FRESH)
    member.replica.receive("n1", TimeoutNow(4), 1.0)
    assert member.role is Role.FOLLOWER


def test_a_wiped_member_confirms_no_round_and_promises_nothing() -> None:
    member = Member("n0", THREE, standing=Standing.FRESH)
    member.replica.receive("n1", Heartbeat(4, 10, 77), 1.0)
    member.sync(1.0)
    (answer,) = [m for _, m in member.leaving(1.0) if isinstance(m, HeartbeatResponse)]
    assert answer == HeartbeatResponse(4, 0, 0)


def test_what_a_wiped_member_has_counts_for_no_commit() -> None:
    group = led_group()
    group.wipe("n1")
    group.silent = {"n2"}
    last = group.propose("n0", 3)
    group.pass_time(TIMEOUT_S * 0.8)
    assert group["n1"].log == group["n0"].log
    assert group["n0"].committed < last
    assert proven(group) == {"n0", "n2"}
    group.silent = set()
    group.pass_time(TIMEOUT_S)
    assert group["n0"].committed > last
    assert proven(group) == set(THREE)


def test_an_acknowledgement_of_a_member_in_doubt_is_not_counted() -> None:
    group = led_group()
    leader = group["n0"]
    group.silent = {"n1", "n2"}
    last = group.propose("n0", 1)
    leader.sync(group.now)
    answer = PushResponse(leader.term, Phase.APPEND, ok=True, index=last, match=last, proven=False)
    leader.replica.receive("n1", answer, group.now)
    assert leader.committed == last - 1
    leader.replica.receive("n1", answer._replace(proven=True), group.now)
    assert leader.committed == last


def test_leadership_is_not_handed_to_a_member_in_doubt() -> None:
    group = led_group()
    leader = group["n0"].replica
    group.silent = {"n2"}
    group.wipe("n1")
    group.pass_time(TIMEOUT_S * 0.8)
    with pytest.raises(TransferFailed, match="has not caught up"):
        leader.transfer_leadership("n1", group.now)


# --- proof ----------------------------------------------------------------------------------------


def test_a_wiped_member_is_proven_by_an_entry_that_was_made_for_it() -> None:
    group = led_group()
    before = group["n0"].replica.view.last_index
    wiped = group.wipe("n1")
    group.pass_time(TIMEOUT_S)
    state = wiped.replica.state
    assert proven(group) == set(THREE)
    assert group["n0"].replica.view.last_index == before + 1
    assert wiped.log == group["n0"].log
    assert (state.term, state.voted_for) == (group["n0"].term, "n0")
    assert wiped.record_due is None  # it is on disk, not only meant to be


def test_it_catches_up_though_its_leader_believes_that_it_has_everything() -> None:
    group = led_group(entries=40)
    assert group["n0"].replica.dispatchers["n1"].match_index == 40
    group.wipe("n1")
    group.pass_time(TIMEOUT_S)
    assert group["n0"].replica.dispatchers["n1"].match_index == 41


def test_entries_from_before_the_question_prove_nothing() -> None:
    group = led_group()
    leader = group["n0"]
    wiped = Member("n1", THREE, standing=Standing.FRESH, now=group.now)
    wiped.replica.tick(group.now)
    number = number_of(wiped, group.now)
    last = leader.replica.view.last_index
    answer = InquiryAnswer(leader.term, number, last, False, True, True, 3)
    wiped.replica.receive("n0", answer, group.now)
    runs = leader.replica.view.runs(0, last)
    push = PushRequest(leader.term, Phase.APPEND, -1, -1, last, last, runs=runs)
    wiped.replica.receive("n0", push, group.now)
    for _ in range(3):
        wiped.sync(group.now)
        wiped.replica.tick(group.now)
    assert wiped.committed == last
    assert not wiped.replica.state.proven


def test_a_snapshot_that_holds_the_entry_made_for_a_member_proves_it_as_well() -> None:
    group = led_group()
    leader = group["n0"]
    wiped = Member("n1", THREE, standing=Standing.FRESH, now=group.now)
    wiped.replica.tick(group.now)
    last = leader.replica.view.last_index
    answer = InquiryAnswer(
        leader.term, number_of(wiped, group.now), last, False, True, True, len(THREE)
    )
    wiped.replica.receive("n0", answer, group.now)
    wiped.replica.handler.restart_log(LogBegin(last, leader.term, 1, 0), None)
    for _ in range(3):
        wiped.sync(group.now)
        wiped.replica.tick(group.now)
    assert not wiped.replica.state.proven  # the log begins behind all that was there before
    wiped.replica.handler.restart_log(LogBegin(last + 2, leader.term, 1, 0), None)
    for _ in range(3):
        wiped.sync(group.now)
        wiped.replica.tick(group.now)
    assert wiped.replica.state.proven


def test_the_entry_must_be_committed_and_not_only_there() -> None:
    group = led_group()
    group.silent = {"n2"}
    wiped = group.wipe("n1")
    group.pass_time(TIMEOUT_S * 0.8)
    made = group["n0"].replica.view.last_index
    assert wiped.replica.view.last_index == made == wiped.replica.state.durable
    assert not wiped.replica.state.proven


def test_a_member_is_proven_only_when_its_vote_is_used_up_on_disk() -> None:
    group = led_group()
    wiped = group.wipe("n1")
    wiped.sync(group.now)
    seen = False
    for _ in range(400):
        group.now += HEARTBEAT_S / 8
        for name in THREE:
            group[name].replica.tick(group.now)
        state = wiped.replica.state
        if state.voted_for is not None and not seen:
            seen = True
            assert not state.proven
            assert wiped.replica.record.durable == (state.term, None)
            wiped.replica.tick(group.now)
            assert not state.proven
        if state.proven:
            break
        group.run()
    assert seen
    assert wiped.replica.record.durable == (wiped.term, "n0")


def test_an_answer_to_a_question_of_an_earlier_life_counts_nothing() -> None:
    group = led_group()
    earlier = Member("n1", THREE, standing=Standing.FRESH, now=group.now, share=0.1)
    earlier.replica.tick(group.now)
    number = number_of(earlier, group.now)
    later = Member("n1", THREE, standing=Standing.FRESH, now=group.now, share=0.2)
    later.replica.tick(group.now)
    assert number_of(later, group.now) != number
    for peer in ("n0", "n2"):
        later.replica.receive(peer, InquiryAnswer(0, number, -1, True, True, False, 3), group.now)
    later.replica.tick(group.now)
    assert not later.replica.state.proven


def test_a_leader_appends_one_entry_however_often_it_is_asked() -> None:
    group = led_group()
    leader = group["n0"].replica
    for _ in range(5):
        leader.receive("n1", Inquiry(leader.state.term, 7), group.now)
    answers = [m for _, m in group["n0"].leaving(group.now) if isinstance(m, InquiryAnswer)]
    assert [(answer.last_index, answer.leads) for answer in answers] == [(5, True)] * 5
    assert leader.view.last_index == 6


def test_a_leader_that_hands_over_appends_nothing_for_a_member_in_doubt() -> None:
    group = led_group()
    leader = group["n0"].replica
    leader.transfer_leadership("n2", group.now)
    leader.receive("n1", Inquiry(leader.state.term, 7), group.now)
    answers = [m for _, m in group["n0"].leaving(group.now) if isinstance(m, InquiryAnswer)]
    assert [answer.leads for answer in answers] == [False]
    assert leader.view.last_index == 5


def test_nobody_names_a_term_that_is_not_on_its_disk() -> None:
    member = Member("n0", THREE)
    member.replica.receive("n1", Heartbeat(8, -1, 1), 1.0)
    member.replica.receive("n2", Inquiry(0, 7), 1.0)
    assert not [m for _, m in member.leaving(1.0) if isinstance(m, InquiryAnswer)]
    member.sync(1.0)
    member.replica.receive("n2", Inquiry(0, 7), 1.0)
    assert [m.term for _, m in member.leaving(1.0) if isinstance(m, InquiryAnswer)] == [8]


def test_a_change_of_leader_before_the_proof_begins_it_anew() -> None:
    group = led_group()
    wiped = group.wipe("n1")
    group.silent = {"n2"}
    group.pass_time(TIMEOUT_S / 2)
    assert not wiped.replica.state.proven
    group.silent = set()
    group["n0"].replica.state.role = Role.FOLLOWER  # it lost its office, and nobody knows
    group["n0"].replica.leadership.end()
    group["n0"].replica.elector.postpone(group.now)
    group.pass_time(5 * TIMEOUT_S)
    assert proven(group) == set(THREE)
    assert wiped.term > 1


def test_two_of_five_may_be_wiped_at_once() -> None:
    group = led_group(5)
    group.wipe("n3", share=0.3)
    group.wipe("n4", share=0.6)
    group.pass_time(TIMEOUT_S)
    assert proven(group) == set(group.names)


# --- a group of two -------------------------------------------------------------------------------


@pytest.mark.parametrize("wiped", ["n0", "n1"])
def test_either_member_of_a_group_of_two_may_be_wiped(wiped: str) -> None:
    group = led_group(2)
    other = "n1" if wiped == "n0" else "n0"
    member = group.wipe(wiped)
    group.pass_time(6 * TIMEOUT_S)
    assert proven(group) == {"n0", "n1"}
    assert member.log == group[other].log
    assert len(member.log) > 6


def test_a_wiped_member_of_two_votes_for_the_other_and_does_not_stand() -> None:
    group = led_group(2)
    wiped = group.wipe("n0")
    group.silent = {"n1"}
    group.pass_time(5 * TIMEOUT_S)
    assert wiped.role is Role.FOLLOWER
    wiped.replica.receive("n1", VoteRequest(7, 5, 1, pre=False), group.now)
    assert wiped.replica.state.voted_for is None  # it has not heard yet that they are two
    group.silent = set()
    group.run(until=lambda: wiped.replica.state.sole_other == "n1")
    group.pass_time(4 * TIMEOUT_S)
    assert group["n1"].role is Role.LEADER


def test_a_wiped_member_of_two_does_not_hold_uncommitted_entries_against_the_other() -> None:
    wiped = Member("n0", ["n0", "n1"], [1] * 9, HardState(1), standing=Standing.LOST)
    wiped.replica.tick(1.0)
    number = number_of(wiped, 1.0)
    answer = InquiryAnswer(1, number, 4, False, True, False, 2)
    wiped.replica.receive("n1", answer, 1.0)
    for pre in (True, False):
        wiped.replica.receive("n1", VoteRequest(2, 4, 1, pre), 2.0)
        wiped.sync(2.0)
        granted = [m.granted for _, m in wiped.leaving(2.0) if isinstance(m, VoteResponse)]
        assert granted == [True]


# --- a group of one -------------------------------------------------------------------------------


def test_a_group_of_one_starts_at_once() -> None:
    member = Member("n0", ["n0"], standing=Standing.PROVEN)
    member.replica.tick(0.0)
    member.sync(0.0)
    assert member.role is Role.LEADER


def test_a_group_of_one_that_lost_the_end_of_its_log_goes_on_with_the_rest() -> None:
    member = Member("n0", ["n0"], [1, 1], standing=Standing.LOST)
    for step in range(3):
        member.replica.tick(step * 0.01)
        member.sync(step * 0.01)
    assert member.role is Role.LEADER


def stays_down(member: Member) -> None:
    """It takes part in no election, however long it waits."""
    for step in range(80):
        now = step * HALF_S
        member.replica.tick(now)
        member.sync(now)
        member.leaving(now)
        assert not member.replica.state.proven
        assert member.role is Role.FOLLOWER


@pytest.mark.parametrize(
    ("terms", "standing", "told"),
    [
        ([], Standing.FRESH, Told.GROWN),
        ([], Standing.LOST, Told.GROWN),
        ([1, 1], Standing.LOST, Told.GROWN),  # what it lost may have named the others
        ([], Standing.LOST, Told.NOTHING),
    ],
)
def test_the_first_member_of_a_group_that_may_have_grown_never_begins_it_anew(
    terms: list[int], standing: Standing, told: Told
) -> None:
    member = Member("n0", ["n0"], terms, standing=standing, told=told)
    stays_down(member)
    hold = member.replica.admission.hold(80 * HALF_S)
    assert hold == Hold((), grown=told is Told.GROWN)


def test_the_first_member_of_a_grown_group_that_was_emptied_joins_whoever_calls() -> None:
    group = Group([[]])
    group.elect("n0")
    for name in ("n1", "n2"):
        group.join(name)
        group["n0"].replica.propose_change([AddVoter(name, f"{name}:1")])
        group.pass_time(TIMEOUT_S)
    group["n0"].replica.transfer_leadership("n1", group.now)
    group.pass_time(TIMEOUT_S)
    assert group["n1"].role is Role.LEADER
    assert group["n0"].replica.has_grown
    group.silent = {"n1", "n2"}
    group.wipe("n0", began_with=configuration(["n0"]), told=Told.GROWN)
    group.pass_time(20 * TIMEOUT_S)
    assert not group["n0"].replica.state.proven
    group.silent = set()
    group.pass_time(6 * TIMEOUT_S)
    assert proven(group) == set(THREE)
    assert group["n0"].log == group["n1"].log


def test_a_group_of_one_grows_only_once_that_is_noted() -> None:
    group = Group([[]])
    leader = group.elect("n0").replica
    leader.growth_is_noted = False
    for change in (AddLearner("n1", "n1:1"), AddVoter("n1", "n1:1")):
        with pytest.raises(GrowthNotNoted, match="XDG_STATE_HOME"):
            leader.propose_change([change])
    leader.propose_change([UpdateAddress("n0", "n0:2")])  # it does not grow
    group.pass_time(TIMEOUT_S)
    leader.growth_is_noted = True
    leader.propose_change([AddLearner("n1", "n1:1")])


def test_a_group_of_several_grows_though_it_is_not_noted() -> None:
    leader = led_group()["n0"].replica
    leader.growth_is_noted = False
    leader.propose_change([AddLearner("n3", "n3:1")])


def test_a_new_group_of_one_that_is_told_so_begins_at_once() -> None:
    member = Member("n0", ["n0"], standing=Standing.FRESH, told=Told.NEW)
    member.replica.tick(0.0)
    member.sync(0.0)
    assert member.role is Role.LEADER


def test_a_new_group_of_one_waits_for_others_who_know_it() -> None:
    member = Member("n0", ["n0"], standing=Standing.FRESH)
    member.replica.tick(0.9 * HALF_S)
    member.sync(0.9 * HALF_S)
    member.leaving(0.9 * HALF_S)
    assert not member.replica.state.proven
    assert member.replica.next_deadline() <= HALF_S
    member.replica.tick(HALF_S)
    member.sync(HALF_S)
    assert member.role is Role.LEADER


@pytest.mark.parametrize("message", [Heartbeat(3, -1, 1), VoteRequest(3, 9, 2, pre=False)])
def test_a_group_that_grew_from_one_member_is_not_begun_anew_by_it(message: Message) -> None:
    member = Member("n0", ["n0"], standing=Standing.FRESH)
    member.replica.receive("n1", message, 0.5 * HALF_S)
    for step in range(40):
        now = step * HALF_S
        member.replica.tick(now)
        member.sync(now)
        member.leaving(now)
        assert not member.replica.state.proven
        assert member.role is Role.FOLLOWER


def test_a_group_of_one_does_not_begin_when_a_member_of_a_grown_group_has_called() -> None:
    member = Member("n0", ["n0"], standing=Standing.FRESH)
    member.replica.admission.told_grown()
    stays_down(member)


def test_what_a_group_of_one_began_after_a_crash_in_its_first_election_goes_on() -> None:
    member = Member("n0", ["n0"], hard_state=HardState(1, "n0"), standing=Standing.FRESH)
    member.replica.tick(HALF_S)
    member.sync(HALF_S)
    assert member.replica.state.proven


def test_what_a_member_in_doubt_had_acknowledged_counts_toward_no_commit_any_more() -> None:
    group = led_group(5)
    group.silent = {"n2", "n3", "n4"}
    last = group.propose("n0", 1)
    group.run()  # n0 and n1 have it: one member less than a quorum
    leader = group["n0"]
    group.silent = {"n1", "n3", "n4"}
    leader.replica.receive("n1", Inquiry(leader.term, 4711), group.now)  # its disk is another one
    group.pass_time(2 * HEARTBEAT_S)
    assert group["n2"].log[: last + 1] == leader.log[: last + 1]
    assert leader.committed < last
    group.silent = {"n3", "n4"}
    group.pass_time(2 * HEARTBEAT_S)
    assert leader.committed >= last


# --- who joins ------------------------------------------------------------------------------------


def joined_group() -> tuple[Group, Member]:
    """A led group of two, and a third that joined it with an empty folder and votes."""
    group = led_group(2)
    group.join("n2")
    joined = group.wipe("n2", began_with=Configuration())
    group["n0"].replica.propose_change([AddLearner("n2", "n2:1")])
    group.pass_time(TIMEOUT_S)
    group["n0"].replica.propose_change([AddVoter("n2", "n2:1")])
    group.pass_time(TIMEOUT_S)
    assert "n2" in group["n0"].replica.state.membership.voting_members
    return group, joined


def test_a_joining_member_is_proven_by_an_entry_of_its_leader() -> None:
    group, joined = joined_group()
    assert proven(group) == set(THREE)
    assert joined.log == group["n0"].log


def test_a_joining_member_gives_no_vote_before_it_is_proven() -> None:
    # With the same folder and the same options it may have been a member before.
    member = Member("n2", [], began_with=Configuration(), standing=Standing.FRESH)
    later = 10 * TIMEOUT_S
    member.replica.tick(later)
    for pre in (True, False):
        member.replica.receive("n1", VoteRequest(9, 50, 8, pre), later)
        member.sync(later)
        granted = [m.granted for _, m in member.leaving(later) if isinstance(m, VoteResponse)]
        assert granted == [False]
    assert not member.replica.state.proven


def test_a_member_that_joined_and_lost_its_disk_is_proven_again() -> None:
    group, _ = joined_group()
    wiped = group.wipe("n2", began_with=Configuration(), share=0.7)
    group.silent = {"n1"}
    last = group.propose("n0", 3)
    group.pass_time(2 * HEARTBEAT_S)
    assert not wiped.replica.state.proven
    assert group["n0"].committed < last
    group.silent = set()
    group.pass_time(TIMEOUT_S)
    assert proven(group) == set(THREE)
    assert group["n0"].committed >= last


def test_a_voter_may_not_be_made_of_one_who_joins_in_doubt() -> None:
    group = led_group(2)
    group.join("n2")
    group.wipe("n2", began_with=Configuration())
    leader = group["n0"].replica
    leader.propose_change([AddLearner("n2", "n2:1")])
    group.pass_time(TIMEOUT_S)  # a quorum is needed to commit what proves it
    group.silent = {"n1"}
    group.wipe("n2", began_with=Configuration(), share=0.7)
    leader.reachable("n2", group.now)
    group.pass_time(HEARTBEAT_S)
    assert not leader.dispatchers["n2"].proven
    with pytest.raises(VoterInDoubt):
        leader.propose_change([AddVoter("n2", "n2:1")])


def test_a_folder_that_lost_something_asks_whom_its_log_names() -> None:
    # The settings of a group that grew from one name nobody else.
    grown = configuration(THREE)
    changes = {1: NumberedConfiguration(-1, grown)}
    member = Member(
        "n0", ["n0"], [1, 1, 1], HardState(1, "n0", 2), standing=Standing.LOST, changes=changes
    )
    member.replica.handler.learn_committed(2)
    member.replica.tick(1.0)
    assert not member.replica.state.proven
    assert {peer for peer, m in member.leaving(1.0) if isinstance(m, Inquiry)} == {"n1", "n2"}


def test_a_member_with_three_in_its_settings_does_not_believe_one_that_says_two() -> None:
    # That one may have missed that others came, and that it left.
    wiped = Member("n0", THREE, standing=Standing.FRESH)
    wiped.replica.tick(1.0)
    answer = InquiryAnswer(1, number_of(wiped, 1.0), 4, False, True, False, 2)
    wiped.replica.receive("n1", answer, 1.0)
    assert wiped.replica.state.sole_other is None


# --- who asks nobody ------------------------------------------------------------------------------


def test_a_proven_member_asks_nobody_anything() -> None:
    member = Member("n0", THREE, hard_state=HardState(3, "n1"))
    for step in range(20):
        member.replica.tick(step * 0.01)
        assert not [m for _, m in member.leaving(step * 0.01) if isinstance(m, Inquiry)]


# --- a disk that lost what it had synced ----------------------------------------------------------


def test_a_member_that_lost_an_acknowledged_tail_learns_it_from_its_leader() -> None:
    group = led_group(entries=20)
    shorter = Member(
        "n1", THREE, [1] * 10, HardState(1, "n0", 5), now=group.now, standing=Standing.PROVEN
    )
    group.members["n1"] = shorter
    group["n0"].replica.reachable("n1", group.now)
    group.run(until=lambda: not shorter.replica.state.proven)
    assert not shorter.replica.state.proven
    assert shorter.replica.admission.standing is Standing.LOST
    group.pass_time(TIMEOUT_S)
    assert shorter.replica.state.proven
    assert shorter.log == group["n0"].log


def test_a_restored_folder_of_an_older_term_is_found_out_by_the_leader_it_acknowledged_to() -> None:
    group = led_group(entries=20)
    restored = Member("n1", THREE, [], HardState(0, None), now=group.now)
    group.members["n1"] = restored
    group["n0"].replica.reachable("n1", group.now)
    doubted = False
    for _ in range(60):
        group.pass_time(HEARTBEAT_S / 4)
        doubted = doubted or not restored.replica.state.proven
    assert doubted
    assert restored.replica.state.proven
    assert restored.log == group["n0"].log


def test_what_members_acknowledged_in_doubt_is_no_promise_of_the_folders_that_they_had_before() -> (
    None
):
    group = led_group(entries=20)
    leader, others = group["n0"], ("n1", "n2")
    kept = {name: group[name] for name in others}
    for name in others:  # their disks are mislaid, and empty ones take the place of them
        group.members[name] = Member(name, THREE, [], standing=Standing.FRESH, now=group.now)
        leader.replica.reachable(name, group.now)
    group.propose("n0", 5)
    group.pass_time(TIMEOUT_S / 2)
    assert all(group[name].log == leader.log for name in others)
    assert proven(group) == {"n0"}
    for name in others:
        group.members[name] = kept[name]
        leader.replica.reachable(name, group.now)
    for _ in range(60):
        group.pass_time(HEARTBEAT_S / 4)
        assert proven(group) == set(THREE)
    assert {group[name].committed for name in others} == {leader.replica.view.last_index}


def test_a_reminder_of_what_is_there_casts_no_doubt() -> None:
    group = led_group(entries=20)
    follower = group["n1"]
    follower.replica.receive("n0", Reminder(1, 20), group.now)
    assert follower.replica.state.proven
    follower.replica.receive("n0", Reminder(0, 400), group.now)  # of an older term
    assert follower.replica.state.proven
    follower.replica.receive("n0", Reminder(1, 21), group.now)
    assert not follower.replica.state.proven


def test_a_late_refusal_has_the_peer_reminded_and_changes_nothing_else() -> None:
    group = led_group(entries=20)
    leader = group["n0"]
    old = PushResponse(1, Phase.COMPARE, ok=False, index=20, hint_index=3, hint_term=1)
    leader.replica.receive("n1", old, group.now)
    reminders = [m for _, m in leader.leaving(group.now) if isinstance(m, Reminder)]
    assert reminders == [Reminder(1, 20)]
    group.pass_time(TIMEOUT_S)
    last = group.propose("n0", 1)
    group.pass_time(HEARTBEAT_S)
    assert {member.committed for member in group.members.values()} == {last}
    assert proven(group) == set(THREE)


def test_a_member_asks_its_leader_even_if_that_one_joined_after_it_was_set_up() -> None:
    late = Member("n1", THREE, standing=Standing.FRESH)
    late.replica.tick(0.0)
    asked = {peer for peer, m in late.leaving(0.0) if isinstance(m, Inquiry)}
    assert asked == {"n0", "n2"}
    late.replica.receive("n7", Heartbeat(3, -1, 1), 0.0)
    late.sync(HEARTBEAT_S)
    now = 2 * HEARTBEAT_S
    late.replica.tick(now)
    asked = {peer for peer, m in late.leaving(now) if isinstance(m, Inquiry)}
    assert asked == {"n0", "n2", "n7"}
