import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.core.membership.catch_up import (
    LEAST_CHECKED_BYTES_PER_S,
    MAX_ROUNDS,
    NEARLY_NONE_ENTRIES,
    STALLED_AFTER_TIMEOUTS,
    CatchUp,
    LearnerProgress,
    Transfer,
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
PATIENCE_S = STALLED_AFTER_TIMEOUTS * TIMEOUT_S
SIZE = 400 * 1024 * 1024
CHECK_S = SIZE / LEAST_CHECKED_BYTES_PER_S


def acked(match_index: int, *, proven: bool = True, heard_at: float = 0.0) -> LearnerProgress:
    return LearnerProgress(match_index, heard_at, proven)


def has(received: int, *, index: int = 40, installed: bool = False) -> LearnerProgress:
    return LearnerProgress(-1, 0.0, transfer=Transfer(index, received, SIZE, installed=installed))


def test_a_learner_that_needs_less_than_an_election_timeout_for_a_round_may_vote() -> None:
    learner = CatchUp(FAR, TIMEOUT_S, now=0.0)
    assert learner.observe(acked(FAR - 1), 2 * FAR, now=0.3) is Verdict.CATCHING_UP
    assert learner.observe(acked(FAR), 2 * FAR, now=0.4) is Verdict.CAUGHT_UP


def test_a_learner_in_doubt_has_not_caught_up_before_it_is_proven() -> None:
    learner = CatchUp(FAR, TIMEOUT_S, now=0.0)
    assert learner.observe(acked(FAR, proven=False), FAR, now=0.1) is Verdict.CATCHING_UP
    assert learner.observe(acked(FAR), FAR, now=0.2) is Verdict.CAUGHT_UP


def test_a_learner_that_lacks_the_log_of_a_week_may_vote_after_shorter_and_shorter_rounds() -> None:
    learner = CatchUp(FAR, TIMEOUT_S, now=0.0)
    assert learner.observe(acked(FAR), 2 * FAR, now=60.0) is Verdict.CATCHING_UP
    assert learner.observe(acked(2 * FAR - 1), 3 * FAR, now=65.0) is Verdict.CATCHING_UP
    assert learner.observe(acked(2 * FAR), 3 * FAR, now=66.0) is Verdict.CATCHING_UP
    assert learner.round == 3
    assert learner.observe(acked(3 * FAR), 4 * FAR, now=66.4) is Verdict.CAUGHT_UP


def test_a_learner_with_nearly_everything_may_vote_however_long_it_took() -> None:
    learner = CatchUp(FAR, TIMEOUT_S, now=0.0)
    assert learner.observe(acked(FAR), FAR + NEARLY_NONE_ENTRIES, now=60.0) is Verdict.CAUGHT_UP


def test_one_entry_more_than_nearly_none_takes_another_round() -> None:
    learner = CatchUp(FAR, TIMEOUT_S, now=0.0)
    assert (
        learner.observe(acked(FAR), FAR + NEARLY_NONE_ENTRIES + 1, now=60.0) is Verdict.CATCHING_UP
    )


def test_a_learner_slower_than_the_clients_is_given_up() -> None:
    learner = CatchUp(FAR, TIMEOUT_S, now=0.0)
    verdicts = [
        learner.observe(
            acked(round_number * FAR), (round_number + 1) * FAR, now=float(round_number)
        )
        for round_number in range(1, MAX_ROUNDS + 1)
    ]
    assert verdicts == [Verdict.CATCHING_UP] * (MAX_ROUNDS - 1) + [Verdict.TOO_SLOW]
    end = (MAX_ROUNDS + 1) * FAR
    assert learner.observe(acked(end - 1), end, now=MAX_ROUNDS + 0.1) is Verdict.TOO_SLOW
    assert learner.observe(acked(end), end, now=MAX_ROUNDS + 0.2) is Verdict.CAUGHT_UP


def test_a_learner_that_takes_nothing_is_given_up() -> None:
    learner = CatchUp(FAR, TIMEOUT_S, now=0.0)
    assert learner.observe(acked(5), FAR, now=1.0) is Verdict.CATCHING_UP
    end = 1.0 + STALLED_AFTER_TIMEOUTS * TIMEOUT_S
    assert learner.observe(acked(5), FAR, now=end - 0.001) is Verdict.CATCHING_UP
    assert learner.observe(acked(5), FAR, now=end) is Verdict.STALLED


def test_a_slow_learner_that_moves_is_not_given_up_in_the_middle_of_a_round() -> None:
    learner = CatchUp(FAR, TIMEOUT_S, now=0.0)
    for second in range(1, 1000):
        assert learner.observe(acked(second), FAR, now=float(second)) is Verdict.CATCHING_UP


def test_a_learner_keeps_up_as_long_as_each_round_is_short() -> None:
    learner = CatchUp(5, TIMEOUT_S, now=0.0)
    assert learner.observe(acked(5), FAR, now=0.1) is Verdict.CAUGHT_UP
    assert learner.observe(acked(6), 2 * FAR, now=0.5) is Verdict.CAUGHT_UP
    assert learner.observe(acked(FAR), 3 * FAR, now=0.55) is Verdict.CAUGHT_UP
    assert learner.observe(acked(2 * FAR), 5 * FAR, now=1.04) is Verdict.CAUGHT_UP


def test_a_learner_that_has_caught_up_is_behind_again_once_a_round_takes_too_long() -> None:
    learner = CatchUp(5, TIMEOUT_S, now=0.0)
    assert learner.observe(acked(5), FAR, now=0.1) is Verdict.CAUGHT_UP
    assert learner.observe(acked(6), FAR, now=0.6) is Verdict.CATCHING_UP
    assert learner.observe(acked(FAR), FAR, now=2.0) is Verdict.CAUGHT_UP


def test_a_learner_that_idles_with_the_group_has_caught_up() -> None:
    learner = CatchUp(5, TIMEOUT_S, now=0.0)
    assert learner.observe(acked(5), 5, now=0.1) is Verdict.CAUGHT_UP
    assert learner.observe(acked(5), 5, now=1e9) is Verdict.CAUGHT_UP


def test_a_learner_that_was_given_up_may_still_come() -> None:
    learner = CatchUp(FAR, TIMEOUT_S, now=0.0)
    assert learner.observe(acked(5), FAR, now=0.1) is Verdict.CATCHING_UP
    assert learner.observe(acked(5), FAR, now=1e3) is Verdict.STALLED
    assert learner.observe(acked(6), FAR, now=1e3 + 1) is Verdict.CATCHING_UP
    assert learner.observe(acked(FAR), FAR, now=1e3 + 2) is Verdict.CAUGHT_UP


def test_each_byte_of_a_snapshot_that_a_learner_acknowledges_is_progress() -> None:
    learner = CatchUp(FAR, TIMEOUT_S, now=0.0)
    now, step = 0.0, 256 * 1024
    for received in range(step, SIZE + 1, step):
        now += PATIENCE_S - 0.1
        assert learner.observe(has(received), FAR, now) is Verdict.CATCHING_UP


def test_a_learner_that_takes_no_more_of_a_snapshot_is_given_up() -> None:
    learner = CatchUp(FAR, TIMEOUT_S, now=0.0)
    learner.observe(has(SIZE // 2), FAR, now=1.0)
    assert learner.observe(has(SIZE // 2), FAR, now=PATIENCE_S) is Verdict.CATCHING_UP
    assert learner.observe(has(SIZE // 2), FAR, now=1.0 + PATIENCE_S) is Verdict.STALLED
    assert learner.observe(has(SIZE // 2 + 1), FAR, now=60.0) is Verdict.CATCHING_UP


def test_a_learner_that_loses_its_part_of_a_snapshot_makes_progress_beyond_that_part() -> None:
    learner = CatchUp(FAR, TIMEOUT_S, now=0.0)
    learner.observe(has(SIZE // 2), FAR, now=1.0)
    for received in (0, SIZE // 4, SIZE // 2):
        learner.observe(has(received), FAR, now=3.0)
    assert learner.observe(has(SIZE // 2), FAR, now=1.0 + PATIENCE_S) is Verdict.STALLED


@pytest.mark.parametrize("received", [0, SIZE], ids=["before the first byte", "after the last"])
def test_the_check_of_a_whole_file_has_its_time(received: int) -> None:
    learner = CatchUp(FAR, TIMEOUT_S, now=0.0)
    assert learner.observe(has(received), FAR, now=0.0) is Verdict.CATCHING_UP
    end = PATIENCE_S + CHECK_S
    assert learner.observe(has(received), FAR, now=end - 0.1) is Verdict.CATCHING_UP
    assert learner.observe(has(received), FAR, now=end) is Verdict.STALLED


def test_the_end_of_a_long_check_is_progress_once() -> None:
    learner = CatchUp(FAR, TIMEOUT_S, now=0.0)
    learner.observe(has(SIZE), FAR, now=0.0)
    now = PATIENCE_S + CHECK_S - 0.1
    for _ in range(3):  # the connection breaks meanwhile, and the peer is asked again
        assert learner.observe(has(SIZE, installed=True), FAR, now=now) is Verdict.CATCHING_UP
        assert learner.observe(acked(-1), FAR, now=now) is Verdict.CATCHING_UP
    assert learner.observe(acked(0), FAR, now=now + 2.0) is Verdict.CATCHING_UP
    assert learner.observe(acked(0), FAR, now=now + 2.0 + PATIENCE_S) is Verdict.STALLED


def test_a_newer_offer_alone_is_no_progress() -> None:
    learner = CatchUp(FAR, TIMEOUT_S, now=0.0)
    verdict = Verdict.CATCHING_UP
    for second in range(int(PATIENCE_S + CHECK_S) + 1):
        verdict = learner.observe(has(0, index=40 + second), FAR, now=float(second))
    assert verdict is Verdict.STALLED


def test_a_stalled_learner_is_told_with_what_it_has_and_lacks() -> None:
    told = {
        "never heard": acked(-1),
        "silent": acked(7),
        "answers": acked(7, heard_at=6.0),
        "in doubt": acked(20, proven=False, heard_at=6.0),
        "in the middle": has(360)._replace(heard_at=6.0),
        "checking": has(SIZE)._replace(heard_at=6.0),
        "installed": has(SIZE, installed=True)._replace(heard_at=6.0, match_index=7),
        "refused": LearnerProgress(-1, 6.0, transfer=Transfer(40, 360, SIZE, refused=True)),
        "nothing to send": LearnerProgress(-1, 6.0, lacks_snapshot=True),
    }
    silent, quiet = "has not answered for 6.0 s", "acknowledged nothing new for 6.0 s"
    learner = CatchUp(20, TIMEOUT_S, now=0.0)
    assert {name: learner.waits_for(each, 20, 6.0) for name, each in told.items()} == {
        "never heard": f"has none of the log up to entry 20, and {silent}",
        "silent": f"has entry 7 of the log up to entry 20, and {silent}",
        "answers": f"has entry 7 of the log up to entry 20, and {quiet}",
        "in doubt": f"has the whole log, is not proven yet, and {quiet}",
        "in the middle": f"has 360 of {SIZE} bytes of the snapshot of entry 40, and {quiet}",
        "checking": f"has all {SIZE} bytes of the snapshot of entry 40, checks them, and {quiet}",
        "installed": f"has entry 7 of the log up to entry 20, and {quiet}",
        "refused": f"refused the snapshot of entry 40, of {SIZE} bytes, and logs why",
        "nothing to send": "needs a snapshot, and the leader has none to send",
    }


@given(
    st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 3000), st.floats(0, 2)), max_size=80)
)
def test_a_learner_that_may_vote_has_all_that_was_there_when_its_round_began(
    steps: list[tuple[int, int, float]],
) -> None:
    match, last, now = -1, FAR, 0.0
    began_with = last
    learner = CatchUp(last, TIMEOUT_S, now)
    for taken, appended, passed_s in steps:
        now += passed_s
        last += appended
        match = min(match + taken, last)
        rounds = learner.round
        if learner.observe(acked(match), last, now) is not Verdict.CATCHING_UP:
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
