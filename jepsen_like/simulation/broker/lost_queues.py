"""Takes files of consume queues away from members that are down, as an operator may."""

from __future__ import annotations

from collections.abc import Sequence

from jepsen_like.chance import Chance
from jepsen_like.simulation.broker.broker_member import QUEUES, ROOT
from jepsen_like.simulation.broker.queue_disk import VirtualQueueDisk
from jepsen_like.simulation.coverage import Coverage
from jepsen_like.simulation.event_loop import NEVER, EventLoop
from jepsen_like.simulation.virtual_node import VirtualNode


class LostQueues:
    """Waits for a member that is down, and takes all its queues, those of a topic, or one file.

    The first files of a queue are never taken alone: retention does just that, so a broker cannot
    tell.
    """

    def __init__(
        self,
        seed: int,
        every_s: float,
        nodes: Sequence[VirtualNode],
        loop: EventLoop,
        coverage: Coverage,
    ) -> None:
        self._chance = Chance(seed, "lost queues")
        self._every_s = every_s
        self._nodes = nodes
        self._loop = loop
        self._coverage = coverage
        self._over = False

    def start(self) -> None:
        """Draw the time of the next loss."""
        if self._every_s != NEVER:
            self._loop.after(self._chance.wait_s(self._every_s), self._lose)

    def stop(self) -> None:
        self._over = True

    def _lose(self) -> None:
        if self._over:
            return
        down = [node for node in self._nodes if not node.is_up]
        if down:
            node = self._chance.choice(down)
            node.disk.spare()
            self._lose_on(VirtualQueueDisk(node.disk, ROOT))
        self.start()

    def _lose_on(self, files: VirtualQueueDisk) -> None:
        chance, topics = self._chance, files.folders(ROOT) and files.folders(QUEUES)
        if not topics:
            return
        self._coverage.count("queue files lost")
        how, topic = chance.randrange(3), chance.choice(topics)
        queues = files.folders(topic)
        if how == 0:
            files.remove_folder(QUEUES)
        elif how == 1 or not queues:
            files.remove_folder(topic)
        else:
            queue = chance.choice(queues)
            names = sorted(files.sizes(queue))
            if names:
                files.remove(f"{queue}/{chance.choice(names[len(names) > 1 :])}")
