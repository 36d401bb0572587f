"""Counts the events of one process by comparing its state after each step."""

from __future__ import annotations

from dledger.core.member_state import Role
from dledger.core.replica import Outcomes, Replica
from dledger.node.member import Member
from dledger.snapshots.restoring import Opened
from jepsen_like.simulation.coverage import Coverage


class ProcessCounts:
    """The counts of one process. Call `note` after every step."""

    def __init__(self, member: Member, opened: Opened, coverage: Coverage) -> None:
        self._member = member
        self._store = opened.store
        self._coverage = coverage
        self._roles = _RoleCounts(member.replica, coverage)
        self._newest = opened.restored
        self._awaited = opened.awaited
        self._first_index = opened.store.first_index
        self._early = False
        self._scrub_passes = 0
        self._spare_wanted = opened.store.spare_wanted
        coverage.count("snapshots restored at the start", opened.restored is not None)
        coverage.count("snapshots awaited after a crash", opened.awaited is not None)

    def told(self, outcomes: Outcomes) -> None:
        replica, coverage = self._member.replica, self._coverage
        for _, _, by_lease in outcomes.reads_ready:
            coverage.count("lease reads", by_lease)
            coverage.count("follower reads", replica.reads is None)
        if outcomes.changes and replica.state.role is Role.LEADER:
            coverage.count("changes in force", len(outcomes.changes))
            coverage.count("joint phases", replica.state.membership.configuration.is_joint)

    def note(self, now: float) -> None:
        member, coverage = self._member, self._coverage
        self._roles.note(now)
        early = member.replica.elector.early_until > float("-inf")
        coverage.count("leaders taken for gone", early and not self._early)
        self._early = early
        self._note_snapshots()
        spare = self._store.spare_wanted
        coverage.count("spare files made", self._spare_wanted and not spare)
        self._spare_wanted = spare
        passes = member.housekeeper.scrub.passes
        coverage.count("whole scrubs of a log", passes > self._scrub_passes)
        self._scrub_passes = passes

    def _note_snapshots(self) -> None:
        snapshots, coverage = self._member.snapshots, self._coverage
        awaited, newest = snapshots.awaited.snapshot, snapshots.newest_snapshot
        first_index = self._store.first_index
        begun_anew = awaited is not None and awaited is not self._awaited
        coverage.count("logs begun anew", begun_anew)
        coverage.count(
            "snapshots that another one replaced", begun_anew and self._awaited is not None
        )
        if newest is not self._newest and newest is not None:
            installed = self._awaited is not None and awaited is None
            coverage.count("snapshots installed" if installed else "snapshots written")
        coverage.count(
            "logs cut at the beginning", first_index > self._first_index and not begun_anew
        )
        self._awaited, self._newest, self._first_index = awaited, newest, first_index


class _RoleCounts:
    def __init__(self, replica: Replica, coverage: Coverage) -> None:
        self._replica = replica
        self._coverage = coverage
        self._before = (replica.state.role, replica.state.term)
        self._early = False  # whether the present candidacy began early

    def note(self, now: float) -> None:
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
