from contextlib import suppress

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from dledger.core.membership.change_errors import (
    AlreadyJoint,
    ChangeRefused,
    ConfigurationInvalid,
    MemberUnknown,
    NotAStep,
    NotJoint,
    NoVoters,
    TooManyVotersChanged,
)
from dledger.core.membership.configuration import MAX_VOTERS, Configuration
from dledger.core.membership.configuration_change import (
    AddLearner,
    AddVoter,
    Change,
    Demote,
    Promote,
    Remove,
    Transition,
    UpdateAddress,
    change,
    check_step,
    enter_joint,
    leave_joint,
    simple,
)
from dledger.errors import (
    Rejected,
)
from tests.dledger.core.configurations import (
    address_of,
    changes,
    configuration,
    configurations,
    is_quorum,
    quorums_meet,
)

ABC = configuration("abc")
transitions = st.sampled_from(Transition)


def add_voter(member: str) -> AddVoter:
    return AddVoter(member, address_of(member))


def add_learner(member: str) -> AddLearner:
    return AddLearner(member, address_of(member))


# --- one change after the other -------------------------------------------------------------------


def test_a_voter_is_replaced_in_one_joint_change() -> None:
    joint = change(ABC, [add_voter("d"), Remove("a")])
    assert joint == configuration("bcd", "abc", auto_leave=True)
    assert leave_joint(joint) == configuration("bcd")


def test_a_single_voter_comes_or_goes_at_once() -> None:
    assert change(ABC, [add_voter("d")]) == configuration("abcd")
    assert change(ABC, [Remove("a")]) == configuration("bc")
    assert change(configuration("ab", "", "c"), [Promote("c")]) == ABC
    assert change(ABC, [Demote("c"), add_learner("d")]) == configuration("ab", "", "cd")


def test_a_joint_change_of_one_voter_can_be_asked_for() -> None:
    by_leader = change(ABC, [add_voter("d")], Transition.JOINT)
    assert by_leader == configuration("abcd", "abc", auto_leave=True)
    by_hand = change(ABC, [add_voter("d")], Transition.JOINT_MANUAL)
    assert by_hand == configuration("abcd", "abc")


def test_a_demoted_voter_votes_on_until_the_joint_phase_ends() -> None:
    joint = change(ABC, [add_voter("d"), Demote("a")])
    assert joint == configuration("bcd", "abc", "", "a", auto_leave=True)
    assert "a" in joint.voting_members
    assert "a" not in joint.learners
    assert leave_joint(joint) == configuration("bcd", "", "a")


def test_a_member_that_leaves_keeps_its_address_until_the_joint_phase_ends() -> None:
    joint = change(ABC, [add_voter("d"), Remove("a")])
    assert joint.addresses["a"] == address_of("a")
    assert "a" not in leave_joint(joint).addresses


def test_an_address_changes_without_any_voter_changing() -> None:
    moved = change(ABC, [UpdateAddress("b", "elsewhere:1")])
    assert moved.addresses == {**ABC.addresses, "b": "elsewhere:1"}
    assert moved.voters == ABC.voters


def test_two_members_can_swap_their_addresses_in_one_change() -> None:
    swapped = change(
        ABC, [UpdateAddress("a", address_of("b")), UpdateAddress("b", address_of("a"))]
    )
    assert swapped.addresses["a"] == address_of("b")


def test_a_member_added_anew_is_where_the_last_word_puts_it() -> None:
    assert change(ABC, [AddVoter("a", "elsewhere:1")]).addresses["a"] == "elsewhere:1"


@pytest.mark.parametrize(
    "wanted",
    [AddVoter("d", "0.0.0.0:1"), AddLearner("d", "[::]:1"), UpdateAddress("a", "0.0.0.0:1")],
)
def test_a_change_to_an_address_that_nobody_reaches_is_refused(wanted: Change) -> None:
    with pytest.raises(ConfigurationInvalid, match="cannot connect to"):
        change(ABC, [wanted])


def test_an_address_that_nobody_reaches_does_not_hinder_another_change() -> None:
    addresses = {**ABC.addresses, "a": "0.0.0.0:1"}
    old = Configuration(voters=ABC.voters, addresses=addresses)
    assert change(old, [add_voter("d"), AddVoter("a", "0.0.0.0:1")]).addresses["a"] == "0.0.0.0:1"
    assert change(old, [UpdateAddress("a", "h:1")]).addresses["a"] == "h:1"


@pytest.mark.parametrize("wanted", [Promote("x"), Demote("x"), UpdateAddress("x", "h:1")])
def test_a_change_of_somebody_who_is_no_member_is_refused(wanted: Change) -> None:
    with pytest.raises(MemberUnknown, match="'x' is not a member"):
        change(ABC, [wanted])


def test_somebody_removed_by_the_same_change_is_no_member_any_more() -> None:
    with pytest.raises(MemberUnknown):
        change(configuration("ab", "", "c"), [Remove("c"), Promote("c")])


