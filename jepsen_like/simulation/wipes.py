"""Empties disks of members: what one does who replaces a machine and keeps its name."""

from __future__ import annotations

from jepsen_like.simulation.chance import Chance
from jepsen_like.simulation.node_process import Surroundings
from jepsen_like.simulation.swarm import NEVER
from jepsen_like.simulation.virtual_node import VirtualNode


class Wipes:
    """Wipes one member after the other until `end_s`, a minority at most before they are proven.

    Of two members one: the other has everything. Groups that change are left alone: their settings
    do not name their members, and a minority of one configuration may be all of the next one.
    """

    def __init__(self, nodes: list[VirtualNode], around: Surroundings, end_s: float) -> None:
        self._nodes = nodes
        self._around = around
        self._end_s = end_s
        self._chance = Chance(around.swarm.seed, "wipes")

    def start(self) -> None:
        """Draw the time of the first one."""
        every_s = self._around.swarm.wipe_every_s
        if every_s == NEVER or self._around.swarm.churn.change_every_s != NEVER:
            return
        at_s = self._around.loop.now + self._chance.wait_s(every_s)
        if at_s < self._end_s:
            self._around.loop.at(at_s, self._wipe)

    def _wipe(self) -> None:
        victim = self._chance.choice(self._nodes)
        invariants = self._around.invariants
        # Who never had anything yet counts as one without data: see docs/failures.md.
        without = {n for n, seen in invariants.witnesses.items() if seen.synced_index < 0}
        without |= invariants.in_doubt
        without.discard(victim.name)
        if victim.name not in invariants.in_doubt and len(without) < len(self._nodes) // 2:
            self._around.coverage.count("wiped disks")
            victim.wipe()
        self.start()
