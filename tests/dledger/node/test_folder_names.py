"""A data folder may have any name that the system takes, also one that is no text."""

from __future__ import annotations

import os
from pathlib import Path

import trio

import dledger
from dledger.free_ports import free_ports
from dledger.machines import Objects, ReplicatedDict


async def test_a_folder_whose_name_is_not_utf8_serves_and_names_its_snapshot(
    tmp_path: Path,
) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    peers = {"n0": f"127.0.0.1:{free_ports(1)[0]}"}
    config = dledger.NodeConfig(group="g", node_id="n0", peers=peers, data_dir=folder, new=True)
    machine = Objects(prices=ReplicatedDict())
    with trio.fail_after(20):
        async with dledger.open_node(config, machine) as node:
            client = dledger.GroupClient("g", peers)
            while await client.ready_leader() is None:
                await trio.lowlevel.checkpoint()
            await node.append(b"entry")
            written = await client.snapshot("n0")
            assert written.path.startswith(f"{tmp_path}/caf\\udce9/")
            await node.append(b"another")  # the member has not ended
