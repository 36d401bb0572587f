"""Has most members start on empty disks while the others are down, and puts the disks back later.

An operator does so by an unmounted volume, or by machines that are set up anew at once. Too few
members are left to prove the emptied ones, and those must not begin the group anew meanwhile.
"""

from __future__ import annotations

from jepsen_like.chance import Chance
from jepsen_like.simulation.event_loop import NEVER
from jepsen_like.simulation.node_process import Surroundings
from jepsen_like.simulation.virtual_node import VirtualNode

# How long the disks are away, in election timeouts: much longer than a new group takes to begin.
LEAST_TIMEOUTS, MOST_TIMEOUTS = 3.0, 12.0
# Share of the other members that are down at first.
OTHERS_DOWN = 0.7


class MislaidDisks:
    """Mislays the disks of any number of members from a majority up to all but one.

    Only in groups whose members do not change, so that the majority is well defined; and only where
    entries are synced before they count, since disks are taken out without a sync.
    """

    def __init__(self, nodes: list[VirtualNode], around: Surroundings) -> None:
        swarm = around.swarm
        self._nodes = nodes
        self._around = around
        self._chance = Chance(swarm.seed, "mislaid disks")
        self._away: list[VirtualNode] = []
        suits = (
            swarm.nodes > 2
            and swarm.churn.change_every_s == NEVER
            and swarm.flush_interval_s is None
        )
        self._every_s = swarm.mislay_every_s if suits else NEVER

    @property
    def any(self) -> bool:
        return bool(self._away)

    def start(self) -> None:
        self._around.loop.fault(self._chance, self._every_s, self._mislay)

    def stop(self) -> None:
        for node in self._away:
            node.put_back()
        self._away = []

    def _mislay(self) -> None:
        chance, swarm, invariants = self._chance, self._around.swarm, self._around.invariants
        witnesses = invariants.witnesses.values()
        if invariants.in_doubt or any(witness.synced_index < 0 for witness in witnesses):
            self.start()  # a member without the log counts as mislaid already
            return
        least = swarm.nodes - swarm.nodes // 2
        self._away = chance.sample(self._nodes, chance.randint(least, swarm.nodes - 1))
        for node in self._nodes:
            if node in self._away:
                node.mislay()
            elif node.is_up and chance.happens(OTHERS_DOWN):
                node.crash(power=False)
        self._around.coverage.count("mislaid disks", len(self._away))
        timeouts = chance.uniform(LEAST_TIMEOUTS, MOST_TIMEOUTS)
        self._around.loop.after(timeouts * swarm.election_timeout_s, self._put_back)

    def _put_back(self) -> None:
        self.stop()
        self.start()
