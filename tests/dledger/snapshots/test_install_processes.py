"""Real processes under load: who was away, who is new and who joins catches up by a snapshot.

What it costs the appends is printed (`pytest -rP`), not demanded: the machine is shared.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

import dledger
from dledger.free_ports import free_addresses
from dledger.store.scan import scan_folder

STATE_MIB = 24
# How long appends are counted for what is printed: four reports of each member.
MEASURED_S = 1.0
PROGRAM = Path(__file__).with_name("snapshot_member.py")
Report = dict[str, Any]


class Process:
    """One member, and everything it has reported."""

    def __init__(self, name: str, peers: dict[str, str], folder: Path) -> None:
        command = [sys.executable, str(PROGRAM), name, json.dumps(peers), str(folder / name)]
        self.running = subprocess.Popen(
            [*command, str(STATE_MIB)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.reports: list[Report] = []
        self.errors = ""
        self._readers = [
            threading.Thread(target=target, daemon=True) for target in (self._read, self._errors)
        ]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self.running.stdout is not None
        for line in self.running.stdout:
            self.reports.append(json.loads(line))

    def _errors(self) -> None:
        assert self.running.stderr is not None
        self.errors = self.running.stderr.read()

    @property
    def now(self) -> Report:
        return self.reports[-1] if self.reports else {"first_index": -1, "applied": -1}

    def kill(self) -> None:
        self.running.kill()
        self._end()

    def stop(self) -> None:
        assert self.running.stdin is not None
        self.running.stdin.close()
        self._end()

    def _end(self) -> None:
        self.running.wait(timeout=30)
        for reader in self._readers:
            reader.join(timeout=10)
        for stream in (self.running.stdin, self.running.stdout, self.running.stderr):
            if stream is not None:
                stream.close()

    def speed(self, since: int) -> float:
        """Appends a second, from the report with that number to the last one."""
        first, last = self.reports[since], self.reports[-1]
        return float((last["appended"] - first["appended"]) / (last["time"] - first["time"]))

    def memory(self, since: int = 0) -> float:
        return float(max(report["memory_mib"] for report in self.reports[since:]))


class Running:
    """The members of one group."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        names = ("n0", "n1", "n2")
        self.peers = dict(zip(names, free_addresses(3), strict=True))
        self.members: dict[str, Process] = {}

    def start(self, name: str) -> Process:
        self.members[name] = Process(name, self.peers, self.folder)
        return self.members[name]

    def start_joining(self, name: str) -> tuple[Process, str]:
        """A member that nobody knows yet, and its address."""
        (address,) = free_addresses(1)
        self.members[name] = Process(name, {name: address}, self.folder)
        return self.members[name], address

    def leader(self) -> Process:
        found: list[Process] = []

        def leads() -> bool:
            found[:] = [m for m in self.members.values() if m.now.get("ready")]
            return bool(found)

        self.until(leads)
        return found[0]

    def sends_entries_to(self, name: str) -> bool:
        """Whether the leader sends a member entries again, or the member leads by now, as any may
        on a busy machine.
        """
        now = self.leader().now
        return now["node_id"] == name or now["peers"][name]["phase"] in ("APPEND", "COMMIT")

    def until(self, condition: Callable[[], bool], within_s: float = 300.0) -> None:
        give_up = time.monotonic() + within_s
        while not condition():
            dead = [m.errors for m in self.members.values() if m.running.poll() is not None]
            assert not dead, dead
            assert time.monotonic() < give_up, {n: m.now for n, m in self.members.items()}
            time.sleep(0.05)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path)
    yield running
    for member in running.members.values():
        if member.running.poll() is None:
            member.kill()


@pytest.mark.long
def test_members_that_are_behind_the_log_catch_up_under_load(group: Running) -> None:
    group.start("n0")
    group.start("n1")
    away = group.start("n2")
    group.until(lambda: min(m.now["applied"] for m in group.members.values()) > 100)
    away.stop()
    del group.members["n2"]
    was = away.now["applied"]
    leader = group.leader()
    group.until(lambda: leader.now["first_index"] > max(was, 10_000))
    began = len(leader.reports)
    time.sleep(MEASURED_S)
    alone = leader.speed(began)

    def catch_up(what: str) -> Process:
        begin, member = len(leader.reports), group.start("n2")
        group.until(lambda: member.now["first_index"] > was)
        group.until(lambda: group.sends_entries_to("n2"))
        goal = group.leader().now["committed"]
        group.until(lambda: member.now["applied"] > goal)
        memory = leader.memory(begin) - leader.memory(max(0, begin - 8))
        meanwhile, since = leader.speed(begin), len(leader.reports)
        time.sleep(MEASURED_S)
        print(
            f"{what}: appends {meanwhile:.0f}/s meanwhile, {alone:.0f}/s with two members before, "
            f"{leader.speed(since):.0f}/s with three members afterwards; the leader takes "
            f"{memory:.0f} MiB more, the new one {member.memory():.0f} MiB in all, "
            f"the snapshot {STATE_MIB} MiB"
        )
        assert member.now["newest_snapshot"] > was
        assert memory < STATE_MIB
        return member

    back = catch_up("a member that was away")
    back.kill()
    del group.members["n2"]
    was = leader.now["committed"]
    folder = group.folder / "n2"
    folder.rename(group.folder / "gone")
    group.until(lambda: leader.now["first_index"] > was)
    catch_up("a new and empty member")

    joining, address = group.start_joining("n3")
    client = dledger.GroupClient("heavy", group.peers)
    change = partial(client.change, [dledger.AddVoter("n3", address)], timeout_s=30)
    changed: list[Any] = []

    def is_voter() -> bool:
        # On a busy machine it stays a learner at first, and goes on.
        with suppress(dledger.LearnerStalled, dledger.LearnerBehind):
            changed[:] = trio.run(change)
        return bool(changed)

    group.until(is_voter)
    index, members = changed
    assert members.voters == {"n0", "n1", "n2", "n3"}
    group.until(lambda: joining.now["newest_snapshot"] > 0)
    group.until(lambda: joining.now["applied"] > index)
    assert joining.now["proven"]
    assert joining.now["first_index"] > was
    for name, member in group.members.items():
        member.stop()
        assert scan_folder(str(group.folder / name)).verify() == [], member.errors
