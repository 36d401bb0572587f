"""Members that run in the loop of a test, and waits for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

from dledger.config import NodeConfig
from dledger.free_ports import free_addresses
from dledger.node.host import open_node
from dledger.node.node import Node
from dledger.state_machine import StateMachine
from dledger.store.store_config import StoreConfig

WITHIN_S = 20.0

SMALL_FILES = StoreConfig(segment_bytes=8 << 20, index_segment_bytes=1 << 16)


def lone(folder: Path, **settings: Any) -> NodeConfig:
    """A group of one that is quick to lead, at a free port; `settings` are those that differ."""
    quick = {
        "group": "g",
        "peers": {"n0": free_addresses(1)[0]},
        "new": True,
        "store": SMALL_FILES,
        "election_timeout_ms": 100,
        "heartbeat_interval_ms": 20,
    }
    return NodeConfig(node_id="n0", data_dir=folder, **{**quick, **settings})


async def ready(*nodes: Node) -> Node:
    """Wait until one of them leads and serves; return it."""
    await until(lambda: any(node.is_ready_leader for node in nodes))
    return next(node for node in nodes if node.is_ready_leader)


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(WITHIN_S):
        while not condition():  # noqa: ASYNC110 - a status tells it, and no event
            await trio.sleep(0.01)


class Members:
    """Members of one group, each opened in a scope of its own; `settings` are those of all."""

    def __init__(
        self, folder: Path, nursery: trio.Nursery, count: int = 3, **settings: Any
    ) -> None:
        self.peers = {f"n{number}": each for number, each in enumerate(free_addresses(count))}
        self.nodes: dict[str, Node] = {}  # those that run
        self._folder = folder
        self._nursery = nursery
        self._settings = settings
        self._scopes: dict[str, trio.CancelScope] = {}
        self._ended: dict[str, trio.Event] = {}

    async def start(self, name: str, machine: StateMachine, **settings: Any) -> None:
        self.nodes[name] = await self._nursery.start(self._run, name, machine, settings)

    async def _run(
        self,
        name: str,
        machine: StateMachine,
        settings: dict[str, Any],
        task_status: trio.TaskStatus[Node],
    ) -> None:
        all_settings = {**self._settings, **settings}
        folder = self._folder / name
        config = NodeConfig(
            group="g", node_id=name, peers=self.peers, data_dir=folder, **all_settings
        )
        ended = self._ended[name] = trio.Event()
        with trio.CancelScope() as self._scopes[name]:
            async with open_node(config, machine) as node:
                task_status.started(node)
                await trio.sleep_forever()
        ended.set()

    async def stop(self, name: str) -> None:
        """Stop one; its folder is free afterwards."""
        del self.nodes[name]
        self._scopes[name].cancel()
        await self._ended[name].wait()

    @property
    def leading(self) -> str | None:
        return next((name for name, node in self.nodes.items() if node.is_ready_leader), None)

    async def leader(self) -> str:
        """Wait until one of them leads and serves; return its name."""
        await until(lambda: self.leading is not None)
        assert self.leading is not None
        return self.leading
