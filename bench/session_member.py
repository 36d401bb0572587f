"""One member of a dledger group with sessions: serves until its standard input ends."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import trio

import dledger
from bench.dledger_member import GROUP
from dledger.node.collector import collect_seldom


async def serve(node_id: str, peers: dict[str, str], folder: Path) -> None:
    """Serve until standard input ends."""
    config = dledger.NodeConfig(group=GROUP, node_id=node_id, peers=peers, data_dir=folder)
    async with dledger.open_node(config, dledger.WithSessions(dledger.LogOnly())):
        await trio.to_thread.run_sync(sys.stdin.read)


if __name__ == "__main__":
    collect_seldom()
    trio.run(serve, sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3]))
