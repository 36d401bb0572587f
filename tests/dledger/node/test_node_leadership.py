"""Lease reads, a preferred leader and forgetting, on real nodes in one trio loop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

import dledger
from dledger.free_ports import free_ports


@asynccontextmanager
async def three_nodes(folder: Path, **settings: Any) -> AsyncIterator[dict[str, dledger.Node]]:
    peers = {f"n{i}": f"127.0.0.1:{port}" for i, port in enumerate(free_ports(3))}
    async with AsyncExitStack() as stack:
        nodes = {}
        for node_id in peers:
            config = dledger.NodeConfig(
                group="g",
                node_id=node_id,
                peers=peers,
                data_dir=folder / node_id,
                election_timeout_ms=200,
                heartbeat_interval_ms=40,
                **settings,
            )
            nodes[node_id] = await stack.enter_async_context(
                dledger.open_node(config, dledger.LogOnly())
            )
        yield nodes


async def follows(node: dledger.Node, leader: str | None = None) -> str:
    """Wait until a node knows a leader (that one, if one is named); its name."""
    with trio.fail_after(20):
        async for change in node.role_changes():
            if change.leader is not None and leader in (None, change.leader):
                return change.leader
    raise AssertionError("the node stopped")


async def test_reads_by_lease_see_every_append_on_every_member(tmp_path: Path) -> None:
    async with three_nodes(tmp_path, max_clock_drift=0.01) as nodes:
        leader = nodes[await follows(nodes["n0"])]
        with trio.fail_after(20):
            for number in range(20):
                appended = await leader.append(b"%d" % number)
                for node in nodes.values():
                    assert await node.read() >= appended.index


async def test_the_preferred_member_ends_up_leading(tmp_path: Path) -> None:
    async with three_nodes(tmp_path, preferred_leader="n2") as nodes:
        for node in nodes.values():
            await follows(node, "n2")


async def test_forgetting_is_refused_with_lease_reads_and_undone_without(tmp_path: Path) -> None:
    async with three_nodes(tmp_path / "lease", max_clock_drift=0.01) as nodes:
        leader = await follows(nodes["n0"])
        follower = next(node for name, node in nodes.items() if name != leader)
        await follows(follower)
        with pytest.raises(dledger.LeaderKept):
            follower.forget_leader()
    async with three_nodes(tmp_path / "plain") as nodes:
        leader = await follows(nodes["n0"])
        follower = next(node for name, node in nodes.items() if name != leader)
        await follows(follower, leader)
        follower.forget_leader()
        assert follower.status().leader is None
        await follows(follower)
