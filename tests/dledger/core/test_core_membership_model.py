"""Raft's elections and commits with nothing left out but time, over changing configurations.

Members hold logs of terms and changes; a step is an election, a replication to some members, a
change or a crash, chosen by a seed. Whatever is lost in a crash is lost here: above all the commit
index. The product's part is Membership, Configuration and their quorums.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from dledger.core.membership import membership
from dledger.core.membership.change_errors import (
    ChangeRefused,
)
from dledger.core.membership.configuration import Configuration
from dledger.core.membership.configuration_change import (
    AddLearner,
    AddVoter,
    Change,
    Demote,
    Promote,
    Remove,
    Transition,
    enter_joint,
    leave_joint,
)
from dledger.core.membership.configuration_codec import (
    NumberedConfiguration,
    decode_configuration,
    encode_configuration,
)
from dledger.core.membership.membership import Membership
from dledger.core.membership.quorum import JointQuorum, VoteOutcome
from tests.dledger.core.configurations import address_of, configuration
from tests.examples import examples

NAMES = "abcdef"
BEGAN_WITH = configuration("abc")
RUNS = 300
STEPS = 150
WEIGHTS = (2, 1, 8)  # new partitions, crashes, acts of one member

Log = list[tuple[int, NumberedConfiguration | None]]


class Unsafe(Exception):
    """Two members disagree about what is committed, or two lead one term."""


class Node:
    def __init__(self, name: str) -> None:
        self.name = name
        self.term = 0
        self.voted_for: str | None = None
        self.log: Log = []
        self.leads = False
        self.restart()

    def restart(self) -> None:
        """Term, vote and log are on disk; all else is lost."""
        self.leads = False
        self.committed = -1
        self.membership = Membership(BEGAN_WITH if self.name in "abc" else Configuration())
        for index, (_, entry) in enumerate(self.log):
            if entry is not None:
                self.membership.appended(index, entry)
        self.commit(self.membership.known_committed)

    def append(self, term: int, entry: NumberedConfiguration | None = None) -> None:
        self.log.append((term, entry))
        if entry is not None:
            self.membership.appended(len(self.log) - 1, entry)

    def commit(self, index: int) -> None:
        if index > self.committed:
            self.committed = index
            self.membership.committed_to(index)

    @property
    def last(self) -> tuple[int, int]:
        return (self.log[-1][0] if self.log else 0, len(self.log))


class Group:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.nodes = {name: Node(name) for name in NAMES}
        self.truth: Log = []
        self.leaders: dict[int, str] = {}
        self.in_force: set[str] = set()
        self.elections = 0
        self.side: set[str] = set()

    def run(self) -> None:
        steps = (self.divide, self.crash, self.act)
        for step in self.random.choices(steps, WEIGHTS, k=STEPS):
            step()

    def act(self) -> None:
        """One member does what it can: lead, if it does or can be elected."""
        node = self.random.choice(list(self.nodes.values()))
        if not node.leads:
            self.elect(node)
        for step in self.random.choices((self.replicate, self.change), (3, 1), k=4):
            if node.leads:
                step(node)

    def divide(self) -> None:
        """Part the members in two; a step reaches only those on the side of who acts."""
        self.side = set(self.random.sample(NAMES, self.random.randint(0, len(NAMES) // 2)))

    def reached_by(self, actor: Node) -> list[Node]:
        near = [
            n for n in self.nodes.values() if (n.name in self.side) == (actor.name in self.side)
        ]
        return [node for node in near if node is not actor and self.random.random() < 0.8]

    def elect(self, candidate: Node) -> None:
        if candidate.name not in candidate.membership.configuration.voting_members:
            return
        voters = self.reached_by(candidate)
        candidate.term = max(node.term for node in (candidate, *voters)) + 1
        candidate.voted_for = candidate.name
        votes = {candidate.name: True}
        for voter in voters:
            if voter.term < candidate.term:
                voter.term, voter.voted_for, voter.leads = candidate.term, None, False
            if voter.term == candidate.term:
                granted = voter.voted_for is None and candidate.last >= voter.last
                if granted:
                    voter.voted_for = candidate.name
                votes[voter.name] = granted
        if candidate.membership.quorum.outcome(votes) is not VoteOutcome.WON:
            return
        if self.leaders.setdefault(candidate.term, candidate.name) != candidate.name:
            raise Unsafe(f"two lead term {candidate.term}")
        self.elections += 1
        candidate.leads = True
        candidate.append(candidate.term)
        candidate.membership.elected(len(candidate.log) - 1)

    def replicate(self, leader: Node) -> None:
        """Bring some members' logs up to a point of the leader's; count who has it."""
        end = self.random.randint(max(0, len(leader.log) - 2), len(leader.log))
        for follower in self.reached_by(leader):
            if follower.term > leader.term:
                continue
            if follower.term < leader.term:
                follower.term, follower.voted_for = leader.term, None
            follower.leads = False
            self.bring(follower, leader, end)
        acked = {node.name: self.agreement(node, leader) for node in self.nodes.values()}
        reached = leader.membership.quorum.committed_index(acked)
        if reached >= 0 and leader.log[reached][0] == leader.term:
            leader.commit(reached)
            self.check(leader)
            self.in_force.add(str(leader.membership.configuration))
            if leader.membership.leave_due(leader.committed):
                leader.append(leader.term, leader.membership.propose_leave(leader.committed))
            elif leader.name not in leader.membership.configuration.voting_members:
                leader.leads = False

    def bring(self, follower: Node, leader: Node, end: int) -> None:
        same = self.agreement(follower, leader) + 1
        if same < min(end, len(follower.log)):
            if same <= follower.committed:
                raise Unsafe(f"{follower.name} has to cut {follower.committed} at {same}")
            del follower.log[same:]
            follower.membership.truncated_after(same - 1)
        for term, entry in leader.log[len(follower.log) : end]:
            follower.append(term, entry)
        follower.commit(min(leader.committed, self.agreement(follower, leader)))
        self.check(follower)

    def agreement(self, node: Node, leader: Node) -> int:
        """The last index up to which a member's log is the leader's."""
        if node.term > leader.term:
            return -1  # it answers this leader no more
        pairs = zip(node.log, leader.log, strict=False)
        return (
            next(
                (at for at, (one, other) in enumerate(pairs) if one != other),
                min(len(node.log), len(leader.log)),
            )
            - 1
        )

    def change(self, leader: Node) -> None:
        wanted = self.other_voters() if self.random.random() < 0.5 else self.other_roles()
        transition = self.random.choice((Transition.AUTO, Transition.AUTO, Transition.JOINT))
        with suppress(ChangeRefused):
            entry = leader.membership.propose(wanted, leader.committed, transition=transition)
            leader.append(leader.term, decode_configuration(encode_configuration(*entry)))

    def other_voters(self) -> list[Change]:
        voters = self.random.sample(NAMES, self.random.randint(1, 4))
        return [
            AddVoter(name, address_of(name)) if name in voters else Remove(name) for name in NAMES
        ]

    def other_roles(self) -> list[Change]:
        name = self.random.choice(NAMES)
        address = address_of(name)
        roles = (AddVoter(name, address), AddLearner(name, address), Promote(name), Demote(name))
        return [self.random.choice((*roles, Remove(name)))]

    def crash(self) -> None:
        """Some members crash at once: all of them forget how far they knew the log committed."""
        for node in self.random.sample(list(self.nodes.values()), self.random.randint(1, 4)):
            node.restart()

    def check(self, node: Node) -> None:
        known = min(node.committed + 1, len(self.truth))
        if node.log[:known] != self.truth[:known]:
            raise Unsafe(f"{node.name} commits other entries than were committed")
        self.truth += node.log[len(self.truth) : node.committed + 1]


def first_unsafe(runs: int) -> int | None:
    """The first seed whose run is unsafe."""
    for seed in range(runs):
        try:
            Group(seed).run()
        except Unsafe:
            return seed
    return None


@pytest.mark.hypothesis
def test_no_sequence_of_elections_changes_and_crashes_commits_two_histories() -> None:
    assert first_unsafe(examples(RUNS)) is None


def test_the_runs_go_through_many_configurations() -> None:
    groups = [Group(seed) for seed in range(40)]
    for group in groups:
        group.run()
    assert sum(group.elections for group in groups) > 400
    assert len(set().union(*(group.in_force for group in groups))) > 100


# Below, the runs are shown to find what they are for.


def test_a_member_that_stands_by_a_configuration_two_steps_old_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forgetful = property(lambda self: self.index)
    monkeypatch.setattr(Membership, "known_committed", forgetful)
    assert first_unsafe(examples(RUNS)) is not None


def test_a_commit_by_one_half_of_a_joint_quorum_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def committed_index(self: JointQuorum, acked: dict[str, int]) -> int:
        return self.incoming.committed_index(acked)

    monkeypatch.setattr(JointQuorum, "committed_index", committed_index)
    assert first_unsafe(examples(RUNS)) is not None


def test_an_election_by_one_half_of_a_joint_quorum_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def outcome(self: JointQuorum, votes: dict[str, bool]) -> VoteOutcome:
        return self.incoming.outcome(votes)

    monkeypatch.setattr(JointQuorum, "outcome", outcome)
    assert first_unsafe(examples(RUNS)) is not None


def test_many_voters_changed_at_once_without_a_joint_phase_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def change_at_once(
        group: Configuration, wanted: list[Change], transition: Transition
    ) -> Configuration:
        return leave_joint(enter_joint(group, wanted, auto_leave=False))

    monkeypatch.setattr(membership, "change", change_at_once)
    monkeypatch.setattr(membership, "check_step", lambda before, after: None)
    assert first_unsafe(examples(RUNS)) is not None
