"""The settings of a group of one, and waits for members that run in the loop of a test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

from dledger.config import NodeConfig
from dledger.free_ports import free_addresses
from dledger.node.node import Node
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
