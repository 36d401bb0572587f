"""`dledger serve --join` and `dledger members`, with real processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger.free_ports import free_ports
from tests.dledger.commands.typed_command import dledger, tailed


class Servers:
    """Processes of `dledger serve`, which end with their standard input."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[str]] = {}

    def serve(self, node_id: str, peers: str, *options: str) -> None:
        command = ["serve", "--node", node_id, "--peers", peers, "--dir", str(self.folder)]
        process = self.processes[node_id] = subprocess.Popen(
            [sys.executable, "-m", "dledger", *command, "--exit-with-stdin", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout is not None
        assert "listens on" in process.stdout.readline()

    def stop(self, node_id: str) -> None:
        self.processes.pop(node_id).communicate(timeout=20)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    running = Servers(tmp_path)
    yield running
    for node_id in list(running.processes):
        running.stop(node_id)


def test_a_node_joins_takes_over_and_the_first_one_leaves(servers: Servers) -> None:
    first, second = (f"n{at}=127.0.0.1:{port}" for at, port in enumerate(free_ports(2)))
    servers.serve("n0", first)
    dledger("append", "--peers", first, "before")
    servers.serve("n1", second, "--join")
    shown = dledger("members", "--peers", first, "--add", second).stdout
    assert "configuration" in shown
    assert [line.split()[2] for line in shown.splitlines() if line.strip()[:1] == "n"] != []
    found = json.loads(dledger("members", "--peers", first, "--json").stdout)
    assert found["voters"] == ["n0", "n1"]
    moved = dledger("members", "--peers", first, "--remove", "n0", "--expected", 0, ok=False)
    assert len(moved.stderr.splitlines()) == 1
    assert "look at the members again" in moved.stderr
    dledger("members", "--peers", first, "--remove", "n0", "--expected", found["index"])
    servers.stop("n0")
    found = json.loads(dledger("members", "--peers", second, "--json").stdout)
    assert (found["voters"], list(found["addresses"])) == (["n1"], ["n1"])
    assert tailed("--peers", second, until="before") == ["before"]
    refused = dledger("members", "--peers", second, "--promote", "n7", ok=False)
    assert refused.stderr.startswith("dledger: 'n7' is not a member")
    assert len(refused.stderr.splitlines()) == 1


def test_a_wrong_call_is_one_line() -> None:
    for arguments in (("--expected", 3), ("--add", "n1"), ("--move", "n1=nowhere")):
        ended = dledger("members", "--peers", "n0=127.0.0.1:1", *arguments, ok=False)
        assert len(ended.stderr.splitlines()) == 1, ended.stderr
