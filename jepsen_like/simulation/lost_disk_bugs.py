"""Bugs planted on purpose: a member with an emptied disk is trusted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dledger.core.admission.admission import Admission
from dledger.core.admission.beginning import Beginning
from dledger.core.admission.recalling import Recalling
from dledger.core.admission.standing import Standing
from dledger.core.entry_handler import EntryHandler
from dledger.core.leader_elector import LeaderElector
from dledger.core.messages import (
    InquiryAnswer,
    PushResponse,
    Recollection,
    VoteRequest,
    VoteResponse,
)
from dledger.store.growth_note import GrowthNote
from dledger.store.standing_file import StandingFile
from jepsen_like.simulation.seeded_bug import Replacement, SeededBug


def _wiped_member_votes() -> list[Replacement]:
    def pre_vote(
        self: LeaderElector, candidate: str, request: VoteRequest, now: float
    ) -> VoteResponse:
        self._state.sole_other = "anybody"
        return pre_voted(self, candidate, request, now)

    def vote(self: LeaderElector, candidate: str, request: VoteRequest, now: float) -> VoteResponse:
        self._state.sole_other = candidate
        return voted(self, candidate, request, now)

    pre_voted, voted = LeaderElector.pre_vote, LeaderElector.vote
    return [
        Replacement(LeaderElector, "pre_vote", pre_vote),
        Replacement(LeaderElector, "vote", vote),
    ]


def _wiped_member_counts() -> list[Replacement]:
    answered = EntryHandler._answer

    def answer(self: EntryHandler, *arguments: Any, **named: Any) -> PushResponse:
        return answered(self, *arguments, **named)._replace(proven=True)

    return [Replacement(EntryHandler, "_answer", answer)]


def _proof_without_a_commit() -> list[Replacement]:
    def holds(self: Admission, goal: Any) -> bool:
        return bool(goal.term == self._state.term and self._state.durable >= 0)

    return [Replacement(Admission, "_holds", holds)]


def _newcomers_are_believed() -> list[Replacement]:
    may_begin = Beginning.may_begin

    def believed(self: Beginning, *arguments: Any) -> bool:
        return not self._first_voters or may_begin(self, *arguments)

    return [Replacement(Beginning, "may_begin", believed)]


def _begins_by_silence() -> list[Replacement]:
    def silent(self: Beginning, answers: Mapping[str, InquiryAnswer]) -> frozenset[str]:
        missing = unheard(self, answers)
        return frozenset() if len(missing) <= (len(self._first_voters) - 1) // 2 else missing

    unheard = Beginning._silent
    return [Replacement(Beginning, "_silent", silent)]


def _grown_group_forgotten() -> list[Replacement]:
    return [Replacement(GrowthNote, "found", lambda self: None)]


def _restored_folder_is_believed() -> list[Replacement]:
    def answered(self: Recalling, sender: str, answer: Recollection) -> None:
        noted(self, sender, answer)

    noted = Recalling.answered
    return [Replacement(Recalling, "answered", answered)]


def _mark_lost_in_a_power_cut() -> list[Replacement]:
    def set_standing(self: StandingFile, standing: Standing) -> None:
        self.standing = standing

    return [Replacement(StandingFile, "set", set_standing)]


LOST_DISK_BUGS = (
    SeededBug(
        "wiped-member-votes",
        "a member whose folder was emptied votes as if nothing had happened",
        _wiped_member_votes,
    ),
    SeededBug(
        "wiped-member-counts",
        "a leader counts what a member has that may have lost promises",
        _wiped_member_counts,
    ),
    SeededBug(
        "proof-without-a-commit",
        "a wiped member is proven by a log that no quorum has",
        _proof_without_a_commit,
    ),
    SeededBug(
        "newcomers-are-believed",
        "a new member votes at once, though it may have been a member with another disk",
        _newcomers_are_believed,
    ),
    SeededBug(
        "restored-folder-is-believed",
        "a member with an older copy of its folder votes and counts as before",
        _restored_folder_is_believed,
    ),
    SeededBug(
        "begins-by-silence",
        "a quorum of members with empty folders begins a group though the others do not answer",
        _begins_by_silence,
    ),
    SeededBug(
        "grown-group-forgotten",
        "the first member of a group that has grown begins it anew when its disk was emptied",
        _grown_group_forgotten,
    ),
    SeededBug(
        "mark-lost-in-a-power-cut",
        "the mark of an emptied folder is written behind its record",
        _mark_lost_in_a_power_cut,
    ),
)
