"""The quorum of a configuration: a majority, or two majorities while a change is under way.

A leader or a candidate counts to answer one of three questions. Each has one method here, so that
commits, votes, reads and the check for a lost quorum count the same members (Raft 5.2, 5.4.2;
thesis 4.3 for joint configurations). Only voters count: the mappings may also hold acknowledgements
and votes of learners and strangers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from math import inf
from operator import itemgetter
from typing import TypeVar

from dledger.entry import BEFORE_FIRST_INDEX

# The index that a quorum without voters commits. Only the empty half of a joint quorum may return
# it: so the other half decides.
EVERY_INDEX = 2**63 - 1

_Number = TypeVar("_Number", int, float)


class VoteOutcome(Enum):
    """The outcome of a vote so far."""

    PENDING = "pending"  # the missing answers can still decide it either way
    LOST = "lost"
    WON = "won"


class Majority:
    """More than half of a set of voters. Without voters everything is decided, as in etcd."""

    __slots__ = ("_place", "_values", "voters")

    def __init__(self, voters: Iterable[str]) -> None:
        self.voters = frozenset(voters)
        ordered = sorted(self.voters)
        # Of n values in ascending order, the one at this place and those behind it are n // 2 + 1.
        self._place = (len(ordered) - 1) // 2
        # One call gets the values of all voters: a leader counts at every acknowledgement.
        self._values = itemgetter(*ordered) if len(ordered) > 1 else None

    def committed_index(self, acked: Mapping[str, int]) -> int:
        """Return the highest index that a majority has acknowledged; a voter not in `acked` has
        nothing.

        BEFORE_FIRST_INDEX if there is none, EVERY_INDEX without voters.
        """
        return self._reached(acked, BEFORE_FIRST_INDEX, EVERY_INDEX)

    def reached(self, values: Mapping[str, float], absent: float) -> float:
        """Return the highest value that a majority has reached; `absent` stands for a missing one.

        Used for the rounds of reads and for the times of answers. Infinite without voters.
        """
        return self._reached(values, absent, inf)

    def outcome(self, votes: Mapping[str, bool]) -> VoteOutcome:
        """Return the outcome of `votes` (voter -> granted). It is won without voters."""
        voters = self.voters
        if not voters:
            return VoteOutcome.WON
        needed = len(voters) // 2 + 1
        granted = refused = 0
        for voter, vote in votes.items():
            if voter in voters:
                granted += vote
                refused += not vote
        if granted >= needed:
            return VoteOutcome.WON
        return VoteOutcome.PENDING if len(voters) - refused >= needed else VoteOutcome.LOST

    def _reached(
        self, values: Mapping[str, _Number], absent: _Number, everything: _Number
    ) -> _Number:
        pick = self._values
        if pick is not None:
            ascending: list[_Number]
            try:
                ascending = sorted(pick(values))
            except KeyError:  # a voter has not answered yet: seldom, and never for long
                ascending = sorted(values.get(voter, absent) for voter in self.voters)
            return ascending[self._place]
        for voter in self.voters:  # the only one
            return values.get(voter, absent)
        return everything

    def __repr__(self) -> str:
        return f"({' '.join(sorted(self.voters))})"


class JointQuorum:
    """A majority of each of two sets of voters: both must agree to every decision. A vote is won if
    both majorities won it, and lost if one lost it.
    """

    __slots__ = ("incoming", "outgoing", "voters")

    def __init__(self, incoming: Majority, outgoing: Majority) -> None:
        self.incoming = incoming
        self.outgoing = outgoing
        self.voters = incoming.voters | outgoing.voters

    def committed_index(self, acked: Mapping[str, int]) -> int:
        return min(self.incoming.committed_index(acked), self.outgoing.committed_index(acked))

    def reached(self, values: Mapping[str, float], absent: float) -> float:
        return min(self.incoming.reached(values, absent), self.outgoing.reached(values, absent))

    def outcome(self, votes: Mapping[str, bool]) -> VoteOutcome:
        outcomes = (self.incoming.outcome(votes), self.outgoing.outcome(votes))
        if VoteOutcome.LOST in outcomes:
            return VoteOutcome.LOST
        return VoteOutcome.PENDING if VoteOutcome.PENDING in outcomes else VoteOutcome.WON

    def __repr__(self) -> str:
        return f"{self.incoming}&&{self.outgoing}"


Quorum = Majority | JointQuorum


def quorum_of(voters: Iterable[str], outgoing: Iterable[str] = ()) -> Quorum:
    """Return the quorum of a configuration: joint while there are outgoing voters."""
    incoming, leaving = Majority(voters), Majority(outgoing)
    return JointQuorum(incoming, leaving) if leaving.voters else incoming
