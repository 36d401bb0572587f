"""Whether a member may begin its group: if it is told so, or if the others answer so.

A member with an empty folder cannot tell a new group from one whose data it lost. If it began a
group that exists, there would be two groups of one name. So silence never decides:

- *A list of several first voters.* Every other first voter has answered that it holds nothing of
  this group either; or the operator says that the group is new (`Told.NEW`), and a quorum of first
  voters answers the same. Any other answer wins over both.
- *A list of one.* The list itself says that the group is new, because no other node has its data,
  unless the group has grown beyond that list. Before it grows, its first member writes a note of it
  outside of its folder (`dledger.store.growth_note`). A member that finds the note (`Told.GROWN`)
  waits for a call of the others. One that finds none still waits for a moment: members of a group
  that has grown would call it.
- *Any list.* A member that is known to have lost its whole log does not begin. Neither does one
  that a member of a begun group besides the first voters has called, or a member of a group of this
  name with other first voters: that, too, is `Told.GROWN`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from dledger.core.admission.standing import Standing, Told
from dledger.core.membership.configuration import Configuration
from dledger.core.messages import InquiryAnswer
from dledger.core.shared_parts import SharedParts

# How long members that were told that their group is new wait for others to contradict, in election
# timeouts. It is less than the shortest wait before an election, so it does not delay the start.
PATIENCE_TIMEOUTS = 0.5
# A member says that it does not begin after so many election timeouts: 3 s of 500 ms. The members
# of a group start one by one, and a leader calls an emptied member sooner.
HOLD_TIMEOUTS = 6.0


class Hold(NamedTuple):
    """Why a member does not begin its group, though no other member leads it.

    `silent`: the first voters that have not answered. Without any, the group has `grown`, or the
    member lost its log.
    """

    silent: tuple[str, ...]
    grown: bool


def has_grown(first_voters: Configuration, members: Collection[str]) -> bool:
    """Return whether a group with these members has grown beyond its first voters."""
    return bool(first_voters.voters) and not first_voters.voters.issuperset(members)


def needs_note(self_id: str, first_voters: Configuration, members: Collection[str]) -> bool:
    """Return whether the group may have these members only once this member has noted that it grew.

    The only first voter needs the note: no other member could answer it when its folder is empty.
    """
    return first_voters.voters == {self_id} and has_grown(first_voters, members)


class Beginning:
    """One member's part in the beginning of its group. Times in seconds.

    Attributes:
        told: what the operator or a note outside of the folder says about the group.
    """

    __slots__ = (
        "_alone_at",
        "_first_voters",
        "_hold_at",
        "_patience_over_at",
        "_state",
        "_view",
        "told",
    )

    def __init__(self, shared: SharedParts, now: float) -> None:
        config = shared.config
        self._state = shared.state
        self._view = shared.view
        self._first_voters = config.began_with.voting_members
        self._patience_over_at = now + PATIENCE_TIMEOUTS * config.election_timeout_s
        self._alone_at = now if config.told is Told.NEW else now + config.calls_wait_s
        self._hold_at = now + HOLD_TIMEOUTS * config.election_timeout_s
        self.told = config.told

    def next_look_at(self, now: float) -> float:
        """Return when time alone may next let this member begin its group; infinity if never."""
        at = self._alone_at if self._is_only_first_voter else self._patience_over_at
        return at if now < at else float("inf")

    def alone_at(self, now: float) -> float:
        """Return when this member has waited long enough for calls; `now` if it waits for none."""
        return max(now, self._alone_at) if self._is_only_first_voter else now

    def is_new(self, standing: Standing) -> bool:
        """Return whether this member has never promised anything, as far as it can tell."""
        state = self._state
        return (
            standing is not Standing.LOST
            and self.told is not Told.GROWN
            and state.term == 0
            and state.voted_for is None
            and self._view.last_index < 0
        )

    def may_begin(
        self, standing: Standing, answers: Mapping[str, InquiryAnswer], now: float
    ) -> bool:
        """Return whether this member may take the group for new, and itself for proven.

        `answers` are those of the other first voters to questions of this process.
        """
        if not self._first_voters:
            return False  # it joins an existing group, of which it may have been a member before
        if not self._others:
            return self._may_begin_alone(standing, now)
        if not self.is_new(standing) or not all(answer.is_new for answer in answers.values()):
            return False
        if not self._silent(answers):
            return True
        new = answers.keys() | ({self._state.self_id} & self._first_voters)
        quorum = len(self._first_voters) // 2 + 1
        is_told = self.told is Told.NEW and now >= self._patience_over_at
        return is_told and len(new) >= quorum

    def hold(
        self, standing: Standing, answers: Mapping[str, InquiryAnswer], now: float
    ) -> Hold | None:
        """Return why this member does not begin yet; None if it may, or has not waited for long."""
        state = self._state
        if state.proven or not self._first_voters or now < self._hold_at:
            return None
        if state.leader is not None or not all(answer.is_new for answer in answers.values()):
            return None
        if self.told is Told.GROWN:
            return Hold((), grown=True)
        if not self._others:
            lost_all = standing is Standing.LOST and self._view.last_index < 0
            return Hold((), grown=False) if lost_all else None
        silent = self._silent(answers)
        if not silent or not self.is_new(standing):
            return None
        return Hold(tuple(sorted(silent)), grown=False)

    @property
    def _is_only_first_voter(self) -> bool:
        return self._first_voters == {self._state.self_id}

    @property
    def _others(self) -> frozenset[str]:
        state = self._state
        return (self._first_voters | state.membership.voting_members) - {state.self_id}

    def _silent(self, answers: Mapping[str, InquiryAnswer]) -> frozenset[str]:
        return self._first_voters - answers.keys() - {self._state.self_id}

    def _may_begin_alone(self, standing: Standing, now: float) -> bool:
        """Return whether this member is the whole group, as no other member ever had its data."""
        state = self._state
        if self.told is Told.GROWN or state.leader not in (None, state.self_id):
            return False
        if standing is Standing.LOST:
            return self._view.last_index >= 0  # its log names no other member
        undisturbed = state.term == 0 or state.voted_for == state.self_id
        return undisturbed and now >= self._alone_at
