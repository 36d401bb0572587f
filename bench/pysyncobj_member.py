"""One member of a PySyncObj group with its journal file; the leader makes the load in-process.

PySyncObj never syncs its journal, so it does not promise what dledger does.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pysyncobj import SyncObj, SyncObjConf, replicated

from bench.workload import Workload, measured


class Log(SyncObj):  # type: ignore[misc]  # the library has no types
    """A state machine that only counts entries."""

    def __init__(self, address: str, others: list[str], settings: SyncObjConf) -> None:
        super().__init__(address, others, settings)
        self._entries = 0

    @replicated  # type: ignore[untyped-decorator]
    def append(self, body: bytes) -> int:
        self._entries += len(body) > 0
        return self._entries


def main(node_id: str, peers: dict[str, str], folder: Path, workload: Workload) -> None:
    """Serve until standard input ends; print the result if this member leads."""
    folder.mkdir(parents=True)
    settings = SyncObjConf(
        journalFile=str(folder / "journal"),
        appendEntriesUseBatch=False,  # the faster of its two modes, at any load
        logCompactionMinTime=300,
    )
    log = Log(peers[node_id], [a for peer, a in peers.items() if peer != node_id], settings)
    while not log.isReady() or log._getLeader() is None:
        time.sleep(0.05)
    time.sleep(1.0)
    if str(log._getLeader()) != peers[node_id]:
        sys.stdin.read()
        os._exit(0)  # its own threads never end
    _load(log, workload)


def _load(log: Log, workload: Workload) -> None:
    body = bytes(workload.body_bytes)
    latencies_s: list[float] = []

    def issue() -> None:
        started = time.perf_counter()

        def answered(_: Any, error: Any) -> None:
            if not error:
                latencies_s.append(time.perf_counter() - started)
            issue()

        log.append(body, callback=answered)

    for _ in range(workload.in_flight):
        issue()
    time.sleep(workload.warm_up_s)
    latencies_s.clear()
    started = time.perf_counter()
    time.sleep(workload.measured_s)
    # PySyncObj has no call for several bodies: each append is a call of its own.
    result = measured(latencies_s[:], 1, time.perf_counter() - started)
    print(json.dumps(asdict(result)), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3]), Workload.from_json(sys.argv[4]))
