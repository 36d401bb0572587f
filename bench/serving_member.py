"""One member of a dledger group that only serves: MACHINE ID PEERS FOLDER.

MACHINE is `sessions` (a log with sessions), or `total`: a machine that folds every entry, so that a
start reads the whole log.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import trio

import dledger
from bench.dledger_member import GROUP
from bench.system import TOTAL
from dledger.node.collector import collect_seldom


class Total:
    def __init__(self) -> None:
        self.body_bytes = 0

    def apply(self, entries: Sequence[dledger.Entry]) -> Sequence[object]:
        sums: list[object] = []
        for entry in entries:
            self.body_bytes += len(entry.body)
            sums.append(self.body_bytes)
        return sums


async def serve(machine: str, node_id: str, peers: dict[str, str], folder: Path) -> None:
    config = dledger.NodeConfig(group=GROUP, node_id=node_id, peers=peers, data_dir=folder)
    made = Total() if machine == TOTAL else dledger.WithSessions(dledger.LogOnly())
    async with dledger.open_node(config, made):
        await trio.to_thread.run_sync(sys.stdin.read)


if __name__ == "__main__":
    collect_seldom()
    trio.run(serve, sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), Path(sys.argv[4]))
