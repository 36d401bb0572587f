"""Raft's promises, checked from outside after every step of a group of cores.

Independent of the simulation and of what a core says about itself: the disks are the group's own.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from dledger.core.member_state import Role
from dledger.core.membership.configuration import Configuration
from dledger.core.messages import PushResponse, VoteRequest, VoteResponse
from dledger.errors import InvariantBroken
from tests.dledger.core.configurations import is_quorum

if TYPE_CHECKING:
    from tests.dledger.scenarios.scenario_group import Read, ScenarioGroup
    from tests.dledger.scenarios.scenario_member import ScenarioMember
    from tests.dledger.scenarios.scenario_messages import Sent


class PromiseBroken(AssertionError):
    """A promise of Raft does not hold."""


def _demand(holds: bool, promise: str) -> None:
    if not holds:
        raise PromiseBroken(promise)


class Promises:
    """What was promised so far, and the checks that it is kept."""

    def __init__(self, group: ScenarioGroup) -> None:
        self._group = group
        self.committed: list[int] = []  # the term of every entry that anybody knew as committed
        self._committed_in: list[int] = []  # the term of whoever knew it first
        self.leaders: dict[int, str] = {}
        self._votes: dict[tuple[int, str], str] = {}
        self._looked: dict[str, tuple[object, ...]] = {}
        self._in_force: dict[str, int] = {}  # the index of the configuration
        self._seen: dict[str, tuple[object, int]] = {}  # the core, and its commit index

    # --- what leaves a member -----------------------------------------------------------------

    def leaves(self, member: ScenarioMember, sent: Sent) -> None:
        """A message is about to leave: what it promises must be on the disk."""
        message = sent.message
        if isinstance(message, VoteRequest) and not message.pre:
            self._vote(member, message.term, member.name)
        elif isinstance(message, VoteResponse) and message.granted and not message.pre:
            self._vote(member, message.term, sent.receiver)
        elif isinstance(message, PushResponse):
            self._acknowledged(member, message)

    def _vote(self, member: ScenarioMember, term: int, candidate: str) -> None:
        record = member.record
        _demand(
            (record.term, record.voted_for) == (term, candidate),
            f"{member.name} votes for {candidate} in term {term}, its disk says {record}",
        )
        given = self._votes.setdefault((term, member.name), candidate)
        _demand(
            given == candidate,
            f"{member.name} votes for {given} and for {candidate} in term {term}",
        )

    def _acknowledged(self, member: ScenarioMember, answer: PushResponse) -> None:
        match = answer.match
        _demand(
            match <= member.image.last_index,
            f"{member.name} acknowledges {match}, its disk has {member.image.last_index}",
        )
        view = member.up.view
        for index in range(max(view.before_begin, member.image.before_begin) + 1, match + 1):
            _demand(
                member.image.term_at(index) == view.term_at(index),
                f"{member.name} acknowledges {match}, and at {index} its disk has another term",
            )

    # --- what members are ---------------------------------------------------------------------

    def check(self, member: ScenarioMember) -> None:
        """All that must hold at every moment; this member had a turn."""
        core = member.up
        state, view = core.state, core.view
        looks = (
            *(core, state.role, state.term, state.committed, state.durable, state.applied),
            *(view.before_begin, view.last_index, view.last_term, core.handler.epoch),
        )
        if self._looked.get(member.name) == looks:
            return
        self._looked[member.name] = looks
        self._watermarks(member)
        self._commits(member)
        self._leads(member)
        for other in self._group.running:
            self._logs_match(member, other)

    def _watermarks(self, member: ScenarioMember) -> None:
        state = member.up.state
        bound = min(state.committed, state.durable)
        _demand(
            state.applied <= bound and state.durable <= member.up.view.last_index,
            f"{member.name}: applied {state.applied}, committed {state.committed}, durable "
            f"{state.durable}, end {member.up.view.last_index}",
        )
        before = self._seen.get(member.name)
        if before is not None and before[0] is member.core:
            _demand(
                state.committed >= before[1],
                f"{member.name}: the commit index falls from {before[1]} to {state.committed}",
            )
        self._seen[member.name] = (member.core, state.committed)

    def _commits(self, member: ScenarioMember) -> None:
        view, committed = member.up.view, member.up.state.committed
        _demand(
            committed <= view.last_index,
            f"{member.name}: committed {committed}, the log ends at {view.last_index}",
        )
        deciding = self._deciding(member)
        for index in range(view.before_begin + 1, committed + 1):
            term = view.term_at(index)
            if index == len(self.committed):
                self._is_durable(member, index, term, deciding)
                self.committed.append(term)
                self._committed_in.append(member.up.state.term)
            _demand(
                self.committed[index] == term,
                f"{member.name}: term {term} at {index}, committed is {self.committed[index]}",
            )

    def _deciding(self, member: ScenarioMember) -> list[Configuration]:
        """The configurations that were in force there since it was looked at."""
        membership = member.up.state.membership
        since, self._in_force[member.name] = (
            self._in_force.get(member.name, membership.index),
            membership.index,
        )
        found = [membership.configuration]
        with suppress(InvariantBroken):  # forgotten: a snapshot took the place of that log
            indexes = range(since, membership.index + 1)
            found += [membership.at(index).configuration for index in indexes]
        return [one for at, one in enumerate(found) if one not in found[:at]]

    def _is_durable(
        self, member: ScenarioMember, index: int, term: int, deciding: list[Configuration]
    ) -> None:
        disks = self._group.members.values()
        holders = frozenset(one.name for one in disks if one.image.term_at(index) == term)
        _demand(
            any(is_quorum(configuration, holders) for configuration in deciding),
            f"{member.name} commits {index}, which only the disks of {sorted(holders)} hold",
        )

    def _leads(self, member: ScenarioMember) -> None:
        state, view = member.up.state, member.up.view
        if state.role is not Role.LEADER:
            return
        leader = self.leaders.setdefault(state.term, member.name)
        _demand(leader == member.name, f"{leader} and {member.name} both lead term {state.term}")
        # A paused candidate can be elected late, in a term older than that of the last commit.
        known = zip(self.committed, self._committed_in, strict=True)
        for index, (term, committed_in) in enumerate(known):
            _demand(
                committed_in >= state.term
                or index <= view.before_begin
                or view.term_at(index) == term,
                f"{member.name} leads term {state.term} without the committed entry {index}",
            )

    @staticmethod
    def _logs_match(member: ScenarioMember, other: ScenarioMember) -> None:
        """Equal index and term mean equal history (Raft 5.3)."""
        one, two = member.up.view, other.up.view
        index = min(one.last_index, two.last_index)
        begin = max(one.before_begin, two.before_begin)
        while index > begin and one.term_at(index) != two.term_at(index):
            index -= 1
        while index > begin:
            _demand(
                one.term_at(index) == two.term_at(index),
                f"the logs of {member.name} and {other.name} agree behind {index}, not at it",
            )
            index -= 1

    # --- reads --------------------------------------------------------------------------------

    def served(self, read: Read) -> None:
        """A read may be served: it must include all that was committed before it began."""
        index = -1 if read.index is None else read.index
        _demand(
            index >= read.committed_before,
            f"a read on {read.member} sees {index}, {read.committed_before} was committed before",
        )
