"""Empties disks of members, as an operator does that replaces a machine and keeps its name."""

from __future__ import annotations

from jepsen_like.chance import Chance
from jepsen_like.simulation.event_loop import NEVER
from jepsen_like.simulation.mislaid_disks import MislaidDisks
from jepsen_like.simulation.node_process import Surroundings
from jepsen_like.simulation.virtual_node import VirtualNode

# Share of the wipes of a group's only first member after which it starts alone.
OTHERS_DOWN = 0.7


class Wipes:
    """Wipes one member after the other while there are faults, a minority at most before they are
    proven.

    In a group of two, one member at most: the other one has everything. In a group whose members
    change, a disk is emptied only while all members are up, and none of them knows of a change or
    is asked for one, so that the minority is well defined. The first members are no exception, not
    even the only one that a group has grown from.
    """

    def __init__(
        self, nodes: list[VirtualNode], around: Surroundings, mislaid: MislaidDisks
    ) -> None:
        self._mislaid = mislaid
        self._nodes = nodes
        self._around = around
        self._chance = Chance(around.swarm.seed, "wipes")
        self._founders = frozenset(node.name for node in nodes[: around.swarm.nodes])
        self._changes = around.swarm.churn.change_every_s != NEVER

    def start(self) -> None:
        self._around.loop.fault(self._chance, self._around.swarm.wipe_every_s, self._next)

    def _next(self) -> None:
        self._wipe()
        self.start()

    def _wipe(self) -> None:
        victim = self._chance.choice(self._nodes)
        if victim.name in self._around.invariants.in_doubt or self._mislaid.any:
            return
        voters = self._voters_now() if self._changes else self._founders
        if voters is None or not self._are_enough_without(victim.name, voters):
            return
        if self._changes:
            self._around.coverage.count("wiped disks in groups that change")
        self._around.coverage.count("wiped disks")
        victim.wipe()
        if self._founders == {victim.name} and self._chance.happens(OTHERS_DOWN):
            self._start_alone(victim)

    def _start_alone(self, first: VirtualNode) -> None:
        """Start the member that the group grew from while no other one can call it."""
        self._around.coverage.count("wiped disks of first members of grown groups")
        for node in self._nodes:
            if node is not first and node.is_up:
                node.crash(power=False)
        first.start()

    def _are_enough_without(self, victim: str, voters: frozenset[str]) -> bool:
        invariants = self._around.invariants
        # A member that never had an entry counts as one without data: see docs/failures.md.
        without = {n for n, seen in invariants.witnesses.items() if seen.synced_index < 0}
        without |= invariants.in_doubt | {victim}
        if not self._changes:
            return len(without) <= len(voters) // 2
        return len(without & voters) <= (len(voters) - 1) // 2

    def _voters_now(self) -> frozenset[str] | None:
        """Return the voters, if all members are up and agree on them, and no change is pending."""
        said = set()
        for node in self._nodes:
            if node.process is None or node.is_asked_to_change:
                return None
            membership = node.process.replica.state.membership
            if not (membership.is_settled and node.process.replica.record.change_is_durable):
                return None
            if membership.voting_members:
                said.add(membership.voting_members)
        return said.pop() if len(said) == 1 else None