def test_removing_a_stranger_does_nothing() -> None:
    assert change(ABC, [Remove("x")]) == ABC


@pytest.mark.parametrize("wanted", [Remove("a"), Demote("a")])
def test_the_last_voter_stays(wanted: Change) -> None:
    alone = configuration("a", "", "b")
    for transition in Transition:
        with pytest.raises(NoVoters):
            change(alone, [wanted], transition)


def test_a_joint_configuration_takes_no_change_but_its_end() -> None:
    joint = change(ABC, [add_voter("d"), Remove("a")])
    for transition in Transition:
        with pytest.raises(AlreadyJoint):
            change(joint, [add_learner("e")], transition)
    with pytest.raises(NotJoint):
        leave_joint(ABC)


def test_more_than_one_voter_at_once_is_refused_by_name() -> None:
    with pytest.raises(TooManyVotersChanged) as refused:
        simple(ABC, [add_voter("d"), Remove("a")])
    assert refused.value.changed == 2


def test_a_tenth_voter_is_refused() -> None:
    nine = configuration([f"m{number}" for number in range(MAX_VOTERS)])
    with pytest.raises(ConfigurationInvalid, match="more than 9 voters"):
        change(nine, [add_voter("a")])


def test_a_refused_change_is_safe_to_try_again() -> None:
    assert issubclass(ChangeRefused, Rejected)
    assert ChangeRefused.retry_safe


# --- what holds for every change ------------------------------------------------------------------


@given(configurations(), st.lists(st.tuples(changes, transitions), max_size=6))
def test_every_step_of_every_sequence_of_changes_keeps_the_quorums_together(
    group: Configuration, steps: list[tuple[list[Change], Transition]]
) -> None:
    for wanted, transition in steps:
        try:
            after = leave_joint(group) if group.is_joint else change(group, wanted, transition)
        except ChangeRefused:
            continue
        check_step(group, after)
        assert quorums_meet(group, after)
        group = after


@given(configurations(), configurations())
@example(ABC, configuration("abcd", "abc", auto_leave=True))
@example(configuration("abcd", "abc", auto_leave=True), configuration("abcd"))
def test_whatever_counts_as_a_step_keeps_the_quorums_together(
    before: Configuration, after: Configuration
) -> None:
    try:
        check_step(before, after)
    except NotAStep:
        return
    assert quorums_meet(before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (ABC, configuration("ade")),
        (ABC, configuration("abcde")),
        (ABC, configuration("")),
        (ABC, configuration("cd", "ab")),
        (ABC, configuration("cde", "abcd")),
        (configuration("cd", "abc"), configuration("de")),
        (configuration("cd", "abc"), configuration("ab")),
        (configuration("cd", "abc"), configuration("cde", "abc")),
        (configuration("cd", "abc"), configuration("cd", "", "e")),
        (configuration("cd", "abc", "", "a"), configuration("cd")),
    ],
    ids=str,
)
def test_what_no_single_change_leads_to_is_not_a_step(
    before: Configuration, after: Configuration
) -> None:
    with pytest.raises(NotAStep):
        check_step(before, after)


def test_configurations_two_steps_apart_can_decide_without_each_other() -> None:
    # Why a change waits until the one before is applied, and why its entry names that one.
    first, second = change(ABC, [add_voter("d")]), configuration("abcde")
    assert change(first, [add_voter("e")]) == second
    assert quorums_meet(ABC, first)
    assert quorums_meet(first, second)
    assert not quorums_meet(ABC, second)


@given(configurations(joint=False), changes)
def test_a_joint_change_ends_where_the_same_changes_one_by_one_end(
    group: Configuration, wanted: list[Change]
) -> None:
    one_by_one = group
    try:
        for single in wanted:
            one_by_one = simple(one_by_one, [single])
        joint = enter_joint(group, wanted, auto_leave=True)
    except ChangeRefused:
        assume(False)
    assert leave_joint(joint) == one_by_one


@given(configurations(joint=True))
def test_a_joint_phase_can_always_end(group: Configuration) -> None:
    after = leave_joint(group)
    assert not after.is_joint
    assert after.voters == group.voters
    assert after.learners == group.learners | group.learners_next
    assert quorums_meet(group, after)


@given(configurations(), changes, transitions)
def test_a_change_never_alters_the_configuration_it_starts_from(
    group: Configuration, wanted: list[Change], transition: Transition
) -> None:
    before = str(group), dict(group.addresses)
    with suppress(ChangeRefused):
        change(group, wanted, transition)
    assert (str(group), dict(group.addresses)) == before


@given(configurations(), st.frozensets(st.sampled_from("abcdefg")))
def test_the_quorum_of_a_configuration_is_a_majority_of_each_half(
    group: Configuration, followers: frozenset[str]
) -> None:
    decided = group.quorum.committed_index(dict.fromkeys(followers, 5)) == 5
    assert decided == is_quorum(group, followers)
