"""One member of a dledger group; the leader makes the load in its own process.

Its arguments are ID PEERS FOLDER WORKLOAD, and with TLS a folder of certificates.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

import trio

import dledger
from bench.workload import APPEND, SUBMIT, Measured, Workload, measured
from dledger.node.collector import collect_seldom

GROUP = "bench"


async def run_member(
    node_id: str,
    peers: dict[str, str],
    folder: Path,
    workload: Workload,
    certificates: Path | None = None,
) -> None:
    """Serve until standard input ends; print the result if this member leads."""
    tls = None
    if certificates is not None:
        tls = dledger.TlsConfig(
            certificate=certificates / f"{node_id}.pem",
            key=certificates / f"{node_id}-key.pem",
            authorities=certificates / "authority.pem",
        )
    config = dledger.NodeConfig(group=GROUP, node_id=node_id, peers=peers, data_dir=folder, tls=tls)
    await measure_as_leader(config, workload)


async def measure_as_leader(config: dledger.NodeConfig, workload: Workload) -> None:
    async with dledger.open_node(config, dledger.LogOnly()) as node:
        async for change in node.role_changes():
            if change.ready:
                print("loading", flush=True)
                result = await Load(node, workload).run()
                print(json.dumps(asdict(result)), flush=True)
                return
            if change.leader not in (None, config.node_id):
                await trio.to_thread.run_sync(sys.stdin.read)
                return


class Load:
    """Keeps the workload's number of entries in flight at a leader, in its own process."""

    def __init__(self, node: dledger.Node, workload: Workload) -> None:
        self._node = node
        self._workload = workload
        self._latencies_s: list[float] = []
        self._failed = 0

    async def run(self) -> Measured:
        work = self._workload
        async with trio.open_nursery() as nursery:
            for _ in range(max(1, work.in_flight // work.batch)):
                if work.call == SUBMIT:
                    self._submit()
                else:
                    call = self._append if work.call == APPEND else self._append_many
                    nursery.start_soon(call)
            await trio.sleep(work.warm_up_s)
            self._latencies_s.clear()
            self._failed = 0
            started = time.perf_counter()
            await trio.sleep(work.measured_s)
            elapsed_s = time.perf_counter() - started
            result = measured(list(self._latencies_s), work.batch, elapsed_s)
            failed = self._failed
            nursery.cancel_scope.cancel()
        return Measured(result.entries_per_s, result.median_ms, result.p99_ms, failed)

    async def _append(self) -> None:
        body = bytes(self._workload.body_bytes)
        while True:
            started = time.perf_counter()
            await self._node.append(body)
            self._latencies_s.append(time.perf_counter() - started)

    async def _append_many(self) -> None:
        bodies = [bytes(self._workload.body_bytes)] * self._workload.batch
        while True:
            started = time.perf_counter()
            await self._node.append_many(bodies)
            self._latencies_s.append(time.perf_counter() - started)

    def _submit(self) -> None:
        """Append one entry now, and another after each acknowledgement."""
        bodies = [bytes(self._workload.body_bytes)]
        started = time.perf_counter()

        def done(outcome: list[dledger.Appended] | dledger.DLedgerError) -> None:
            nonlocal started
            if isinstance(outcome, dledger.DLedgerError):
                self._failed += 1  # the load is one less from here on: the run shows it
                return
            now = time.perf_counter()
            self._latencies_s.append(now - started)
            started = now
            try:
                self._node.submit(bodies, done)
            except dledger.DLedgerError:
                self._failed += 1

        self._node.submit(bodies, done)


if __name__ == "__main__":
    collect_seldom()
    trio.run(
        run_member,
        sys.argv[1],
        json.loads(sys.argv[2]),
        Path(sys.argv[3]),
        Workload.from_json(sys.argv[4]),
        Path(sys.argv[5]) if len(sys.argv) > 5 else None,
    )
