"""Clients append and read, mostly at a leader; operators transfer leadership."""

from __future__ import annotations

from dledger.entry import Body
from jepsen_like.chance import Chance
from jepsen_like.simulation.event_loop import NEVER
from jepsen_like.simulation.node_process import Surroundings
from jepsen_like.simulation.virtual_node import VirtualNode, leaders_of


class Workload:
    def __init__(self, nodes: list[VirtualNode], around: Surroundings) -> None:
        self._nodes = nodes
        self._around = around
        self._load = around.swarm.load
        self._appends = Chance(around.swarm.seed, "appends")
        self._reads = Chance(around.swarm.seed, "reads")
        self._transfers = Chance(around.swarm.seed, "transfers")
        self._forgets = Chance(around.swarm.seed, "forgets")
        self._over = False

    def start(self) -> None:
        loop = self._around.loop
        loop.after(self._appends.wait_s(self._load.append_every_s), self._append)
        loop.after(self._reads.wait_s(self._load.read_every_s), self._read)
        leadership = self._around.swarm.leadership
        if leadership.transfer_every_s != NEVER:
            loop.after(self._transfers.wait_s(leadership.transfer_every_s), self._transfer)
        if leadership.forget_every_s != NEVER:
            loop.after(self._forgets.wait_s(leadership.forget_every_s), self._forget)

    def stop(self) -> None:
        self._over = True

    def append_to(self, node: VirtualNode, count: int) -> list[int]:
        """Ask a running node for `count` appends; return their numbers."""
        numbers: list[int] = []
        bodies: list[Body] = []
        for _ in range(count):
            padding = self._appends.randrange(self._load.largest_body_bytes + 1)
            number, body = self._around.history.begin_append(padding)
            numbers.append(number)
            bodies.append(body)
        node.append(numbers, bodies)
        return numbers

    def _target(self, chance: Chance, elsewhere: float) -> VirtualNode | None:
        leaders = leaders_of(self._nodes)
        if not leaders or chance.happens(elsewhere):
            leaders = self._nodes
        node = chance.choice(leaders)
        return node if node.is_up else None

    def _append(self) -> None:
        if self._over:
            return
        node = self._target(self._appends, self._load.wrong_node)
        if node is not None:
            self.append_to(node, 1 + self._appends.randrange(self._load.entries_at_once))
        wait_s = self._appends.wait_s(self._load.append_every_s)
        self._around.loop.after(wait_s, self._append)

    def _read(self) -> None:
        if self._over:
            return
        member_reads = self._around.swarm.leadership.member_reads
        node = self._target(self._reads, max(self._load.wrong_node, member_reads))
        if node is not None:
            node.read(self._around.history.begin_read())
        self._around.loop.after(self._reads.wait_s(self._load.read_every_s), self._read)

    def _transfer(self) -> None:
        if self._over:
            return
        chance = self._transfers
        node = self._target(chance, self._load.wrong_node)
        if node is not None:
            names = [other.name for other in self._nodes]
            node.transfer_leadership(chance.choice([*names, None]))
        wait_s = chance.wait_s(self._around.swarm.leadership.transfer_every_s)
        self._around.loop.after(wait_s, self._transfer)

    def _forget(self) -> None:
        if self._over:
            return
        node = self._forgets.choice(self._nodes)
        if node.is_up:
            node.forget_leader()
        wait_s = self._forgets.wait_s(self._around.swarm.leadership.forget_every_s)
        self._around.loop.after(wait_s, self._forget)
