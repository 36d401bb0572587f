"""etcd's tables of quorum arithmetic, run as data; see data/etcd-quorum/README.md.

Their members are numbers and their indexes begin at 1, with 0 for none. Ours are names, and begin
at 0, with -1 for none: so theirs less one are ours.
"""

import re

import pytest

from dledger.core.membership.quorum import EVERY_INDEX, JointQuorum, Majority, VoteOutcome
from tests.dledger.core.etcd_tables import Case, read_table, tables

OUTCOMES = {
    "VoteWon": VoteOutcome.WON,
    "VoteLost": VoteOutcome.LOST,
    "VotePending": VoteOutcome.PENDING,
}
SHOWN_INDEX = re.compile(r"(?:x*>|\?) +(\d+) +\(id=(\w+)\)")

CASES = {
    f"{path.stem}:{case.line}": case for path in tables("etcd-quorum") for case in read_table(path)
}


def voters_of(case: Case, argument: str) -> list[str]:
    return [name for name in case.arguments.get(argument, []) if name != "zero"]


def by_voter(case: Case, argument: str) -> dict[str, str]:
    """The values of a case, in the order in which the voters are first named; `_` is none."""
    names = list(dict.fromkeys([*voters_of(case, "cfg"), *voters_of(case, "cfgj")]))
    values = case.arguments.get(argument, [])
    assert len(names) == len(values)
    return {name: value for name, value in zip(names, values, strict=True) if value != "_"}


def naive_committed_index(voters: list[str], acked: dict[str, int]) -> int:
    """The definition itself: the highest index that more than half have reached."""
    if not voters:
        return EVERY_INDEX
    reached = [
        index
        for index in acked.values()
        if 2 * sum(acked.get(voter, -1) >= index for voter in voters) > len(voters)
    ]
    return max(reached, default=-1)


def test_all_tables_of_etcd_are_here() -> None:
    names = {path.stem for path in tables("etcd-quorum")}
    assert names == {"joint_commit", "joint_vote", "majority_commit", "majority_vote"}
    assert len(CASES) == 127
    assert sum(case.command == "vote" for case in CASES.values()) == 61


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_quorum_decides_as_etcd_does(case: Case) -> None:
    voters, outgoing = voters_of(case, "cfg"), voters_of(case, "cfgj")
    majority, other = Majority(voters), Majority(outgoing)
    joint = "cfgj" in case.arguments
    if case.command == "vote":
        votes = {name: value == "y" for name, value in by_voter(case, "votes").items()}
        expected = OUTCOMES[case.expected[-1]]
        assert JointQuorum(majority, other).outcome(votes) is expected
        assert JointQuorum(other, majority).outcome(votes) is expected
        if not joint:
            assert majority.outcome(votes) is expected
        return
    assert case.command == "committed"
    acked = {name: int(value) - 1 for name, value in by_voter(case, "idx").items()}
    index = committed_in(case.expected)
    assert shown_in(case.expected) == {
        name: acked.get(name, -1) for name in {*voters, *outgoing}
    }, "the case was not read as it is meant"
    assert JointQuorum(majority, other).committed_index(acked) == index
    assert JointQuorum(other, majority).committed_index(acked) == index
    if not joint:
        assert majority.committed_index(acked) == index
        assert JointQuorum(majority, majority).committed_index(acked) == index
        assert naive_committed_index(voters, acked) == index
        check_what_is_below_does_not_count(majority, acked, index)


def check_what_is_below_does_not_count(
    majority: Majority, acked: dict[str, int], index: int
) -> None:
    for name in [name for name, value in acked.items() if value < index]:
        for lower in (acked[name] - 1, -1):
            assert majority.committed_index({**acked, name: lower}) == index


def committed_in(expected: list[str]) -> int:
    shown = expected[-1].removeprefix("<empty majority quorum>")
    return EVERY_INDEX if shown == "∞" else int(shown) - 1


def shown_in(expected: list[str]) -> dict[str, int]:
    found = [SHOWN_INDEX.fullmatch(line) for line in expected]
    return {match[2]: int(match[1]) - 1 for match in found if match}
