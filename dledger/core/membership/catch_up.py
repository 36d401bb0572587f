"""When a learner has caught up far enough to become a voter (thesis 4.2.1).

A voter that lacks the log makes every commit wait for somebody else, so one more failure stops the
group. A member that is to vote is therefore a learner first, and the log comes to it in rounds:
each round is what the leader's log held when it began. The rounds get shorter as long as the
learner is faster than the group's clients. Once one is shorter than an election timeout, the
learner lacks no more than what the group would lose to an election anyway, and may vote.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum

from dledger.core.membership.change_errors import (
    LearnerBehind,
    VoterInDoubt,
    VotersSilent,
)
from dledger.core.membership.configuration import Configuration
from dledger.core.membership.configuration_change import AddLearner, AddVoter, Change
from dledger.core.membership.quorum import VoteOutcome
from dledger.entry import BEFORE_FIRST_INDEX

# After so many rounds a learner will never be faster than the clients (the number of the thesis).
MAX_ROUNDS = 10

# So few entries are a matter of milliseconds: at the end of a round they are as good as none.
NEARLY_NONE_ENTRIES = 1_000

# A learner that takes nothing for so many election timeouts is down or cut off.
STALLED_AFTER_TIMEOUTS = 10


class Verdict(Enum):
    """What there is to say about a learner."""

    CATCHING_UP = "catching up"
    CAUGHT_UP = "caught up"  # promote it: it keeps up with the clients
    TOO_SLOW = "too slow"  # the clients write faster than it reads
    STALLED = "stalled"  # it takes nothing any more


class CatchUp:
    """One learner on its way, as its leader sees it. A new leader begins anew. Times in seconds."""

    __slots__ = (
        "_last_match",
        "_moved_at",
        "_round_began",
        "_target",
        "_timeout_s",
        "round",
        "verdict",
    )

    def __init__(self, last_index: int, election_timeout_s: float, now: float) -> None:
        self._timeout_s = election_timeout_s
        self._target = last_index
        self._round_began = now
        self._last_match = -1
        self._moved_at = now
        self.round = 1
        self.verdict = Verdict.CATCHING_UP

    def observe(
        self, match_index: int, last_index: int, now: float, proven: bool = True
    ) -> Verdict:
        """Look at how far the learner's log agrees with the leader's, and is durable there.

        No round ends while it is in doubt: then its vote would not count. The rounds go on after
        each verdict: who has caught up may fall behind, and who was too slow may come.
        """
        if match_index > self._last_match:
            self._last_match = match_index
            self._moved_at = now
        quick = now - self._round_began < self._timeout_s
        if match_index >= self._target and proven:
            self._end_round(quick or last_index - match_index <= NEARLY_NONE_ENTRIES)
            self._target = last_index
            self._round_began = now
        elif now - self._moved_at >= STALLED_AFTER_TIMEOUTS * self._timeout_s:
            self.verdict = Verdict.STALLED
        elif not (quick or self.verdict is Verdict.TOO_SLOW):
            self.verdict = Verdict.CATCHING_UP
        return self.verdict

    def _end_round(self, keeps_up: bool) -> None:
        if keeps_up:
            self.verdict = Verdict.CAUGHT_UP
            self.round = 1
        elif self.round == MAX_ROUNDS:
            self.verdict = Verdict.TOO_SLOW
        else:
            self.verdict = Verdict.CATCHING_UP
            self.round += 1


def learners_first(configuration: Configuration, changes: Sequence[Change]) -> list[Change]:
    """What to do before these changes: every voter they would add begins as a learner."""
    strangers = {
        wanted.member: wanted.address
        for wanted in changes
        if isinstance(wanted, AddVoter) and wanted.member not in configuration.members
    }
    return [AddLearner(member, address) for member, address in strangers.items()]


def new_voters(before: Configuration, after: Configuration) -> frozenset[str]:
    """Who votes after the change and did not before: these must have caught up."""
    return after.voting_members - before.voting_members


def check_caught_up(
    before: Configuration,
    after: Configuration,
    match_indexes: Mapping[str, int],
    last_index: int,
    in_doubt: Collection[str] = (),
    caught_up: Collection[str] = (),
) -> None:
    """Raise LearnerBehind if the change would let somebody vote who lacks more than a little, and
    VoterInDoubt if a voter is in doubt: without the others it might never be proven.

    `match_indexes` is how far the log of each member agrees with the leader's, which ends at
    `last_index`; who is not in it has nothing. Those in `caught_up` lack what is on its way to
    them, which is more than a little where clients write much, and are as good as any voter.
    """
    for member in sorted(new_voters(before, after).difference(caught_up)):
        lag = last_index - match_indexes.get(member, BEFORE_FIRST_INDEX)
        if lag > NEARLY_NONE_ENTRIES:
            raise LearnerBehind(member, lag)
    for member in sorted(after.voting_members.intersection(in_doubt)):
        raise VoterInDoubt(member)


def check_heard(before: Configuration, after: Configuration, heard: Collection[str]) -> None:
    """Raise VotersSilent if those voters of before who have answered this leader, and new ones,
    are no quorum of `after`.

    Whoever has never answered may be down, or have lost its data: then it could neither vote nor
    count until others decide without it (etcd: not enough started members). New voters have
    `check_caught_up`.
    """
    able = new_voters(before, after).union(heard)
    if after.quorum.outcome(dict.fromkeys(able, True)) is not VoteOutcome.WON:
        raise VotersSilent(sorted(after.voting_members - able))
