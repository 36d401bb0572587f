from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.core.membership.change_errors import (
    AlreadyJoint,
    ChangePending,
    ChangeRefused,
    ConfigurationMoved,
    NotAStep,
    NotJoint,
    NoVoters,
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
    leave_joint,
)
from dledger.core.membership.configuration_codec import NumberedConfiguration
from dledger.core.membership.membership import Membership
from dledger.errors import (
    InvariantBroken,
)
from tests.dledger.core.configurations import address_of, changes, configuration, quorums_meet

ABC = configuration("abc")
ABCD = configuration("abcd")
ADD_D = [AddVoter("d", address_of("d"))]
ADD_E = [AddVoter("e", address_of("e"))]
REPLACE_A = [*ADD_D, Remove("a")]


def leader(group: Configuration = ABC) -> Membership:
    """A leader whose term began at 4."""
    membership = Membership(group)
    membership.elected(4)
    return membership


def carry_out(membership: Membership, index: int, wanted: Sequence[Change]) -> None:
    """Propose, append and commit a change at `index`."""
    membership.appended(index, membership.propose(wanted, committed=index - 1))
    assert membership.committed_to(index) == [(index, None)]


# --- when it is in force --------------------------------------------------------------------------


def test_a_configuration_is_in_force_when_it_is_committed_and_not_before() -> None:
    membership = leader()
    membership.appended(5, membership.propose(ADD_D, committed=4))
    assert membership.committed_to(4) == ()
    assert membership.configuration == ABC
    assert membership.quorum.voters == frozenset("abc")
    assert membership.committed_to(5) == [(5, None)]
    assert membership.configuration == ABCD
    assert membership.quorum.voters == frozenset("abcd")
    assert membership.index == 5
    assert membership.committed_to(9) == ()


def test_a_change_that_was_cut_off_the_log_was_never_there() -> None:
    membership = leader()
    membership.appended(5, membership.propose(ADD_D, committed=4))
    membership.truncated_after(4)
    assert membership.committed_to(9) == ()
    assert membership.configuration == ABC
    membership.appended(5, membership.propose(ADD_E, committed=4))
    membership.truncated_after(5)
    assert membership.committed_to(5) == [(5, None)]
    assert membership.configuration == configuration("abce")


def test_a_configuration_in_force_is_never_cut_off() -> None:
    membership = leader()
    carry_out(membership, 5, ADD_D)
    with pytest.raises(InvariantBroken, match="cut at 4"):
        membership.truncated_after(4)


def test_several_changes_can_become_committed_at_once_on_a_member_that_was_away() -> None:
    membership = Membership(ABC)
    membership.appended(5, NumberedConfiguration(-1, ABCD))
    membership.appended(9, NumberedConfiguration(5, configuration("abcde")))
    assert membership.committed_to(20) == [(5, None), (9, None)]
    assert membership.index == 9


@pytest.mark.parametrize("index", [4, 5])
def test_changes_stand_in_the_log_once_and_in_order(index: int) -> None:
    for committed in (0, 5):
        membership = Membership(ABC)
        membership.appended(5, NumberedConfiguration(-1, ABCD))
        membership.committed_to(committed)
        with pytest.raises(InvariantBroken, match="behind the one at 5"):
            membership.appended(index, NumberedConfiguration(-1, ABC))


# --- one change at a time -------------------------------------------------------------------------


def test_a_second_change_waits_until_the_first_is_committed() -> None:
    membership = leader()
    membership.appended(5, membership.propose(ADD_D, committed=4))
    with pytest.raises(ChangePending) as refused:
        membership.propose([Remove("a")], committed=4)
    assert refused.value.index == 5
    membership.committed_to(5)
    assert membership.propose([Remove("a")], committed=5).index == 5


def test_a_new_leader_changes_nothing_before_an_entry_of_its_term_is_committed() -> None:
    # Two leaders that each add a node to what they know could decide without each other (the
    # mistake in the first publication of single-server changes).
    membership = Membership(ABC)
    membership.elected(9)
    with pytest.raises(ChangePending, match="wait until entry 9 is committed"):
        membership.propose(ADD_D, committed=8)
    assert membership.propose(ADD_D, committed=9).configuration == ABCD


