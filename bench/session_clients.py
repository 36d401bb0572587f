"""Clients of a dledger group that append while leaders are lost: FAILOVER PEERS FOLDER WORKLOAD.

Each has a session over the network, as applications on other machines have, and appends one
numbered body at a time. Lines on standard input, answers on standard output:

* `leader`: `{"leader": ID}`, with an empty ID until there is one and every member counts: a member
  with an empty folder, or one that was away, does not before it holds the log
* `fault`: `{"noted": true}`, and `{"acknowledged_anew": true}` once an append that began later is
  acknowledged
* `stop`: `{"acknowledged": N}`; FOLDER/acknowledged then holds all the numbers, 8 bytes each
"""

from __future__ import annotations

import itertools
import json
import sys
from array import array
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import trio

import dledger
from bench.dledger_member import GROUP
from bench.read_back import ACKNOWLEDGED, NUMBER
from bench.workload import Workload
from dledger.node.collector import collect_seldom

_PAUSE_S = 0.005
_STATUS_S = 1.0


class Clients:
    def __init__(self, peers: dict[str, str], folder: Path, workload: Workload) -> None:
        self._peers = peers
        self._folder = folder
        self._workload = workload
        self._numbers = itertools.count(1)
        self._acknowledged = array("Q")
        self._fault_at: float | None = None
        self._asking = dledger.GroupClient(GROUP, peers)

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(self._workload.in_flight):
                nursery.start_soon(self._append_in_sessions)
            async for line in _lines():
                if line == "leader":
                    _print("leader", await self._leader_of_all())
                elif line == "fault":
                    _print("noted", True)
                    self._fault_at = trio.current_time()
                elif line == "stop":
                    break
            nursery.cancel_scope.cancel()
        numbers = [NUMBER.pack(number) for number in self._acknowledged]
        (self._folder / ACKNOWLEDGED).write_bytes(b"".join(numbers))
        _print("acknowledged", len(numbers))

    async def _leader_of_all(self) -> str:
        try:
            status: Any = await self._asking.leader_status(_STATUS_S)
        except dledger.DLedgerError:
            return ""
        peers = status["peers"].values()
        return str(status["node_id"]) if all(p["proven"] and p["connected"] for p in peers) else ""

    async def _append_in_sessions(self) -> None:
        while True:
            client = dledger.GroupClient(GROUP, self._peers)
            try:
                async with client.session() as session:
                    while True:
                        await self._append(session)
            except dledger.DLedgerError as error:
                print(f"a session ended: {error}", file=sys.stderr, flush=True)
            await trio.sleep(_PAUSE_S)

    async def _append(self, session: dledger.Session) -> None:
        number = next(self._numbers)
        began = trio.current_time()
        await session.append(NUMBER.pack(number).ljust(self._workload.body_bytes, b"\0"))
        self._acknowledged.append(number)
        if self._fault_at is not None and began > self._fault_at:
            self._fault_at = None
            _print("acknowledged_anew", True)


async def _lines() -> AsyncIterator[str]:
    stdin = trio.wrap_file(sys.stdin)
    while line := await stdin.readline():
        yield line.strip()


def _print(name: str, value: object) -> None:
    print(json.dumps({name: value}), flush=True)


if __name__ == "__main__":
    collect_seldom()
    clients = Clients(json.loads(sys.argv[2]), Path(sys.argv[3]), Workload.from_json(sys.argv[4]))
    trio.run(clients.run)
