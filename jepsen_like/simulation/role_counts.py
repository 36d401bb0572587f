"""Counts how members became leaders and stepped down."""

from __future__ import annotations

from dledger.core.member_state import Role
from dledger.core.replica import Replica
from jepsen_like.simulation.coverage import Coverage


class RoleCounts:
    """The counts of one process. Call `note` after every turn."""

    def __init__(self, replica: Replica, coverage: Coverage) -> None:
        self._replica = replica
        self._coverage = coverage
        self._before = (replica.state.role, replica.state.term)
        self._early = False  # whether the present candidacy began early

    def note(self, now: float) -> None:
        """Compare with the end of the last turn."""
        state, coverage = self._replica.state, self._coverage
        seen = (state.role, state.term)
        if state.role is Role.PRE_CANDIDATE:
            self._early = self._replica.elector.early_until > float("-inf")
        if seen == self._before:
            return
        (role_before, term_before), self._before = self._before, seen
        if state.role is Role.LEADER:
            coverage.count("elections")
            coverage.count("early elections", self._early)
        elif state.role is Role.CANDIDATE and role_before is Role.FOLLOWER:
            coverage.count("members told to stand")
        elif role_before is Role.LEADER and not state.votes:
            coverage.count("leaders removed")
        elif role_before is Role.LEADER:
            how = "silence" if state.term == term_before else "a higher term"
            if self._replica.handover.disk_stalled(now):
                how = "their disks"
            coverage.count(f"leaders deposed by {how}")
        if state.role not in (Role.PRE_CANDIDATE, Role.CANDIDATE):
            self._early = False
