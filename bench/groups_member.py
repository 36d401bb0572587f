"""One process with a member of each of many groups; it prints which of them it leads."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import trio

import dledger
from dledger.node.collector import collect_seldom

# Small files: a hundred groups of the default size take 14 GB before the first entry.
STORE = dledger.StoreConfig(
    segment_bytes=1 << 20, index_segment_bytes=1 << 16, max_body_bytes=64 * 1024
)


async def run_groups(
    node_id: str, peers: dict[str, str], folder: Path, groups: int, timeout_ms: int
) -> None:
    """Serve until standard input ends; print a line for every change of leadership here."""
    async with (
        dledger.open_host(dledger.HostConfig(address=peers[node_id])) as host,
        trio.open_nursery() as nursery,
    ):
        for number in range(groups):
            config = dledger.NodeConfig(
                group=f"g{number}",
                node_id=node_id,
                peers=peers,
                data_dir=folder / f"g{number}",
                store=STORE,
                election_timeout_ms=timeout_ms,
                heartbeat_interval_ms=timeout_ms // 5,
            )
            nursery.start_soon(_run_group, host, config)
        await trio.to_thread.run_sync(sys.stdin.read)
        nursery.cancel_scope.cancel()


async def _run_group(host: dledger.Host, config: dledger.NodeConfig) -> None:
    async with host.open_node(config, dledger.LogOnly()) as node:
        async for change in node.role_changes():
            told = {"group": config.group, "ready": change.ready, "term": change.term}
            print(json.dumps(told), flush=True)


if __name__ == "__main__":
    collect_seldom()
    trio.run(
        run_groups,
        sys.argv[1],
        json.loads(sys.argv[2]),
        Path(sys.argv[3]),
        int(sys.argv[4]),
        int(sys.argv[5]),
    )
