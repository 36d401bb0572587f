"""Lets other programs fill the disks of members for a while, as logs and backups do."""

from __future__ import annotations

from jepsen_like.chance import Chance
from jepsen_like.simulation.node_process import Surroundings
from jepsen_like.simulation.virtual_node import VirtualNode

# What the other programs leave free: nothing, room for a record or two, or a share of the reserve.
LEFT_BYTES = (0, 0, 512, 4_096)
LEFT_SHARES = (0.5, 1.0, 1.3)
# A disk stays full for at most this multiple of the mean.
LONGEST_FACTOR = 4.0
MEAN_FULL_S = 2.0


class FullDisks:
    def __init__(self, nodes: list[VirtualNode], around: Surroundings) -> None:
        self._nodes = nodes
        self._around = around
        self._style = around.swarm.room
        self._chance = Chance(around.swarm.seed, "full disks of members")

    def start(self) -> None:
        self._around.loop.fault(self._chance, self._style.fill_every_s, self._next)

    def stop(self) -> None:
        for node in self._nodes:
            node.disk.room_bytes = None

    def _next(self) -> None:
        chance, style = self._chance, self._style
        count = chance.choice((1, 1, len(self._nodes)))
        parts = [round(style.reserve_bytes * share) for share in LEFT_SHARES]
        left_bytes = chance.choice((*LEFT_BYTES, *parts))
        full_s = min(chance.wait_s(MEAN_FULL_S), MEAN_FULL_S * LONGEST_FACTOR)
        for node in chance.sample(self._nodes, count):
            if node.disk.room_bytes is not None or not node.has_reserve:
                continue  # room that the member freed since is its own
            self._around.coverage.count("disks that others filled")
            node.note(f"others leave {left_bytes} bytes of its disk free for {full_s:.3f} s")
            node.disk.fill(left_bytes)
            self._around.loop.after(full_s, self._free, node, node.disk.room_bytes)
        self.start()

    @staticmethod
    def _free(node: VirtualNode, room_bytes: int | None) -> None:
        if node.disk.room_bytes == room_bytes:  # else it was replaced, or filled again
            node.disk.room_bytes = None
            node.note("others leave its disk")
