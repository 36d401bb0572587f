"""A counter on three real processes whose leader is killed again and again, and frozen."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

import dledger
from dledger.free_ports import free_ports

KILLS = 2
SESSIONS = 3
MEMBER = Path(__file__).parent / "counter_member.py"
PROJECT = MEMBER.parent.parent.parent


class Members:
    """Three processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.peers = {f"n{i}": f"127.0.0.1:{port}" for i, port in enumerate(free_ports(3))}
        self.client = dledger.GroupClient("tally", self.peers)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        for node_id in self.peers:
            self.start(node_id)

    def start(self, node_id: str) -> None:
        self._processes[node_id] = subprocess.Popen(
            [
                *(sys.executable, str(MEMBER), node_id, json.dumps(self.peers)),
                str(self.folder / node_id),
            ],
            stdin=subprocess.PIPE,
            env={"PYTHONPATH": str(PROJECT)},
        )

    def kill(self, node_id: str) -> None:
        process = self._processes[node_id]
        process.kill()
        process.communicate(timeout=10)

    def freeze(self, node_id: str) -> None:
        self._processes[node_id].send_signal(signal.SIGSTOP)

    def thaw(self, node_id: str) -> None:
        self._processes[node_id].send_signal(signal.SIGCONT)

    async def leader(self) -> str:
        for _ in range(600):
            found = await self.client.ready_leader()
            if found is not None:
                return found
            await trio.sleep(0.05)
        raise AssertionError("nobody leads after half a minute")

    def stop(self) -> None:
        for node_id in self.peers:
            self.kill(node_id)


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    running = Members(tmp_path)
    yield running
    running.stop()


class Load:
    """Increments of clients with and without sessions, and what these were told."""

    def __init__(self, client: dledger.GroupClient) -> None:
        self.client = client
        self.over = False
        self.acknowledged = 0
        self.unknown = 0
        self.in_sessions = 0
        self.repeated = 0

    async def without_session(self) -> None:
        while not self.over:
            try:
                await self.client.append([b"plain"], 10.0)
            except dledger.Rejected:
                continue
            except (dledger.DLedgerError, OSError, trio.BrokenResourceError):
                self.unknown += 1
            else:
                self.acknowledged += 1

    async def in_session(self) -> None:
        async with self.client.session() as session:
            while not self.over:
                appended = await session.append(b"session")
                self.in_sessions += 1
                self.repeated += appended.repeated
                counts = appended.result
                assert isinstance(counts, dict)
                assert counts["session"] >= appended.sequence


@pytest.mark.forked_programs
@pytest.mark.slow
async def test_increments_in_sessions_are_counted_exactly_through_kills_and_a_freeze_of_the_leader(
    members: Members,
) -> None:
    await members.leader()
    load = Load(members.client)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.without_session)
        for _ in range(SESSIONS):
            nursery.start_soon(load.in_session)
        for _ in range(KILLS):
            leader = await members.leader()
            await trio.sleep(0.4)
            members.kill(leader)
            await trio.sleep(0.2)
            members.start(leader)
        frozen = await members.leader()
        members.freeze(frozen)
        assert await members.leader() != frozen
        await trio.sleep(1.0)  # sessions turn from the frozen one to the other
        members.thaw(frozen)  # what it was sent before is answered by nobody, or refused
        await trio.sleep(0.5)
        await members.leader()
        load.over = True
    async with members.client.session() as session:
        counts = (await session.append(b"look")).result
    assert isinstance(counts, dict)
    print(f"{vars(load)} {counts}")
    assert counts["session"] == load.in_sessions
    assert load.in_sessions > 20
    assert load.acknowledged <= counts["plain"] <= load.acknowledged + load.unknown
