"""One member of a group that counts, as a process of its own; killed and started by a test."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import trio

import dledger


class Tally:
    """Counts bodies; the result of an entry is the number of each so far."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def apply(self, entries: Sequence[dledger.Entry]) -> list[object]:
        results: list[object] = []
        for entry in entries:
            self.counts[entry.body.decode()] += 1
            results.append(dict(self.counts))
        return results


async def serve(node_id: str, peers: dict[str, str], folder: Path) -> None:
    config = dledger.NodeConfig(
        group="tally",
        node_id=node_id,
        peers=peers,
        data_dir=folder,
        store=dledger.StoreConfig(segment_bytes=8 << 20, index_segment_bytes=1 << 16),
        election_timeout_ms=300,
        heartbeat_interval_ms=60,
    )
    async with dledger.open_node(config, dledger.WithSessions(Tally())):
        await trio.to_thread.run_sync(sys.stdin.read)  # ends with the process that started this


if __name__ == "__main__":
    trio.run(serve, sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3]))
