from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.core.membership.quorum import (
    EVERY_INDEX,
    JointQuorum,
    Majority,
    Quorum,
    VoteOutcome,
    quorum_of,
)
from tests.dledger.core.configurations import LETTERS, members

indexes = st.dictionaries(members, st.integers(0, 9))
votes = st.dictionaries(members, st.booleans())
halves = st.sets(members)


def has_majority(half: set[str], followers: set[str]) -> bool:
    return not half or 2 * len(half & followers) > len(half)


def have_reached(acked: dict[str, int], index: int) -> set[str]:
    return {voter for voter, value in acked.items() if value >= index}


@given(halves, halves, indexes)
def test_a_joint_quorum_commits_what_both_majorities_have(
    incoming: set[str], outgoing: set[str], acked: dict[str, int]
) -> None:
    committed = quorum_of(incoming, outgoing).committed_index(acked)
    if not incoming and not outgoing:
        assert committed == EVERY_INDEX
        return
    by_definition = [
        index
        for index in range(10)
        if has_majority(incoming, have_reached(acked, index))
        and has_majority(outgoing, have_reached(acked, index))
    ]
    assert committed == max(by_definition, default=-1)


@given(halves, halves, votes)
def test_a_vote_is_decided_once_the_missing_answers_cannot_change_it(
    incoming: set[str], outgoing: set[str], given_votes: dict[str, bool]
) -> None:
    yes = {voter for voter, vote in given_votes.items() if vote}
    still_silent = set(LETTERS) - given_votes.keys()
    outcome = quorum_of(incoming, outgoing).outcome(given_votes)
    won_now = has_majority(incoming, yes) and has_majority(outgoing, yes)
    best = yes | still_silent
    can_win = has_majority(incoming, best) and has_majority(outgoing, best)
    expected = VoteOutcome.WON if won_now else VoteOutcome.PENDING if can_win else VoteOutcome.LOST
    assert outcome is expected


@given(halves, indexes)
def test_joining_a_majority_with_itself_or_with_nobody_changes_nothing(
    voters: set[str], acked: dict[str, int]
) -> None:
    majority = Majority(voters)
    for joint in (
        JointQuorum(majority, majority),
        JointQuorum(majority, Majority("")),
        JointQuorum(Majority(""), majority),
    ):
        assert joint.committed_index(acked) == majority.committed_index(acked)


@given(halves.filter(bool), halves, indexes, members, st.integers(0, 9))
def test_a_commit_index_never_goes_back_when_somebody_acknowledges_more(
    incoming: set[str], outgoing: set[str], acked: dict[str, int], voter: str, index: int
) -> None:
    quorum = quorum_of(incoming, outgoing)
    before = quorum.committed_index(acked)
    acked[voter] = max(index, acked.get(voter, -1))
    assert quorum.committed_index(acked) >= before


@pytest.mark.parametrize(
    "quorum",
    [Majority("abc"), JointQuorum(Majority("abc"), Majority("bcd"))],
    ids=["majority", "joint"],
)
def test_learners_and_strangers_are_not_counted(quorum: Quorum) -> None:
    strangers = {"x": 9, "y": 9, "z": 9}
    assert quorum.committed_index({**strangers, "a": 9}) == -1
    assert quorum.reached({**strangers, "a": 9.0}, -inf) == -inf
    assert quorum.outcome(dict.fromkeys(strangers, True)) is VoteOutcome.PENDING
    assert quorum.outcome(dict.fromkeys(strangers, False)) is VoteOutcome.PENDING


def test_a_read_is_confirmed_by_the_round_that_both_halves_have_seen() -> None:
    rounds = {"a": 7, "b": 7, "c": 3, "d": 5, "e": 4}
    assert Majority("abc").reached(rounds, 0) == 7
    assert quorum_of("abc", "cde").reached(rounds, 0) == 4


def test_a_leader_knows_when_a_quorum_last_answered() -> None:
    answers = {"a": 10.0, "b": 9.5}
    assert Majority("abc").reached(answers, -inf) == 9.5
    assert Majority("abcde").reached(answers, -inf) == -inf


def test_one_voter_decides_alone() -> None:
    alone = Majority("a")
    assert alone.committed_index({"a": 4}) == 4
    assert alone.committed_index({}) == -1
    assert alone.outcome({"a": True}) is VoteOutcome.WON
    assert alone.outcome({"b": True}) is VoteOutcome.PENDING


def test_nobody_in_a_quorum_is_no_reason_to_wait() -> None:
    nobody = Majority("")
    assert nobody.committed_index({"a": 4}) == EVERY_INDEX
    assert nobody.reached({}, -inf) == inf
    assert nobody.outcome({"a": False}) is VoteOutcome.WON


def test_a_quorum_shows_its_voters() -> None:
    assert repr(quorum_of("cab")) == "(a b c)"
    assert repr(quorum_of("ab", "bc")) == "(a b)&&(b c)"
    assert quorum_of("ab", "bc").voters == frozenset("abc")
