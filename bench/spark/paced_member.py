"""One member of a group that a stream reads; the leader sends at a steady rate on demand.

Its arguments are ID PEERS FOLDER RATE. It prints "leads" once it leads and is ready. Each line that
it then gets is a number of seconds to send for, and is answered with the figures, as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Final

import trio

import dledger
from bench.workload import measured
from dledger.node.collector import collect_seldom

GROUP: Final = "bench"
LEADS: Final = "leads"
BODY_BYTES: Final = 256
TIME_BYTES: Final = 8  # a body begins with the time at which it was sent, in ns since 1970
ELECTION_TIMEOUT_MS: Final = 3000  # Spark's start may take all processors for a second
TICK_S: Final = 0.01  # sends leave together so often
MAX_IN_FLIGHT: Final = 8000  # entries; a group takes 10,000 at once


async def run_member(node_id: str, peers: dict[str, str], folder: Path, rate: int) -> None:
    config = dledger.NodeConfig(
        group=GROUP,
        node_id=node_id,
        peers=peers,
        data_dir=folder,
        election_timeout_ms=ELECTION_TIMEOUT_MS,
    )
    async with dledger.open_node(config, dledger.LogOnly()) as node:
        async for change in node.role_changes():
            if change.ready:
                print(LEADS, flush=True)
                break
            if change.leader not in (None, node_id):
                break
        while line := await trio.to_thread.run_sync(sys.stdin.readline):
            print(json.dumps(await _send(node, rate, float(line))), flush=True)


async def _send(node: dledger.Node, rate: int, measured_s: float) -> dict[str, float]:
    """Send for some seconds. Skip a tick while too many entries are in flight.

    Times count from the tick, so that a delay of this process shows as well. Returns the fields of
    `Measured`, and the number of acknowledged "entries".
    """
    batch = max(1, round(rate * TICK_S))
    latencies_s: list[float] = []
    room = trio.CapacityLimiter(max(1, MAX_IN_FLIGHT // batch))

    async def send(due: float) -> None:
        bodies = [time.time_ns().to_bytes(TIME_BYTES).ljust(BODY_BYTES, b"x")] * batch
        async with room:
            await node.append_many(bodies)
            latencies_s.append(trio.current_time() - due)

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for tick in range(round(measured_s / TICK_S)):
            due = began + tick * TICK_S
            await trio.sleep_until(due)
            if room.available_tokens:
                nursery.start_soon(send, due)
    figures = measured(latencies_s, batch, trio.current_time() - began)
    return {**asdict(figures), "entries": len(latencies_s) * batch}


if __name__ == "__main__":
    collect_seldom()
    trio.run(run_member, sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
