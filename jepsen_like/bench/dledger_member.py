"""One member of a dledger group; the one that leads makes the load in its own process."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

import trio

import dledger
from dledger.collector import collect_seldom
from jepsen_like.bench.workload import Measured, Workload, measured


async def run_member(node_id: str, peers: dict[str, str], folder: Path, workload: Workload) -> None:
    """Serve until standard input ends; print what was measured, if this member leads."""
    config = dledger.NodeConfig(group="bench", node_id=node_id, peers=peers, data_dir=folder)
    async with dledger.open_node(config, dledger.LogOnly()) as node:
        async for change in node.role_changes():
            if change.ready:
                result = await _load(node, workload)
                print(json.dumps(asdict(result)), flush=True)
                return
            if change.leader not in (None, node_id):
                await trio.to_thread.run_sync(sys.stdin.read)
                return


async def _load(node: dledger.Node, workload: Workload) -> Measured:
    body = bytes(workload.body_bytes)
    latencies: list[float] = []

    async def one_at_a_time() -> None:
        while True:
            started = time.perf_counter()
            await node.append(body)
            latencies.append(time.perf_counter() - started)

    async def in_batches() -> None:
        bodies = [body] * workload.batch
        while True:
            started = time.perf_counter()
            await node.append_many(bodies)
            latencies.append(time.perf_counter() - started)

    async with trio.open_nursery() as nursery:
        for _ in range(max(1, workload.in_flight // workload.batch)):
            nursery.start_soon(one_at_a_time if workload.batch == 1 else in_batches)
        await trio.sleep(workload.warm_up_s)
        latencies.clear()
        started = time.perf_counter()
        await trio.sleep(workload.seconds)
        elapsed = time.perf_counter() - started
        result = measured(list(latencies), workload.batch, elapsed)
        nursery.cancel_scope.cancel()
    return result


if __name__ == "__main__":
    collect_seldom()
    trio.run(
        run_member,
        sys.argv[1],
        json.loads(sys.argv[2]),
        Path(sys.argv[3]),
        Workload.from_json(sys.argv[4]),
    )
