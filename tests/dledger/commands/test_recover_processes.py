"""A group of real processes that loses its quorum for good, and is begun again."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dledger.free_ports import free_ports
from tests.dledger.commands.typed_command import dledger, tailed, typed

WITHIN_S = 120.0


def wait(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.1)


class Machines:
    """Each member has a folder of its own, as on machines of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.addresses = {f"n{n}": f"127.0.0.1:{port}" for n, port in enumerate(free_ports(3))}
        self.peers = ",".join(f"{n}={a}" for n, a in self.addresses.items())
        self.last = -1
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def home(self, name: str) -> Path:
        return self.folder / name / f"dledger-{name}"

    def start(self, name: str, *options: str, peers: str | None = None) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [
                    *(sys.executable, "-m", "dledger", "serve", "--group", "g", "--node", name),
                    *("--peers", peers or self.peers, "--dir", str(self.folder / name), *options),
                ],
                stdout=log,
                stderr=log,
            )

    def kill(self, *names: str) -> None:
        for name in names:
            process = self.processes.pop(name)
            process.kill()
            process.wait()

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def says(self, name: str, text: str) -> bool:
        return text in self.log(name)

    def counts(self, leader: str, name: str) -> bool:
        return self.status(leader)["peers"][name]["proven"] is True

    def ended(self, name: str) -> int:
        return self.processes.pop(name).wait(WITHIN_S)

    def statuses(self, peers: str) -> dict[str, dict[str, Any]]:
        shown = typed("status", "--json", "--group", "g", "--peers", peers)
        found: dict[str, dict[str, Any]] = json.loads(shown.stdout)
        return found

    def status(self, name: str) -> dict[str, Any]:
        return self.statuses(f"{name}={self.addresses[name]}")[name]

    def all_have_everything(self) -> bool:
        found = self.statuses(self.peers).values()
        self.last = max(int(said.get("last_index", -1)) for said in found)
        return all(said.get("applied") == said.get("last_index") == self.last for said in found)

    def is_proven(self, name: str) -> bool:
        return self.status(name).get("proven") is True

    def append(self, name: str, *bodies: str) -> None:
        peers = f"{name}={self.addresses[name]}"
        dledger("append", "--group", "g", "--peers", peers, "--timeout", 30, *bodies)

    def bodies(self, name: str, until: str) -> list[str]:
        peers = f"{name}={self.addresses[name]}"
        return tailed("--group", "g", "--peers", peers, until=until)

    def recover(self, name: str) -> dict[str, object]:
        home = self.home(name)
        compared = json.loads(dledger("recover", "--compare", "--json", home).stdout)
        last = compared["folders"][0]["last_index"]
        done: dict[str, object] = json.loads(
            dledger(
                *("recover", home, "--peers", self.peers, "--json", "--accept-loss-after", last)
            ).stdout
        )
        return done


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    running = Machines(tmp_path)
    try:
        for name in running.addresses:
            running.start(name)
        dledger("append", "--group", "g", "--peers", running.peers, "--timeout", 60, "one", "two")
        wait(running.all_have_everything)
        yield running
    finally:
        running.kill(*running.processes)


def test_old_members_cannot_undo_a_recovery(
    machines: Machines,
) -> None:
    machines.kill("n0")
    dledger("append", "--group", "g", "--peers", machines.peers, "--timeout", 30, "lost")
    machines.kill("n1", "n2")
    done = machines.recover("n0")
    assert (done["generation"], done["kept_through"]) == (1, machines.last)
    machines.start("n0")
    machines.append("n0", "after")
    assert machines.bodies("n0", until="after") == ["one", "two", "after"]
    # Together they are a quorum of the old group. One of them led, and has what n0 lacks.
    machines.start("n1")
    machines.start("n2")
    assert (machines.ended("n1"), machines.ended("n2")) == (1, 1)
    assert "was recovered without n1" in machines.log("n1")
    assert "dledger rejoin" in machines.log("n2")
    wait(lambda: machines.says("n0", "it belongs to generation 0 of group g, this is 1"))
    assert machines.bodies("n0", until="after") == ["one", "two", "after"]
    assert machines.status("n0")["role"] == "leader"
    # What they hold is set aside, and they join as new members.
    for name in ("n1", "n2"):
        dledger("rejoin", machines.home(name))
        own = f"{name}={machines.addresses[name]}"
        machines.start(name, "--join", peers=own)
        dledger("members", "--group", "g", "--peers", machines.peers, "--add", own)
    machines.kill("n0")
    dledger("append", "--group", "g", "--peers", machines.peers, "--timeout", 30, "last")
    assert machines.bodies("n1", until="last") == ["one", "two", "after", "last"]
    assert machines.status("n1")["generation"] == 1
    machines.start("n0")
    wait(lambda: machines.status("n0").get("committed") == machines.status("n1")["committed"])
    machines.kill(*list(machines.processes))
    folders = [machines.home(name) for name in machines.addresses]
    assert "equal, entry by entry" in dledger("verify", *folders).stdout