def test_a_new_leader_waits_for_the_change_that_its_predecessor_left_in_the_log() -> None:
    successor = Membership(ABC)
    successor.appended(5, NumberedConfiguration(-1, ABCD))
    successor.elected(6)
    for committed in (4, 5):
        successor.committed_to(committed)
        with pytest.raises(ChangePending):
            successor.propose(ADD_E, committed)
    assert successor.propose(ADD_E, committed=6) == (5, configuration("abcde"))


def test_a_change_made_for_an_older_configuration_is_refused() -> None:
    membership = leader()
    membership.appended(5, membership.propose(ADD_D, committed=4, expected=-1))
    membership.committed_to(5)
    with pytest.raises(ConfigurationMoved) as refused:
        membership.propose([Remove("a")], committed=5, expected=-1)
    assert (refused.value.expected, refused.value.present) == (-1, 5)
    assert membership.propose([Remove("a")], committed=5, expected=5).index == 5


def test_a_refused_change_leaves_no_change_pending() -> None:
    membership = leader(configuration("a"))
    with pytest.raises(NoVoters):
        membership.propose([Demote("a")], committed=4)
    assert membership.propose(ADD_D, committed=4).configuration == configuration("ad")


def test_a_learner_is_promoted_by_a_change_like_any_other() -> None:
    membership = leader(configuration("ab", "", "c"))
    carry_out(membership, 5, [Promote("c")])
    assert membership.configuration == ABC


def test_an_entry_made_for_another_configuration_is_void_on_every_member() -> None:
    together, apart = Membership(ABC), Membership(ABC)
    for membership in (together, apart):
        membership.appended(5, NumberedConfiguration(-1, ABCD))
        membership.appended(6, NumberedConfiguration(-1, configuration("abce")))
    outcomes = list(together.committed_to(6))
    assert outcomes[0] == (5, None)
    assert isinstance(outcomes[1].refusal, ConfigurationMoved)
    apart.committed_to(5)
    assert isinstance(apart.committed_to(6)[0].refusal, ConfigurationMoved)
    for membership in (together, apart):
        assert membership.configuration == ABCD
        assert membership.index == 5


def test_an_entry_that_is_no_step_is_void() -> None:
    membership = leader()
    carry_out(membership, 5, ADD_D)
    membership.appended(6, NumberedConfiguration(5, configuration("de")))
    assert isinstance(membership.committed_to(6)[0].refusal, NotAStep)
    assert membership.configuration == ABCD
    assert membership.index == 5


@pytest.mark.parametrize("settings", [Configuration(), ABC, configuration("axy")], ids=str)
def test_what_a_member_was_told_at_its_start_does_not_outweigh_the_log(
    settings: Configuration,
) -> None:
    # A newcomer is told of nobody, or of members that left long ago.
    newcomer = Membership(settings)
    newcomer.appended(5, leader().propose(REPLACE_A, committed=4))
    assert newcomer.committed_to(5) == [(5, None)]
    assert newcomer.configuration == configuration("bcd", "abc", auto_leave=True)


# --- joint phases ---------------------------------------------------------------------------------


def test_the_leader_ends_a_joint_phase_once() -> None:
    membership = leader()
    assert not membership.leave_due(committed=4)
    membership.appended(5, membership.propose(REPLACE_A, committed=4))
    assert not membership.leave_due(committed=4)
    membership.committed_to(5)
    assert membership.leave_due(committed=5)
    membership.appended(6, membership.propose_leave(committed=5))
    assert not membership.leave_due(committed=5)
    with pytest.raises(ChangePending):
        membership.propose_leave(committed=5)
    membership.committed_to(6)
    assert not membership.leave_due(committed=6)
    assert membership.configuration == configuration("bcd")


def test_a_new_leader_ends_the_joint_phase_that_its_predecessor_began() -> None:
    successor = Membership(ABC)
    successor.appended(5, leader().propose(REPLACE_A, committed=4))
    successor.committed_to(5)
    successor.elected(7)
    assert not successor.leave_due(committed=6)
    assert successor.leave_due(committed=7)


def test_a_new_leader_does_not_end_again_what_its_predecessor_ended() -> None:
    began = leader().propose(REPLACE_A, committed=4)
    successor = Membership(ABC)
    successor.appended(5, began)
    successor.committed_to(5)
    successor.appended(6, NumberedConfiguration(5, leave_joint(began.configuration)))
    successor.elected(7)
    assert not successor.leave_due(committed=5)
    successor.committed_to(7)
    assert not successor.leave_due(committed=7)


