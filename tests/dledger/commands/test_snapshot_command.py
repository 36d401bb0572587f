"""A running member is asked for a snapshot, by the client and by the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner, Result

import dledger
from dledger.commands.group_commands import commands
from tests.dledger.snapshots.test_log_retention import Ledger, Members, SavedLedger


def size_of(path: str) -> int:
    return Path(path).stat().st_size


async def invoke(group: Members, *arguments: str) -> Result:
    peers = ",".join(f"{node}={address}" for node, address in group.peers.items())
    command = ["snapshot", "--group", "g", "--peers", peers, *arguments]
    # The command runs a loop of its own, in a thread of its own.
    return await trio.to_thread.run_sync(CliRunner().invoke, commands, command)


async def test_a_member_writes_a_snapshot_when_it_is_asked_to(tmp_path: Path) -> None:
    group = Members(tmp_path)
    async with group.running(SavedLedger) as (node,):
        await node.append_many([b"a", b"b"])
        client = dledger.GroupClient("g", group.peers)
        written = await client.snapshot("n0")
        assert written.index == node.status().applied
        assert written.term == node.status().term
        assert size_of(written.path) == written.size
        await node.append(b"c")
        told = await invoke(group, "--node", "n0", "--json")
        row = json.loads(told.output)
        assert (row["node"], row["index"]) == ("n0", node.status().applied)
        assert size_of(row["path"]) == row["size"]
        assert (await invoke(group)).output.split("\t")[:2] == ["n0", str(row["index"])]


async def test_a_member_that_has_no_snapshots_says_so(tmp_path: Path) -> None:
    group = Members(tmp_path)
    async with group.running(Ledger):
        with pytest.raises(dledger.SnapshotUnavailable, match="no methods"):
            await dledger.GroupClient("g", group.peers).snapshot("n0")
        told = await invoke(group)
        assert told.exit_code == 1
        assert told.output.startswith("dledger: ")
        named = await invoke(group, "--node", "n9")
        assert "n9 is not one of n0" in named.output
