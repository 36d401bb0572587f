"""Changes the members of the group while other faults happen."""

from __future__ import annotations

from dledger.core.membership.catch_up import learners_first
from dledger.core.membership.configuration import Configuration
from dledger.core.membership.configuration_change import (
    AddLearner,
    AddVoter,
    Change,
    Demote,
    Promote,
    Remove,
    Transition,
    UpdateAddress,
)
from jepsen_like.chance import Chance
from jepsen_like.simulation.event_loop import NEVER
from jepsen_like.simulation.node_process import ChangeCall, Surroundings
from jepsen_like.simulation.virtual_node import VirtualNode, leaders_of

# Voters that a change of many asks for at most: more would seldom be up at the same time.
MOST_VOTERS = 5
# Share of the changes that name the configuration they are for, and of those that name a wrong one.
COMPARED = 0.5
OUTDATED = 0.1
HIGHEST_PORT = 60_000


# Weights of kinds of changes: replace many members, change one role, remove the leader.
KINDS = {"many": 4, "one": 4, "leader": 2}


class Churn:
    def __init__(self, nodes: list[VirtualNode], around: Surroundings) -> None:
        self._nodes = nodes
        self._names = [node.name for node in nodes]
        self._around = around
        self._style = around.swarm.churn
        self._chance = Chance(around.swarm.seed, "changes")
        self._over = False

    def start(self) -> None:
        if self._style.change_every_s != NEVER:
            self._again()

    def stop(self) -> None:
        """Make no more changes; joint phases of JOINT_MANUAL are still ended."""
        self._over = True

    def end_joint_phases(self) -> None:
        for node in leaders_of(self._nodes):
            assert node.process is not None
            configuration = node.process.replica.state.membership.configuration
            if configuration.is_joint and not configuration.auto_leave:
                node.change(ChangeCall((), Transition.AUTO, None))

    def _again(self) -> None:
        wait_s = self._chance.wait_s(self._style.change_every_s)
        self._around.loop.after(wait_s, self._change)

    def _change(self) -> None:
        if self._over:
            return
        self._again()
        chance = self._chance
        node = chance.choice(leaders_of(self._nodes) or self._nodes)
        if node.process is None:
            return
        membership = node.process.replica.state.membership
        configuration = membership.configuration
        if configuration.is_joint and not configuration.auto_leave and chance.happens(0.7):
            node.change(ChangeCall((), Transition.AUTO, None))
            return
        expected = membership.index if chance.happens(COMPARED) else None
        if chance.happens(OUTDATED):
            expected = membership.index - 1
        transition = chance.choices(tuple(Transition), (8, 3, 1))[0]
        wanted = self._wanted(node.name, configuration)
        if not self._around.invariants.wiped_members.isdisjoint(configuration.members):
            return  # an operator replaces one machine at a time
        # As a node does it: a new member joins as a learner, and may become a voter with a later
        # change.
        first = learners_first(configuration, wanted)
        node.change(ChangeCall(first or wanted, transition, expected))

    def _wanted(self, asked: str, group: Configuration) -> list[Change]:
        chance = self._chance
        kind = chance.choices([*KINDS], [*KINDS.values()])[0]
        if kind == "leader" and len(group.voters) > 1:
            return [chance.choice((Remove(asked), Demote(asked)))]
        if kind == "many":
            voters = chance.sample(
                self._names, 1 + chance.randrange(min(MOST_VOTERS, len(self._names)))
            )
            rest = Remove if chance.happens(0.5) else Demote
            return [
                *(AddVoter(name, self._address(name, group)) for name in sorted(voters)),
                *(rest(name) for name in sorted(group.members.difference(voters))),
            ]
        name = chance.choice(self._names)
        address = self._address(name, group)
        moved = f"{name}:{1 + chance.randrange(HIGHEST_PORT)}"
        changes: tuple[Change, ...] = (
            AddVoter(name, address),
            AddVoter(name, address),
            AddLearner(name, address),
            Promote(name),
            Demote(name),
            Remove(name),
            UpdateAddress(name, moved),
        )
        return [chance.choice(changes)]

    @staticmethod
    def _address(name: str, group: Configuration) -> str:
        return group.addresses.get(name, f"{name}:1")