def test_a_joint_phase_that_is_to_be_ended_by_hand_is_left_alone() -> None:
    membership = leader()
    entry = membership.propose(REPLACE_A, committed=4, transition=Transition.JOINT_MANUAL)
    membership.appended(5, entry)
    membership.committed_to(5)
    assert not membership.leave_due(committed=5)
    with pytest.raises(AlreadyJoint):
        membership.propose([AddLearner("e", address_of("e"))], committed=5)
    membership.appended(6, membership.propose_leave(committed=5))
    membership.committed_to(6)
    with pytest.raises(NotJoint):
        membership.propose_leave(committed=6)


# --- restarts and snapshots -----------------------------------------------------------------------


def test_a_change_in_the_log_proves_that_the_one_before_is_committed() -> None:
    # b and c have both changes in their logs, a, d and e committed more by the second. Had b
    # forgotten that the first is committed, it could win by the votes of b and c alone.
    restarted = Membership(ABC)
    assert restarted.known_committed == -1
    restarted.appended(5, NumberedConfiguration(-1, ABCD))
    assert restarted.known_committed == -1
    restarted.appended(9, NumberedConfiguration(5, configuration("abcde")))
    assert restarted.known_committed == 5
    restarted.committed_to(restarted.known_committed)
    assert restarted.configuration == ABCD
    restarted.truncated_after(8)
    assert restarted.known_committed == 5


@given(st.lists(changes, min_size=1, max_size=8), st.data())
def test_a_restarted_member_is_at_most_one_step_behind_what_its_log_can_commit(
    wanted: list[list[Change]], data: st.DataObject
) -> None:
    group = leader()
    log: dict[int, NumberedConfiguration] = {}
    in_force = {4: ABC}
    for index, each in enumerate(wanted, start=5):
        try:
            entry = (
                group.propose_leave(index - 1)
                if group.leave_due(index - 1)
                else group.propose(each, committed=index - 1)
            )
        except ChangeRefused:
            continue
        log[index] = entry
        group.appended(index, entry)
        group.committed_to(index)
        in_force[index] = group.configuration
    end = data.draw(st.sampled_from([4, *log]))
    restarted = Membership(ABC)
    for index, entry in log.items():
        if index <= end:
            restarted.appended(index, entry)
    restarted.committed_to(restarted.known_committed)
    # Whoever has this log can have been outvoted only by what the last change in it brought.
    assert quorums_meet(restarted.configuration, in_force[end])


def test_a_snapshot_brings_its_configuration() -> None:
    newcomer = Membership(Configuration())
    newcomer.appended(3, NumberedConfiguration(-1, ABC))
    newcomer.install(NumberedConfiguration(5, ABCD))
    assert newcomer.index == newcomer.known_committed == 5
    assert newcomer.quorum.voters == frozenset("abcd")
    assert newcomer.committed_to(9) == ()
    with pytest.raises(InvariantBroken, match="forgotten"):
        newcomer.at(4)
    with pytest.raises(InvariantBroken, match="older than 5"):
        newcomer.install(NumberedConfiguration(4, ABC))


def test_a_snapshot_carries_what_was_in_force_at_its_index_and_not_what_is_now() -> None:
    membership = leader()
    carry_out(membership, 5, ADD_D)
    carry_out(membership, 8, ADD_E)
    assert membership.at(4) == (-1, ABC)
    assert membership.at(5) == membership.at(7) == (5, ABCD)
    assert membership.at(99) == (8, configuration("abcde"))
    membership.forget_before(6)
    assert membership.at(6) == (5, ABCD)
    with pytest.raises(InvariantBroken, match="forgotten"):
        membership.at(4)
    membership.forget_before(99)
    assert membership.at(99).index == 8
    membership.forget_before(0)
    assert membership.at(99).index == 8


def test_a_membership_is_settled_when_no_change_is_under_way() -> None:
    membership = leader()
    assert membership.is_settled
    membership.appended(5, membership.propose(ADD_D, committed=4))
    assert not membership.is_settled  # not committed yet
    membership.committed_to(5)
    assert membership.is_settled


def test_a_membership_is_not_settled_in_a_joint_phase_though_all_of_it_is_committed() -> None:
    membership = leader()
    membership.appended(5, membership.propose(REPLACE_A, committed=4))
    membership.committed_to(5)
    assert membership.configuration.is_joint
    assert not membership.uncommitted
    assert not membership.is_settled
