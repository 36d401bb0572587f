"""One member of a group whose links take time: TASK CONFIG WORKLOAD, and CONFIG is JSON.

TASK is `measure` (the leader prints what it measured, and ends) or `resume`: whichever member leads
appends, and prints `{"acknowledged": SECONDS}` at the first acknowledgement of its term, by the
clock that all processes of this machine share. The others print `{"follows": ID}`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import trio

import dledger
from bench.dledger_member import GROUP, measure_as_leader
from bench.workload import Workload
from dledger.node.collector import collect_seldom

MEASURE, RESUME = "measure", "resume"
ACKNOWLEDGED, FOLLOWS = "acknowledged", "follows"


def distant_config(text: str) -> dledger.NodeConfig:
    found: dict[str, Any] = json.loads(text)
    return dledger.NodeConfig(group=GROUP, data_dir=Path(found.pop("data_dir")), **found)


async def resume_as_leader(config: dledger.NodeConfig, workload: Workload) -> None:
    """Serve until standard input ends; append while this member leads."""
    async with dledger.open_node(config, dledger.LogOnly()) as node, trio.open_nursery() as nursery:
        nursery.start_soon(_append_when_leading, node, workload)
        await trio.to_thread.run_sync(sys.stdin.read)
        nursery.cancel_scope.cancel()


async def _append_when_leading(node: dledger.Node, workload: Workload) -> None:
    begun = -1  # the term whose leader began to append here
    async with trio.open_nursery() as nursery:
        async for change in node.role_changes():
            if change.ready and change.term > begun:
                begun = change.term
                for number in range(workload.in_flight):
                    nursery.start_soon(_append, node, workload, number == 0)
            elif change.leader not in (None, node.config.node_id):
                _print(FOLLOWS, change.leader)


async def _append(node: dledger.Node, workload: Workload, tells: bool) -> None:
    """Append one entry after the other while this member leads."""
    body = bytes(workload.body_bytes)
    try:
        while True:
            await node.append(body)
            if tells:
                _print(ACKNOWLEDGED, time.monotonic())
                tells = False
    except (dledger.Rejected, dledger.Discarded, dledger.OutcomeUnknown) as error:
        print(f"appends end: {error}", file=sys.stderr, flush=True)


def _print(name: str, value: object) -> None:
    print(json.dumps({name: value}), flush=True)


if __name__ == "__main__":
    collect_seldom()
    task = {MEASURE: measure_as_leader, RESUME: resume_as_leader}[sys.argv[1]]
    trio.run(task, distant_config(sys.argv[2]), Workload.from_json(sys.argv[3]))
