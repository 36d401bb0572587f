"""Computes the next configuration: simple changes, and the beginning and end of joint ones.

The rules are those of etcd's confchange (thesis 4.1 and 4.3). Changes are made one after the other
on the incoming half; the outgoing half never changes. A change names the wanted result, so making
it twice does no harm: adding a voter that is a learner promotes it, removing a stranger does
nothing. Pure functions: nothing here knows an index, a log or a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from dledger.core.membership.change_errors import (
    AlreadyJoint,
    ConfigurationInvalid,
    MemberUnknown,
    NotAStep,
    NotJoint,
    NoVoters,
    TooManyVotersChanged,
)
from dledger.core.membership.configuration import Configuration, unreachable
from dledger.errors import InvariantBroken


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one member: one of the classes below."""

    member: str


@dataclass(frozen=True, slots=True)
class AddVoter(Change):
    """Make `member`, known or new, a voter at this address."""

    address: str


@dataclass(frozen=True, slots=True)
class AddLearner(Change):
    """Make `member`, known or new, a learner at this address."""

    address: str


@dataclass(frozen=True, slots=True)
class Promote(Change):
    """Make a learner a voter."""


@dataclass(frozen=True, slots=True)
class Demote(Change):
    """Make a voter a learner."""


@dataclass(frozen=True, slots=True)
class Remove(Change):
    """Remove a member, if there is one of this name."""


@dataclass(frozen=True, slots=True)
class UpdateAddress(Change):
    """Change the address of a member."""

    address: str


class Transition(Enum):
    """Whether a change has a joint phase, and what ends it."""

    AUTO = "auto"  # no joint phase if at most one voter changes, else as JOINT
    JOINT = "joint"  # joint; the leader ends the joint phase
    JOINT_MANUAL = "joint, manual"  # joint; an operator ends the joint phase


def change(
    configuration: Configuration,
    changes: Sequence[Change],
    transition: Transition = Transition.AUTO,
) -> Configuration:
    """Return the configuration to append for these changes.

    Raises AlreadyJoint, NoVoters, MemberUnknown or ConfigurationInvalid.
    """
    if transition is not Transition.AUTO:
        auto_leave = transition is Transition.JOINT
        return enter_joint(configuration, changes, auto_leave=auto_leave)
    try:
        return simple(configuration, changes)
    except TooManyVotersChanged:
        return enter_joint(configuration, changes, auto_leave=True)


def simple(configuration: Configuration, changes: Sequence[Change]) -> Configuration:
    """Change any learners and addresses, and at most one voter, in one step (thesis 4.1).

    Raises AlreadyJoint, NoVoters, TooManyVotersChanged, MemberUnknown or ConfigurationInvalid.
    """
    if configuration.is_joint:
        raise AlreadyJoint
    draft = _Draft(configuration)
    draft.carry_out(changes)
    changed = len(draft.voters ^ configuration.voters)
    if changed > 1:
        raise TooManyVotersChanged(changed)
    return draft.finished(auto_leave=False)


def enter_joint(
    configuration: Configuration, changes: Sequence[Change], *, auto_leave: bool
) -> Configuration:
    """Begin a joint phase, in which the old and the new voters decide together.

    Raises AlreadyJoint, NoVoters, MemberUnknown or ConfigurationInvalid.
    """
    if configuration.is_joint:
        raise AlreadyJoint
    if not configuration.voters:
        raise NoVoters
    draft = _Draft(configuration)
    draft.outgoing = configuration.voters
    draft.carry_out(changes)
    return draft.finished(auto_leave=auto_leave)


def leave_joint(configuration: Configuration) -> Configuration:
    """End a joint phase: the new voters decide alone, and demoted ones become learners.

    Raises NotJoint.
    """
    if not configuration.is_joint:
        raise NotJoint
    draft = _Draft(configuration)
    draft.outgoing = frozenset()
    draft.learners |= draft.learners_next
    draft.learners_next.clear()
    return draft.finished(auto_leave=False)


def check_step(before: Configuration, after: Configuration) -> None:
    """Raise NotAStep unless one function of this module leads from `before` to `after`.

    Two configurations that are one step apart may be in force at the same time on different
    members. They cannot decide without each other, because every quorum of one meets every quorum
    of the other.
    """
    if before.is_joint:
        # Only the end of the change may follow, and it changes nothing else.
        legal = after == leave_joint(before)
    elif after.is_joint:
        legal = after.outgoing == before.voters
    else:
        legal = bool(after.voters) and len(before.voters ^ after.voters) <= 1
    if not legal:
        raise NotAStep(str(before), str(after))


class _Draft:
    def __init__(self, configuration: Configuration) -> None:
        self.voters = set(configuration.voters)
        self.outgoing = configuration.outgoing
        self.learners = set(configuration.learners)
        self.learners_next = set(configuration.learners_next)
        self.addresses = dict(configuration.addresses)

    def carry_out(self, changes: Sequence[Change]) -> None:
        for wanted in changes:
            match wanted:
                case AddVoter(member, address):
                    self._place(member, address)
                    self._make_voter(member)
                case AddLearner(member, address):
                    self._place(member, address)
                    self._make_learner(member)
                case Promote(member):
                    self._require(member)
                    self._make_voter(member)
                case Demote(member):
                    self._require(member)
                    self._make_learner(member)
                case Remove(member):
                    self._remove(member)
                case UpdateAddress(member, address):
                    self._require(member)
                    self._place(member, address)
                case _:
                    raise InvariantBroken(f"{wanted} is not a known change")
        if not self.voters:
            raise NoVoters

    def finished(self, *, auto_leave: bool) -> Configuration:
        members = self.voters | self.outgoing | self.learners
        return Configuration(
            voters=frozenset(self.voters),
            outgoing=self.outgoing,
            learners=frozenset(self.learners),
            learners_next=frozenset(self.learners_next),
            auto_leave=auto_leave,
            addresses={member: self.addresses[member] for member in members},
        )

    def _require(self, member: str) -> None:
        # Outgoing voters are members until the joint phase ends.
        if member not in self.voters | self.outgoing | self.learners:
            raise MemberUnknown(member)

    def _place(self, member: str, address: str) -> None:
        problem = unreachable(address.rpartition(":")[0].strip("[]"))
        if problem is not None and self.addresses.get(member) != address:
            raise ConfigurationInvalid(f"{member}: {problem}")
        self.addresses[member] = address

    def _make_voter(self, member: str) -> None:
        self._remove(member)
        self.voters.add(member)

    def _make_learner(self, member: str) -> None:
        self._remove(member)
        # An outgoing voter votes until the joint phase ends, and is a learner after it.
        (self.learners_next if member in self.outgoing else self.learners).add(member)

    def _remove(self, member: str) -> None:
        self.voters.discard(member)
        self.learners.discard(member)
        self.learners_next.discard(member)