@pytest.mark.long
def test_old_members_that_were_emptied_do_not_begin_a_new_group_beside_the_recovered_one(
    machines: Machines,
) -> None:
    machines.kill("n0", "n1", "n2")
    machines.recover("n0")
    machines.start("n0")
    machines.append("n0", "after")
    for name in ("n1", "n2"):
        shutil.rmtree(machines.home(name))
        machines.start(name)  # as ever, without --join: as its supervisor would
    for name in ("n1", "n2"):
        wait(partial(machines.says, name, "joins generation 1 of group g"))
    for _ in range(20):
        assert not any(machines.status(name).get("ready") for name in ("n1", "n2"))
        time.sleep(0.1)
    for name in ("n1", "n2"):
        own = f"{name}={machines.addresses[name]}"
        dledger("members", "--group", "g", "--peers", machines.peers, "--learner", own)
        wait(partial(machines.is_proven, name))
        # The leader hears of it with the next entry.
        dledger("append", "--group", "g", "--peers", machines.peers, f"for-{name}")
        wait(partial(machines.counts, "n0", name))
        dledger("members", "--group", "g", "--peers", machines.peers, "--promote", name)
    assert machines.bodies("n2", until="for-n2") == ["one", "two", "after", "for-n1", "for-n2"]


def test_recover_refuses_what_it_should(machines: Machines) -> None:
    home = machines.home("n0")
    runs = dledger("recover", home, "--peers", machines.peers, ok=False)
    assert "n0 at" in runs.stderr
    assert "it needs no recovery" in runs.stderr
    own = f"n0={machines.addresses['n0']}"
    machines.kill("n0")
    others = dledger("recover", home, "--peers", machines.peers, ok=False)
    assert "n1 at" in others.stderr
    # None of these leaves out the question whether the others run.
    own_address = ("--address", machines.addresses["n0"], "--accept-loss-after", machines.last)
    for options in ((), ("--peers", own), own_address):
        unnamed = dledger("recover", home, *options, ok=False)
        assert "--peers: the folder does not say where the members listen" in unnamed.stderr
        assert "(n0, n1, n2)" in unnamed.stderr
    machines.kill("n1", "n2")
    before = (home / "hard-state").read_bytes()
    unsaid = dledger("recover", home, "--peers", machines.peers, ok=False)
    assert f"MAY BE LOST    every entry after {machines.last}" in unsaid.stdout
    assert f"--accept-loss-after {machines.last}" in unsaid.stderr
    all_named = ("--peers", machines.peers)
    wrong = dledger("recover", home, *all_named, "--accept-loss-after", 0, ok=False)
    assert f"ends with entry {machines.last}, not 0" in wrong.stderr
    nowhere = dledger("recover", home, "--without-check", ok=False)
    assert "--address" in nowhere.stderr
    for refused in (runs, others, unsaid, wrong, nowhere):
        assert len(refused.stderr.splitlines()) == 1, refused.stderr
    assert (home / "hard-state").read_bytes() == before
    assert not (home / "generation").exists()
    dledger(
        *("recover", home, "--without-check", "--address", machines.addresses["n0"]),
        *("--accept-loss-after", machines.last),
    )
