"""Bugs in changes of the group, planted on purpose: see `seeded_bugs`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dledger.core.followers import Followers
from dledger.core.leader_elector import LeaderElector
from dledger.core.membership import membership
from dledger.core.membership.configuration import Configuration
from dledger.core.membership.configuration_change import (
    Change,
    Transition,
    change,
    enter_joint,
    leave_joint,
)
from dledger.core.membership.configuration_codec import NumberedConfiguration
from dledger.core.membership.membership import Membership
from dledger.core.membership.quorum import JointQuorum, Quorum, VoteOutcome, quorum_of
from dledger.core.promise_record import PromiseRecord
from jepsen_like.simulation.seeded_bug import Replacement, SeededBug


def _many_voters_at_once() -> list[Replacement]:
    def at_once(group: Configuration, wanted: Sequence[Change], _: Transition) -> Configuration:
        if group.is_joint:
            return leave_joint(group)
        return leave_joint(enter_joint(group, wanted, auto_leave=False))

    return [
        Replacement(membership, "change", at_once),
        Replacement(membership, "check_step", lambda before, after: None),
    ]


def _configuration_on_append() -> list[Replacement]:
    appended = Membership.appended

    def append(self: Membership, index: int, entry: NumberedConfiguration) -> None:
        appended(self, index, entry)
        self.committed_to(index)

    def truncated_after(self: Membership, index: int) -> None:
        return

    return [
        Replacement(Membership, "appended", append),
        Replacement(Membership, "truncated_after", truncated_after),
    ]


def _learners_counted() -> list[Replacement]:
    def quorum(self: Configuration) -> Quorum:
        return quorum_of(self.voters | self.learners, self.outgoing)

    return [Replacement(Configuration, "quorum", property(quorum))]


def _change_while_one_is_pending() -> list[Replacement]:
    def propose(
        self: Membership,
        changes: Sequence[Change],
        committed: int,
        *,
        transition: Transition = Transition.AUTO,
        expected: int | None = None,
    ) -> NumberedConfiguration:
        latest = self.uncommitted[-1] if self.uncommitted else None
        index, group = self.index, self.configuration
        if latest is not None:
            index, group = latest.index, latest.entry.configuration
        return NumberedConfiguration(index, change(group, changes, transition))

    return [Replacement(Membership, "propose", propose)]


def _known_committed_ignored() -> list[Replacement]:
    def is_due(self: PromiseRecord) -> bool:
        return (self._state.term, self._state.voted_for) != self._taken

    return [
        Replacement(Membership, "known_committed", property(lambda self: self.index)),
        # And a change is not recorded as soon as it is known to be committed.
        Replacement(PromiseRecord, "is_due", property(is_due)),
        Replacement(PromiseRecord, "change_is_durable", property(lambda self: True)),
    ]


def _joint_decided_by_one_half() -> list[Replacement]:
    def committed_index(self: JointQuorum, acked: Mapping[str, int]) -> int:
        return self.incoming.committed_index(acked)

    def outcome(self: JointQuorum, votes: Mapping[str, bool]) -> VoteOutcome:
        return self.incoming.outcome(votes)

    return [
        Replacement(JointQuorum, "committed_index", committed_index),
        Replacement(JointQuorum, "outcome", outcome),
    ]


def _removal_kept_secret() -> list[Replacement]:
    return [
        Replacement(LeaderElector, "_learn_committed", lambda self, response: None),
        Replacement(Followers, "allow_step_down", lambda self, confirmed, now: True),
    ]


def _joint_phase_never_ends() -> list[Replacement]:
    return [Replacement(Membership, "leave_due", lambda self, committed: False)]


MEMBERSHIP_BUGS = (
    SeededBug(
        "many-voters-at-once", "many voters change without a joint phase", _many_voters_at_once
    ),
    SeededBug(
        "configuration-on-append",
        "a change is in force before it is committed",
        _configuration_on_append,
    ),
    SeededBug("learners-counted", "learners count toward quorums", _learners_counted),
    SeededBug(
        "change-while-one-is-pending",
        "a change begins before the last one is committed",
        _change_while_one_is_pending,
    ),
    SeededBug(
        "known-committed-ignored",
        "a restarted member stands by a configuration two steps old",
        _known_committed_ignored,
    ),
    SeededBug(
        "joint-decided-by-one-half",
        "the new voters decide alone while a change is under way",
        _joint_decided_by_one_half,
    ),
    SeededBug(
        "removal-kept-secret",
        "a member that was removed does not tell the others",
        _removal_kept_secret,
    ),
    SeededBug("joint-phase-never-ends", "no leader ends a joint phase", _joint_phase_never_ends),
)
