"""A group of one that appends until its log has BYTES, then ends as if it was killed.

FOLDER ADDRESS BYTES BODY_BYTES
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import trio

import dledger
from bench.dledger_member import GROUP
from dledger.entry import HEADER_BYTES
from dledger.node.collector import collect_seldom

NODE_ID = "n0"
_ENTRIES_A_CALL = 512


async def fill(folder: Path, address: str, log_bytes: int, body_bytes: int) -> None:
    """Append until entries of `log_bytes` are committed. Does not return."""
    peers = {NODE_ID: address}
    config = dledger.NodeConfig(group=GROUP, node_id=NODE_ID, peers=peers, data_dir=folder)
    bodies = [os.urandom(body_bytes) for _ in range(_ENTRIES_A_CALL)]
    enough = log_bytes // (body_bytes + HEADER_BYTES)
    async with dledger.open_node(config, dledger.LogOnly()) as node:
        async for change in node.role_changes():
            if change.ready:
                break
        while node.status().last_index + 1 < enough:
            async with trio.open_nursery() as nursery:
                for _ in range(4):
                    nursery.start_soon(node.append_many, bodies)
        os._exit(0)


if __name__ == "__main__":
    collect_seldom()
    trio.run(fill, Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
