import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.core.membership.catch_up import (
    MAX_ROUNDS,
    NEARLY_NONE_ENTRIES,
    STALLED_AFTER_TIMEOUTS,
    CatchUp,
    Verdict,
    check_caught_up,
    learners_first,
    new_voters,
)
from dledger.core.membership.change_errors import (
    LearnerBehind,
)
from dledger.core.membership.configuration_change import (
    AddLearner,
    AddVoter,
    Promote,
    Remove,
    change,
)
from tests.dledger.core.configurations import address_of, configuration

TIMEOUT_S = 0.5
FAR = 100 * NEARLY_NONE_ENTRIES


def test_a_learner_that_needs_less_than_an_election_timeout_for_a_round_may_vote() -> None:
    learner = CatchUp(FAR, TIMEOUT_S, now=0.0)
    assert learner.observe(FAR - 1, 2 * FAR, now=0.3) is Verdict.CATCHING_UP
    assert learner.observe(FAR, 2 * FAR, now=0.4) is Verdict.CAUGHT_UP


def test_a_learner_in_doubt_has_not_caught_up_before_it_is_proven() -> None:
    learner = CatchUp(FAR, TIMEOUT_S, now=0.0)
    assert learner.observe(FAR, FAR, now=0.1, proven=False) is Verdict.CATCHING_UP
    assert learner.observe(FAR, FAR, now=0.2) is Verdict.CAUGHT_UP


def test_a_learner_that_lacks_the_log_of_a_week_may_vote_after_shorter_and_shorter_rounds() -> None:
    learner = CatchUp(FAR, TIMEOUT_S, now=0.0)
    assert learner.observe(FAR, 2 * FAR, now=60.0) is Verdict.CATCHING_UP
    assert learner.observe(2 * FAR - 1, 3 * FAR, now=65.0) is Verdict.CATCHING_UP
    assert learner.observe(2 * FAR, 3 * FAR, now=66.0) is Verdict.CATCHING_UP
    assert learner.round == 3
    assert learner.observe(3 * FAR, 4 * FAR, now=66.4) is Verdict.CAUGHT_UP


def test_a_learner_with_nearly_everything_may_vote_however_long_it_took() -> None:
    learner = CatchUp(FAR, TIMEOUT_S, now=0.0)
    assert learner.observe(FAR, FAR + NEARLY_NONE_ENTRIES, now=60.0) is Verdict.CAUGHT_UP


def test_one_entry_more_than_nearly_none_takes_another_round() -> None:
    learner = CatchUp(FAR, TIMEOUT_S, now=0.0)
    assert learner.observe(FAR, FAR + NEARLY_NONE_ENTRIES + 1, now=60.0) is Verdict.CATCHING_UP


def test_a_learner_slower_than_the_clients_is_given_up() -> None:
    learner = CatchUp(FAR, TIMEOUT_S, now=0.0)
    verdicts = [
        learner.observe(round_number * FAR, (round_number + 1) * FAR, now=float(round_number))
        for round_number in range(1, MAX_ROUNDS + 1)
    ]
    assert verdicts == [Verdict.CATCHING_UP] * (MAX_ROUNDS - 1) + [Verdict.TOO_SLOW]
    end = (MAX_ROUNDS + 1) * FAR
    assert learner.observe(end - 1, end, now=MAX_ROUNDS + 0.1) is Verdict.TOO_SLOW
    assert learner.observe(end, end, now=MAX_ROUNDS + 0.2) is Verdict.CAUGHT_UP


def test_a_learner_that_takes_nothing_is_given_up() -> None:
    learner = CatchUp(FAR, TIMEOUT_S, now=0.0)
    assert learner.observe(5, FAR, now=1.0) is Verdict.CATCHING_UP
    end = 1.0 + STALLED_AFTER_TIMEOUTS * TIMEOUT_S
    assert learner.observe(5, FAR, now=end - 0.001) is Verdict.CATCHING_UP
    assert learner.observe(5, FAR, now=end) is Verdict.STALLED


def test_a_slow_learner_that_moves_is_not_given_up_in_the_middle_of_a_round() -> None:
    learner = CatchUp(FAR, TIMEOUT_S, now=0.0)
    for second in range(1, 1000):
        assert learner.observe(second, FAR, now=float(second)) is Verdict.CATCHING_UP


