"""A group of three nodes of ours over real files, whose leader is stopped twice."""

from collections.abc import Sequence
from pathlib import Path

import trio

import dledger
from dledger.free_ports import free_ports
from tests.interop.shapes import GROUP, bodies

STOPS = 2
PATIENCE_S = 60.0


class Nothing:
    """A state machine that keeps nothing."""

    def apply(self, entries: Sequence[dledger.Entry]) -> list[object]:
        """Answer every entry alike."""
        return [None] * len(entries)


class ThreeNodes:
    """The nodes that run, by id."""

    def __init__(self, folder: Path, store: dledger.StoreConfig, nursery: trio.Nursery) -> None:
        self.folder = folder
        self.store = store
        self.peers = {f"n{i}": f"127.0.0.1:{port}" for i, port in enumerate(free_ports(3))}
        self.running: dict[str, dledger.Node] = {}
        self._nursery = nursery
        self._stops: dict[str, trio.Event] = {}
        self._stopped: dict[str, trio.Event] = {}

    async def start(self, node_id: str) -> None:
        """Open one node, in a task of its own: they are closed in any order."""
        self.running[node_id] = await self._nursery.start(self._run, node_id)

    async def _run(
        self, node_id: str, task_status: trio.TaskStatus[dledger.Node] = trio.TASK_STATUS_IGNORED
    ) -> None:
        stop = self._stops[node_id] = trio.Event()
        stopped = self._stopped[node_id] = trio.Event()
        config = dledger.NodeConfig(
            group=GROUP,
            node_id=node_id,
            peers=self.peers,
            data_dir=self.folder / node_id,
            store=self.store,
            election_timeout_ms=300,
            heartbeat_interval_ms=50,
        )
        async with dledger.open_node(config, Nothing()) as node:
            task_status.started(node)
            await stop.wait()
        stopped.set()

    async def stop(self, node_id: str) -> None:
        """Close one node."""
        del self.running[node_id]
        self._stops[node_id].set()
        await self._stopped[node_id].wait()

    async def append(self, batches: list[list[bytes]]) -> dledger.Node:
        """Have whoever leads take these, each batch for certain; who led at the end."""
        left = batches[::-1]
        while True:
            for node in self.running.values():
                try:
                    while left:
                        await node.append_many(left[-1])
                        left.pop()
                    await node.read()
                except (dledger.Rejected, dledger.Discarded, dledger.OutcomeUnknown):
                    continue
                return node
            await trio.sleep(0.02)


async def _stop_leaders(group: ThreeNodes) -> None:
    for node_id in group.peers:
        await group.start(node_id)
    for number in range(STOPS):
        leader = await group.append([bodies(30 + number, 60, 3000) for _ in range(4)])
        stopped = leader.config.node_id
        await group.stop(stopped)
        await group.append([bodies(40 + number, 60, 3000)])
        await group.start(stopped)
    leader = await group.append([[b"the last one"]])
    index = await leader.read()
    for node in group.running.values():
        await node.wait_applied(index)
    for node_id in list(group.running):
        await group.stop(node_id)


def run_three_nodes(folder: Path, store: dledger.StoreConfig) -> None:
    """Leave the folders of three nodes in `folder`: n0, n1 and n2."""

    async def bounded() -> None:
        with trio.fail_after(PATIENCE_S):
            async with trio.open_nursery() as nursery:
                await _stop_leaders(ThreeNodes(folder, store, nursery))

    trio.run(bounded)
