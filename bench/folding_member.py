"""A group of one whose state machine folds every entry: a start reads its whole log.

ADDRESS FOLDER
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import trio

import dledger
from bench.dledger_member import GROUP
from bench.filler import NODE_ID
from dledger.node.collector import collect_seldom


class Total:
    """Adds up the bytes of all bodies."""

    def __init__(self) -> None:
        self.body_bytes = 0

    def apply(self, entries: Sequence[dledger.Entry]) -> Sequence[object]:
        """The sum behind each entry."""
        sums: list[object] = []
        for entry in entries:
            self.body_bytes += len(entry.body)
            sums.append(self.body_bytes)
        return sums


def folding_command(address: str, folder: Path) -> list[str]:
    """The command line of the process."""
    return [sys.executable, "-m", "bench.folding_member", address, str(folder)]


async def fold(address: str, folder: Path) -> None:
    """Serve until standard input ends."""
    peers = {NODE_ID: address}
    config = dledger.NodeConfig(group=GROUP, node_id=NODE_ID, peers=peers, data_dir=folder)
    async with dledger.open_node(config, Total()):
        await trio.to_thread.run_sync(sys.stdin.read)


if __name__ == "__main__":
    collect_seldom()
    trio.run(fold, sys.argv[1], Path(sys.argv[2]))
