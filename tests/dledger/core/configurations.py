"""Configurations and changes for tests: members are single letters with an address each."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import strategies as st

from dledger.core.membership.configuration import Configuration
from dledger.core.membership.configuration_change import (
    AddLearner,
    AddVoter,
    Change,
    Demote,
    Promote,
    Remove,
    UpdateAddress,
)

LETTERS = "abcdefg"


def address_of(member: str) -> str:
    return f"{member}.example:20911"


def configuration(
    voters: Iterable[str],
    outgoing: Iterable[str] = "",
    learners: Iterable[str] = "",
    learners_next: Iterable[str] = "",
    *,
    auto_leave: bool = False,
) -> Configuration:
    """A configuration whose members have the addresses above."""
    return Configuration(
        voters=frozenset(voters),
        outgoing=frozenset(outgoing),
        learners=frozenset(learners),
        learners_next=frozenset(learners_next),
        auto_leave=auto_leave,
        addresses={m: address_of(m) for m in {*voters, *outgoing, *learners}},
    )


def is_quorum(group: Configuration, members: frozenset[str]) -> bool:
    """The definition: more than half of each half that there is."""
    halves = [half for half in (group.voters, group.outgoing) if half]
    return all(2 * len(half & members) > len(half) for half in halves)


def quorums_meet(one: Configuration, other: Configuration) -> bool:
    """Whether no quorum of the one misses some quorum of the other. Tries every set of voters."""
    everybody = sorted(one.voting_members | other.voting_members)
    for number in range(2 ** len(everybody)):
        here = frozenset(m for at, m in enumerate(everybody) if number >> at & 1)
        if is_quorum(one, here) and is_quorum(other, frozenset(everybody) - here):
            return False
    return True


members = st.sampled_from(LETTERS)


def _with_address(kind: type[AddVoter] | type[AddLearner]) -> st.SearchStrategy[Change]:
    return members.map(lambda member: kind(member, address_of(member)))


changes: st.SearchStrategy[list[Change]] = st.lists(
    st.one_of(
        _with_address(AddVoter),
        _with_address(AddLearner),
        members.map(Promote),
        members.map(Demote),
        members.map(Remove),
        members.map(lambda member: UpdateAddress(member, f"new-{address_of(member)}")),
    ),
    min_size=1,
    max_size=5,
)


@st.composite
def configurations(draw: st.DrawFn, joint: bool | None = None) -> Configuration:
    """Any valid configuration with voters. `joint` says whether it is joint; None is either."""
    if joint is None:
        joint = draw(st.booleans())
    some = st.sets(members, min_size=1, max_size=5)
    voters = draw(some)
    outgoing = draw(some) if joint else set()
    others = st.sets(members)
    return configuration(
        voters,
        outgoing,
        draw(others) - voters - outgoing,
        draw(others) & outgoing - voters,
        auto_leave=bool(outgoing) and draw(st.booleans()),
    )
