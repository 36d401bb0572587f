"""A group that takes entries from its members alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import dledger
from dledger.client.node_connection import connect_node
from dledger.free_ports import free_addresses
from dledger.wire.client_protocol import ADMINISTERING, APPENDING, READING, Operation


@asynccontextmanager
async def closed_group(folder: Path, machine: dledger.StateMachine) -> AsyncIterator[dledger.Node]:
    (address,) = free_addresses(1)
    config = dledger.NodeConfig(
        group="g",
        node_id="n0",
        peers={"n0": address},
        data_dir=folder,
        client_appends=False,
        new=True,
    )
    async with dledger.open_node(config, machine) as node:
        async for role in node.role_changes():
            if role.ready:
                break
        yield node


def test_each_operation_reads_or_appends_or_administers() -> None:
    groups = (READING, APPENDING, ADMINISTERING)
    assert [sum(each in group for group in groups) for each in Operation] == [1] * len(Operation)


@pytest.mark.parametrize("operation", sorted(APPENDING))
async def test_each_operation_that_appends_is_refused(tmp_path: Path, operation: Operation) -> None:
    async with closed_group(tmp_path, dledger.WithSessions(dledger.LogOnly())) as node:
        async with connect_node("g", "n0", node.config.address) as connection:
            with pytest.raises(dledger.ClientAppendsOff, match="its members alone"):
                await connection.ask(operation)
        assert node.status().last_index == node.status().committed


async def test_clients_read_and_members_append(tmp_path: Path) -> None:
    async with closed_group(tmp_path, dledger.LogOnly()) as node:
        await node.append(b"own")
        async with dledger.connect(node.config.peers, group="g", timeout_s=5) as log:
            with pytest.raises(dledger.ClientAppendsOff) as refused:
                await log.append(b"foreign")
        assert (refused.value.group, refused.value.machine) == ("g", "log")
        bodies = [entry.body for entry in node.entries(0, 1 << 20)]
        assert b"own" in bodies
        assert b"foreign" not in bodies
