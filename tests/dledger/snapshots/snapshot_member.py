"""One member of a group with a state of some megabytes, as a process; whoever leads makes a load.

Prints a line of JSON a second: what it is, how far, how much memory it takes, what it appended.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from zlib import crc32

import trio

import dledger

CHUNK_BYTES = 1 << 20
BATCH, BODY = 20, bytes(200)


class Heavy:
    """A sum over all bodies, and a state of `megabytes` beside it."""

    snapshot_format = "heavy/1"

    def __init__(self, megabytes: int) -> None:
        self.sum = 0
        self.filler = bytes(range(256)) * (CHUNK_BYTES // 256)
        self.chunks = megabytes

    def apply(self, entries: Sequence[dledger.Entry]) -> list[object]:
        for entry in entries:
            self.sum = crc32(entry.body, self.sum)
        return [None] * len(entries)

    def snapshot(self) -> Iterator[bytes]:
        first = self.sum.to_bytes(4, "big")
        return (self.filler if number else first for number in range(self.chunks + 1))

    def restore(self, chunks: Iterator[bytes]) -> None:
        self.sum = int.from_bytes(next(chunks), "big")
        self.chunks = sum(chunk == self.filler for chunk in chunks)


def memory_mib() -> float:
    """What of this process is in memory now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / (1 << 20)


class Load:
    """Appends as fast as it can while this member leads."""

    def __init__(self, node: dledger.Node) -> None:
        self.node = node
        self.appended = 0

    async def run(self) -> None:
        while True:
            try:
                self.appended += len(await self.node.append_many([BODY] * BATCH))
            except dledger.DLedgerError:
                await trio.sleep(0.2)


async def serve(node_id: str, peers: dict[str, str], folder: Path, megabytes: int) -> None:
    config = dledger.NodeConfig(
        group="heavy",
        node_id=node_id,
        peers=peers,
        data_dir=folder,
        joining=list(peers) == [node_id],  # the group has three to begin with
        store=dledger.StoreConfig(
            segment_bytes=1 << 20, index_segment_bytes=1 << 17, max_body_bytes=1000
        ),
        snapshots=dledger.SnapshotPolicy(every_entries=20_000, trailing_entries=1000),
    )
    machine = Heavy(megabytes)
    async with dledger.open_node(config, machine) as node, trio.open_nursery() as nursery:
        load = Load(node)
        for _ in range(8):
            nursery.start_soon(load.run)
        nursery.start_soon(report, node, load, machine)
        await trio.to_thread.run_sync(sys.stdin.read)  # ends with the process that started this
        nursery.cancel_scope.cancel()


async def report(node: dledger.Node, load: Load, machine: Heavy) -> None:
    while True:
        status = asdict(node.status())
        status |= {"memory_mib": memory_mib(), "appended": load.appended, "sum": machine.sum}
        status["time"] = trio.current_time()
        print(json.dumps(status), flush=True)
        await trio.sleep(0.25)


if __name__ == "__main__":
    trio.run(serve, sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
