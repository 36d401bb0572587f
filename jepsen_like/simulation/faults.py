"""Injects crashes, partitions, pauses and disk errors, each drawn from its own stream."""

from __future__ import annotations

from jepsen_like.chance import Chance
from jepsen_like.simulation.node_process import Surroundings
from jepsen_like.simulation.virtual_node import VirtualNode, leaders_of

# A node stays down or paused for at most this multiple of the mean: no run waits for ever.
LONGEST_FACTOR = 4.0
# Share of the partitions that cut only one pair of nodes.
SINGLE_LINK_CUTS = 0.2
# Share of the pauses that may hit any node; the others hit a leader.
PAUSES_OF_ANY_NODE = 0.5
# How long after its pause began a node is cut off, on the average.
CUT_AFTER_PAUSE_MEAN_S = 0.02
# How often to look for nodes that are down.
LOOK_FOR_THE_DEAD_EVERY_S = 0.05


class Faults:
    def __init__(self, nodes: list[VirtualNode], around: Surroundings) -> None:
        swarm = around.swarm
        self._nodes = nodes
        self._around = around
        self._loop = around.loop
        self._style = swarm.faults
        self._over = False
        self._crashes = Chance(swarm.seed, "crashes")
        self._partitions = Chance(swarm.seed, "partitions")
        self._pauses = Chance(swarm.seed, "pauses")
        self._sync_errors = Chance(swarm.seed, "sync errors")
        self._name_errors = Chance(swarm.seed, "name errors")
        self._ways_to_end = Chance(swarm.seed, "ways to end")
        self._restarts = Chance(swarm.seed, "restarts")
        self._planned: dict[str, None] = {}  # nodes whose restart is scheduled

    def start(self) -> None:
        style = self._style
        self._loop.fault(self._crashes, style.crash_every_s, self._crash)
        self._loop.fault(self._pauses, style.pause_every_s, self._pause)
        self._loop.fault(self._sync_errors, style.sync_error_every_s, self._fail_sync)
        self._loop.fault(self._name_errors, style.name_error_every_s, self._fail_name)
        if len(self._nodes) > 1:
            self._loop.fault(self._partitions, style.partition_every_s, self._partition)
        self._watch_for_the_dead()

    def stop(self) -> None:
        """Heal all links, resume paused nodes, and start every node that is down."""
        self._over = True
        self._around.network.heal()
        for node in self._nodes:
            node.put_right()

    def _note(self, what: str) -> None:
        if self._around.trace is not None:
            self._around.trace.note(self._loop.now, "-", what)

    # --- crashes ----------------------------------------------------------------------------------

    def _crash(self) -> None:
        style, chance = self._style, self._crashes
        victims = self._nodes
        if not chance.happens(style.crash_all):
            victims = chance.sample(self._nodes, 1 + chance.randrange((len(self._nodes) + 1) // 2))
        for node in victims:
            if not node.is_up:
                continue
            power = chance.happens(style.power_cut)
            if power and chance.happens(style.crash_inside_disk_call):
                node.crash_inside_disk_call(power=True)
            elif power or node.is_paused:
                node.crash(power=power)
            else:
                self._end_process(node)
        self._loop.fault(chance, style.crash_every_s, self._crash)

    def _end_process(self, node: VirtualNode) -> None:
        chance = self._ways_to_end
        if chance.happens(self._style.closed):
            node.close()
        elif chance.happens(self._style.kill_inside_disk_call):
            node.crash_inside_disk_call(power=False)
        else:
            node.crash(power=False)

    def _watch_for_the_dead(self) -> None:
        """Restart every node that is down, each after a time of its own.

        After the last fault at once: a sync that failed before it may end a process after it.
        """
        for node in self._nodes:
            if not node.is_up and self._over:
                node.start()
            elif not node.is_up and node.name not in self._planned:
                self._planned[node.name] = None
                down_s = self._time_s(self._restarts, self._style.down_mean_s)
                self._loop.after(down_s, self._restart, node)
        self._loop.after(LOOK_FOR_THE_DEAD_EVERY_S, self._watch_for_the_dead)

    def _restart(self, node: VirtualNode) -> None:
        self._planned.pop(node.name, None)
        if not node.is_up and not self._over:
            if self._restarts.happens(self._style.crash_inside_disk_call * 0.2):
                node.crash_inside_disk_call(power=self._style.power_cut > 0.0)
            node.start()

    @staticmethod
    def _time_s(chance: Chance, mean_s: float) -> float:
        return min(chance.wait_s(mean_s), mean_s * LONGEST_FACTOR)

    # --- pauses and disks -------------------------------------------------------------------------

    def _pause(self) -> None:
        chance, style = self._pauses, self._style
        node = chance.choice(leaders_of(self._nodes) or self._nodes)
        if chance.happens(PAUSES_OF_ANY_NODE):
            node = chance.choice(self._nodes)
        if node.is_up and not node.is_paused:
            self._around.coverage.count("pauses")
            node.pause()
            pause_s = self._time_s(chance, style.pause_mean_s)
            self._loop.after(pause_s, node.resume)
            if chance.happens(style.cut_with_pause):
                # Messages sent just before still arrive: the node resumes with old answers, and
                # hears of the next leader only later.
                cut_s = pause_s + self._time_s(chance, style.pause_mean_s)
                self._loop.after(chance.wait_s(CUT_AFTER_PAUSE_MEAN_S), self._isolate, node, cut_s)
        self._loop.fault(chance, style.pause_every_s, self._pause)

    def _isolate(self, node: VirtualNode, for_s: float) -> None:
        if self._over:
            return
        self._note(f"cut {node.name} off")
        for other in self._nodes:
            if other is not node:
                self._around.network.cut(node.name, other.name)
                self._around.network.cut(other.name, node.name)
        self._loop.after(for_s, self._around.network.heal)

    def _fail_sync(self) -> None:
        self._sync_errors.choice(self._nodes).disk.sync_fails = True
        self._loop.fault(self._sync_errors, self._style.sync_error_every_s, self._fail_sync)

    def _fail_name(self) -> None:
        chance = self._name_errors
        disk = chance.choice(self._nodes).disk
        if chance.happens(0.5):
            disk.folder_sync_fails = True
        else:
            disk.rename_fails = True
        self._loop.fault(chance, self._style.name_error_every_s, self._fail_name)

    # --- partitions -------------------------------------------------------------------------------

    def _partition(self) -> None:
        chance, network = self._partitions, self._around.network
        names = [node.name for node in self._nodes]
        one_way = chance.happens(network.style.one_way_cuts)
        side = chance.sample(names, 1 + chance.randrange(len(names) - 1))
        if chance.happens(network.style.leader_cuts):
            side = [leader.name for leader in leaders_of(self._nodes)[:1]] or side
        others = [name for name in names if name not in side]
        if chance.happens(SINGLE_LINK_CUTS):
            side, others = side[:1], others[:1]
        self._note(f"cut {side} {'->' if one_way else '<->'} {others}")
        self._around.coverage.count("one-way cuts" if one_way else "partitions")
        for name in side:
            for other in others:
                network.cut(name, other)
                if not one_way:
                    network.cut(other, name)
        self._loop.after(self._time_s(chance, self._style.partition_mean_s), self._heal)

    def _heal(self) -> None:
        self._note("all links healed")
        self._around.network.heal()
        self._loop.fault(self._partitions, self._style.partition_every_s, self._partition)
