"""Members of a real group that lose their disk, and come back under the same name."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dledger.free_ports import free_ports
from tests.dledger.commands.typed_command import Ended, dledger, tailed, typed

STARTED_WITHIN_S = 60.0


class Group:
    """`dledger serve` processes with a folder each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ports = free_ports(3)
        self.peers = ",".join(f"n{n}=127.0.0.1:{port}" for n, port in enumerate(ports))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.logs: dict[str, Path] = {}

    def start(self, name: str, *more: str, peers: str | None = None) -> None:
        self.logs[name] = self.folder / f"{name}.log"
        with self.logs[name].open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [
                    *(sys.executable, "-m", "dledger", "serve", "--group", "g", "--node", name),
                    *("--peers", peers or self.peers, "--dir", str(self.folder), *more),
                ],
                stdout=log,
                stderr=log,
            )

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def log(self, name: str) -> str:
        return self.logs[name].read_text()

    def command(self, command: str, *arguments: str) -> Ended:
        return typed(command, "--group", "g", "--peers", self.peers, *arguments)

    def status(self) -> dict[str, dict[str, object]]:
        found: dict[str, dict[str, object]] = json.loads(self.command("status", "--json").stdout)
        return found

    def wait(self, ready: Callable[[dict[str, dict[str, object]]], bool]) -> None:
        deadline = time.monotonic() + STARTED_WITHIN_S
        while not ready(self.status()):
            assert time.monotonic() < deadline, self.status()
            time.sleep(0.3)

    def until_logged(self, name: str, text: str) -> None:
        """Status may tell it a little earlier than the log does."""
        self.wait(lambda _: text in self.log(name))

    def append(self, *bodies: str) -> None:
        ended = self.command("append", *bodies)
        assert ended.returncode == 0, ended.stderr

    def bodies(self, until: str) -> list[str]:
        return tailed("--group", "g", "--peers", self.peers, until=until)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    running = Group(tmp_path)
    for name in ("n0", "n1", "n2"):
        running.start(name)
    yield running
    for name in list(running.processes):
        running.kill(name)


def all_proven(status: dict[str, dict[str, object]]) -> bool:
    ready = any(node.get("ready") for node in status.values())
    return ready and all(node.get("proven") is True for node in status.values())


def unproven(status: dict[str, dict[str, object]], name: str) -> bool:
    return status[name].get("proven") is False


def test_every_member_may_lose_its_disk_one_after_the_other(group: Group) -> None:
    group.wait(all_proven)
    for number, name in enumerate(("n0", "n1", "n2")):
        group.append(f"before-{number}")
        group.kill(name)
        shutil.rmtree(group.folder / f"dledger-{name}")
        group.append(f"without-{number}")
        group.start(name)
        group.wait(all_proven)
        group.until_logged(name, "is new or lost data")
        group.until_logged(name, "it votes and counts")
    assert group.bodies(until="without-2") == [
        f"{when}-{n}" for n in range(3) for when in ("before", "without")
    ]


@pytest.mark.long
def test_a_wiped_member_elects_nobody(group: Group) -> None:
    group.wait(all_proven)
    group.append("one")
    for name in ("n0", "n1", "n2"):
        group.kill(name)
    shutil.rmtree(group.folder / "dledger-n0")
    group.start("n0")
    group.start("n1")  # intact; but without n2 it may lack what n0 had
    group.wait(lambda status: unproven(status, "n0") and "problem" not in status["n1"])
    for _ in range(20):
        status = group.status()
        assert not status["n0"].get("ready")
        assert not status["n1"].get("ready")
        time.sleep(0.1)
    group.start("n2")
    group.wait(all_proven)
    assert group.bodies(until="one") == ["one"]


def test_a_member_that_lost_committed_entries_comes_back_after_rejoin(group: Group) -> None:
    group.wait(all_proven)
    group.append(*[f"body-{n}" for n in range(20)])
    last = max(int(str(node["last_index"])) for node in group.status().values())
    group.wait(lambda status: all(node["applied"] == last for node in status.values()))
    time.sleep(1.5)  # the commit index is recorded four times a second
    group.kill("n1")
    (segment,) = sorted((group.folder / "dledger-n1" / "data").iterdir())[:1]
    content = segment.read_bytes()
    segment.write_bytes(content[:500].ljust(len(content), b"\0"))
    group.start("n1")
    assert group.processes["n1"].wait(timeout=STARTED_WITHIN_S) == 1
    assert "dledger rejoin" in group.log("n1")
    folder = str(group.folder / "dledger-n1")
    said = dledger("rejoin", folder).stdout
    assert f"moved everything to {folder}/aside-1" in said
    group.start("n1")
    group.wait(all_proven)
    group.until_logged("n1", "neither votes nor counts")
    group.append("after")
    assert group.bodies(until="after") == [*[f"body-{n}" for n in range(20)], "after"]


@pytest.mark.long
def test_the_first_member_of_a_grown_group_comes_back_by_its_own_command(tmp_path: Path) -> None:
    group = Group(tmp_path / "data")
    group.folder.mkdir()
    addresses = dict(one.split("=") for one in group.peers.split(","))
    alone = {name: f"{name}={address}" for name, address in addresses.items()}
    try:
        group.start("n0", peers=alone["n0"])
        group.append("first")
        for name in ("n1", "n2"):
            group.start(name, "--join", peers=alone[name])
            ended = group.command("members", "--add", alone[name])
            assert ended.returncode == 0, ended.stderr
        for name in ("n0", "n1", "n2"):
            group.kill(name)
        shutil.rmtree(group.folder / "dledger-n0")
        group.start("n0", peers=alone["n0"])
        group.wait(lambda status: bool(status["n0"].get("not_begun")))
        assert not group.status()["n0"].get("ready")
        group.until_logged("n0", "n0 does not begin group g: the group has members besides")
        assert "n0 does not begin group g" in group.command("status").stdout
        for name in ("n1", "n2"):
            group.start(name, "--join", peers=alone[name])
        group.wait(all_proven)
        assert group.bodies(until="first") == ["first"]
    finally:
        for name in list(group.processes):
            group.kill(name)