def test_a_learner_keeps_up_as_long_as_each_round_is_short() -> None:
    learner = CatchUp(5, TIMEOUT_S, now=0.0)
    assert learner.observe(5, FAR, now=0.1) is Verdict.CAUGHT_UP
    assert learner.observe(6, 2 * FAR, now=0.5) is Verdict.CAUGHT_UP
    assert learner.observe(FAR, 3 * FAR, now=0.55) is Verdict.CAUGHT_UP
    assert learner.observe(2 * FAR, 5 * FAR, now=1.04) is Verdict.CAUGHT_UP


def test_a_learner_that_has_caught_up_is_behind_again_once_a_round_takes_too_long() -> None:
    learner = CatchUp(5, TIMEOUT_S, now=0.0)
    assert learner.observe(5, FAR, now=0.1) is Verdict.CAUGHT_UP
    assert learner.observe(6, FAR, now=0.6) is Verdict.CATCHING_UP
    assert learner.observe(FAR, FAR, now=2.0) is Verdict.CAUGHT_UP


def test_a_learner_that_idles_with_the_group_has_caught_up() -> None:
    learner = CatchUp(5, TIMEOUT_S, now=0.0)
    assert learner.observe(5, 5, now=0.1) is Verdict.CAUGHT_UP
    assert learner.observe(5, 5, now=1e9) is Verdict.CAUGHT_UP


def test_a_learner_that_was_given_up_may_still_come() -> None:
    learner = CatchUp(FAR, TIMEOUT_S, now=0.0)
    assert learner.observe(5, FAR, now=0.1) is Verdict.CATCHING_UP
    assert learner.observe(5, FAR, now=1e3) is Verdict.STALLED
    assert learner.observe(6, FAR, now=1e3 + 1) is Verdict.CATCHING_UP
    assert learner.observe(FAR, FAR, now=1e3 + 2) is Verdict.CAUGHT_UP


@given(
    st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 3000), st.floats(0, 2)), max_size=80)
)
def test_a_learner_that_may_vote_has_all_that_was_there_when_its_round_began(
    steps: list[tuple[int, int, float]],
) -> None:
    match, last, now = -1, FAR, 0.0
    began_with = last
    learner = CatchUp(last, TIMEOUT_S, now)
    for taken, appended, seconds in steps:
        now += seconds
        last += appended
        match = min(match + taken, last)
        rounds = learner.round
        if learner.observe(match, last, now) is not Verdict.CATCHING_UP:
            break
        if learner.round > rounds:
            began_with = last
    if learner.verdict is Verdict.CAUGHT_UP:
        assert match >= began_with


def test_a_voter_begins_as_a_learner() -> None:
    group = configuration("abc", "", "d")
    wanted = [
        AddVoter("d", address_of("d")),
        AddVoter("e", address_of("e")),
        AddLearner("f", address_of("f")),
        Remove("a"),
    ]
    first = learners_first(group, wanted)
    assert first == [AddLearner("e", address_of("e"))]
    staged = change(group, first)
    assert learners_first(staged, wanted) == []
    joint = change(staged, wanted)
    assert new_voters(staged, joint) == frozenset("de")


def test_a_member_that_voted_before_need_not_catch_up() -> None:
    group = configuration("abc", "", "d")
    assert new_voters(group, change(group, [Promote("d"), Remove("a")])) == frozenset("d")
    assert new_voters(group, change(group, [Remove("a")])) == frozenset()


@pytest.mark.parametrize(("match", "lag"), [({"a": FAR, "d": 9}, FAR - 9), ({}, FAR + 1)])
def test_a_learner_that_lacks_much_is_not_promoted(match: dict[str, int], lag: int) -> None:
    group = configuration("abc", "", "d")
    with pytest.raises(LearnerBehind, match="let it catch up") as refused:
        check_caught_up(group, change(group, [Promote("d")]), match, last_index=FAR)
    assert (refused.value.member, refused.value.lag_entries) == ("d", lag)


def test_a_learner_that_lacks_little_is_promoted() -> None:
    group = configuration("abc", "", "d")
    nearly = {"d": FAR - NEARLY_NONE_ENTRIES}
    check_caught_up(group, change(group, [Promote("d")]), nearly, last_index=FAR)


def test_a_learner_that_keeps_up_is_promoted_though_much_is_on_its_way_to_it() -> None:
    group = configuration("abc", "", "de")
    after = change(group, [Promote("d"), Promote("e")])
    check_caught_up(group, after, {}, last_index=FAR, caught_up={"d", "e"})
    with pytest.raises(LearnerBehind):
        check_caught_up(group, after, {}, last_index=FAR, caught_up={"d"})


def test_nobody_has_to_catch_up_to_stay_or_to_leave() -> None:
    group = configuration("abc", "", "d")
    check_caught_up(group, change(group, [Remove("a")]), {}, last_index=FAR)
