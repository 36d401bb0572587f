"""Bugs planted on purpose: a sign of a leader's end is trusted too far."""

from __future__ import annotations

from dledger.core.leader_elector import LeaderElector
from dledger.core.member_state import Role, RoleEvent
from jepsen_like.simulation.seeded_bug import Replacement, SeededBug


def _sign_believed_under_leases() -> list[Replacement]:
    gone = LeaderElector.leader_gone

    def leader_gone(self: LeaderElector, leader: str, term: int, now: float) -> bool:
        promises, self._promises = self._promises, False
        believed = gone(self, leader, term, now)
        self._promises = promises
        if believed:
            self.last_leader_contact = float("-inf")
        return believed

    return [Replacement(LeaderElector, "leader_gone", leader_gone)]


def _early_without_pre_vote() -> list[Replacement]:
    campaigned = LeaderElector.campaign

    def campaign(self: LeaderElector, now: float) -> None:
        early = now < self.early_until
        campaigned(self, now)
        if early and self._state.role is Role.PRE_CANDIDATE:
            self.stand(RoleEvent.PRE_VOTES_WON, now)

    return [Replacement(LeaderElector, "campaign", campaign)]


EARLY_ELECTION_BUGS = (
    SeededBug(
        "sign-believed-under-leases",
        "a member breaks its promise to a leader because that one's process seems to have ended",
        _sign_believed_under_leases,
    ),
    SeededBug(
        "early-without-pre-vote",
        "a member that takes its leader for gone stands without asking around first",
        _early_without_pre_vote,
    ),
)
