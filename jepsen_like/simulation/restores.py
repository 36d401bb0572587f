"""Restores folders of members from older copies, as an operator does with yesterday's backup."""

from __future__ import annotations

from jepsen_like.chance import Chance
from jepsen_like.simulation.node_process import Surroundings
from jepsen_like.simulation.virtual_disk import DiskCopy
from jepsen_like.simulation.virtual_node import VirtualNode

# How long a restored member stays down at most, in election timeouts.
LONGEST_DOWN_TIMEOUTS = 4.0
# Copies kept of each disk, of different ages.
COPIES = 3


class Restores:
    """Copies the disks of members now and then, and has one member at a time start with a copy.

    The next folder is restored once the last one is believed: the others together hold everything
    then. Only members that remember can tell that a folder is older, so in such a run no process
    ends for another reason, and a restored member waits until all others have answered.
    """

    def __init__(self, nodes: list[VirtualNode], around: Surroundings) -> None:
        self._nodes = nodes
        self._around = around
        self._chance = Chance(around.swarm.seed, "restored folders")
        self._copies: dict[str, list[DiskCopy]] = {node.name: [] for node in nodes}

    def start(self) -> None:
        self._around.loop.fault(self._chance, self._around.swarm.restore_every_s / 2, self._next)

    def _next(self) -> None:
        if self._chance.happens(0.5):
            self._copy()
        else:
            self._restore()
        self.start()

    def _copy(self) -> None:
        for node in self._nodes:
            copies = self._copies[node.name]
            if len(copies) >= COPIES:
                copies.pop(self._chance.randrange(COPIES))
            copies.append(node.disk.copy())

    def _restore(self) -> None:
        node = self._chance.choice(self._nodes)
        copies = self._copies[node.name]
        invariants = self._around.invariants
        if not copies or invariants.in_doubt or not all(other.is_up for other in self._nodes):
            return
        self._around.coverage.count("restored folders")
        node.restore(self._chance.choice(copies))
        down_s = self._around.swarm.election_timeout_s * self._chance.uniform(
            0.0, LONGEST_DOWN_TIMEOUTS
        )
        self._around.loop.after(down_s, self._start, node)

    def _start(self, node: VirtualNode) -> None:
        if not node.is_up:
            node.start()
