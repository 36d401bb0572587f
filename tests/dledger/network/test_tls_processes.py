"""A group of real processes that speak TLS, with the commands that people use."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger.command_line.ending import ExitCode
from dledger.free_ports import free_ports
from dledger.network.tls_config import TlsConfig
from tests.dledger.commands.typed_command import dledger, tailed, typed
from tests.dledger.network.certificates import Authority, options

NAMES = ("n0", "n1", "n2")

# What a member logs once it listens to signals: before that, SIGHUP would end it.
LISTENS = "(follower|leader) of term"


class Members:
    """Three `dledger serve` processes, each with its own certificate."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder / "authority")
        self.certificates = {name: self.authority.sign(name) for name in NAMES}
        self.tool = self.authority.sign("tool")
        addresses = [f"127.0.0.1:{port}" for port in free_ports(len(NAMES))]
        self.peers = ",".join(map("=".join, zip(NAMES, addresses, strict=True)))
        self.processes: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str, tls: TlsConfig | None) -> None:
        with self.log(name).open("a") as log:
            self.processes[name] = subprocess.Popen(
                [
                    *(sys.executable, "-m", "dledger", "serve", "--node", name),
                    *("--peers", self.peers, "--dir", str(self.folder / name), "--new"),
                    *(options(tls) if tls is not None else []),
                ],
                stdout=log,
                stderr=log,
                text=True,
            )

    def start_all(self) -> None:
        for name, tls in self.certificates.items():
            self.start(name, tls)

    def stop(self, name: str) -> None:
        process = self.processes.pop(name)
        process.terminate()
        process.wait(timeout=20)

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.wait(timeout=20)

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def ask(self, command: str, *arguments: object, ok: bool = True) -> str:
        asked = (command, "--peers", self.peers, *options(self.tool), *arguments)
        ended = dledger(*asked, ok=ok)
        return ended.stdout if ok else ended.stderr

    def append(self, line: str) -> None:
        """Append a line, again if the leader was lost meanwhile: a member has just restarted."""
        asked = ("append", "--peers", self.peers, *options(self.tool), line)
        deadline = time.monotonic() + 40
        while (ended := typed(*asked)).returncode:
            assert ended.returncode == ExitCode.OUTCOME_UNKNOWN, ended.stdout + ended.stderr
            assert time.monotonic() < deadline, ended.stderr

    def until_logged(self, name: str, pattern: str, behind: int = 0) -> None:
        """Wait for a line of a member behind so many characters of its log."""
        deadline = time.monotonic() + 20
        while not re.search(pattern, self.log(name).read_text()[behind:]):
            assert time.monotonic() < deadline, self.log(name).read_text()
            time.sleep(0.05)

    def until_applied(self, name: str, entries: int) -> None:
        deadline = time.monotonic() + 40
        while True:
            found = json.loads(self.ask("status", "--json"))[name]
            if found.get("proven") and found.get("applied", -1) >= entries - 1:
                return
            assert time.monotonic() < deadline, found
            time.sleep(0.2)

    def leader(self) -> str:
        status = json.loads(self.ask("status", "--json"))
        return next(str(name) for name, found in status.items() if found.get("ready"))


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    made = Members(tmp_path)
    yield made
    for name in list(made.processes):
        made.kill(name)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    """A group for all tests that leave its members running."""
    made = Members(tmp_path_factory.mktemp("running"))
    made.start_all()
    yield made
    for name in list(made.processes):
        made.kill(name)


def test_a_group_that_speaks_tls_loses_its_leader_and_goes_on(running: Members) -> None:
    members = running
    members.ask("append", "one", "two")
    leader = members.leader()
    members.kill(leader)
    third = int(members.ask("append", "three").split("\t")[0])
    bodies = tailed("--peers", members.peers, *options(members.tool), until="three")
    assert bodies[-3:] == ["one", "two", "three"]
    members.start(leader, members.certificates[leader])
    members.until_applied(leader, third + 1)


def test_whom_a_group_does_not_believe_it_does_not_serve(running: Members) -> None:
    members = running
    members.append("something")
    leader = members.leader()
    stranger = Authority(members.folder / "stranger").sign("tool")
    expired = members.authority.sign("expired", days=-1)
    status = ("status", "--peers", members.peers, "--json")
    for arguments in ([], options(stranger), options(expired)):
        found = json.loads(dledger(*status, *arguments).stdout)
        assert all("problem" in member for member in found.values())
    append = ("append", "--peers", members.peers, "--timeout", "0.1")
    refused = dledger(*append, "x", ok=False).stderr
    assert "TLS is spoken here: give a certificate" in refused
    refused = dledger(*append, *options(stranger), "x", ok=False).stderr
    assert "its certificate is not believed" in refused
    members.until_logged(leader, "refused a caller from 127.0.0.1:.*: it does not speak TLS")
    assert json.loads(members.ask("status", "--json"))[leader]["refused_callers"] >= 3
    members.ask("append", "four")


def test_a_member_with_the_name_of_another_or_without_a_certificate_is_no_member(
    members: Members,
) -> None:
    for name in ("n0", "n1"):
        members.start(name, members.certificates[name])
    members.ask("append", "one")
    # Its own certificate does not name it: it says so and ends.
    members.start("n2", members.authority.sign("n7"))
    assert members.processes.pop("n2").wait(timeout=20) == 1
    assert "n7.pem is that of n7, not of n2" in members.log("n2").read_text()
    # Without TLS it runs, and nobody talks to it.
    members.start("n2", None)
    members.until_logged("n2", "the other side speaks TLS and this one does not")
    members.until_logged("n2", "TLS is spoken here: give a certificate")
    for name in ("n0", "n1"):
        members.until_logged(name, "refused a caller .* it does not speak TLS")
        members.until_logged(name, "peers at .*: it does not speak TLS: give certificates to all")
    members.stop("n2")
    members.start("n2", members.certificates["n2"])
    members.until_applied("n2", 1)


def test_certificates_are_read_again_on_sighup_member_by_member(members: Members) -> None:
    members.start_all()
    members.ask("append", "one")
    n0 = members.certificates["n0"]
    good = n0.certificate.read_text()
    n0.certificate.write_text("no certificate")
    members.until_logged("n0", LISTENS)
    members.processes["n0"].send_signal(signal.SIGHUP)
    members.until_logged("n0", r"the old certificates stay in use: .*n0\.pem")
    n0.certificate.write_text(good)
    for name in NAMES:
        members.authority.sign(name)  # a new key, over the old one
        members.processes[name].send_signal(signal.SIGHUP)
        members.until_logged(name, "certificates were read again")
        # One side has its new certificate, the other not yet: a restart dials everybody anew.
        restarted = NAMES[NAMES.index(name) - 1]
        members.stop(restarted)
        before = len(members.log(restarted).read_text())
        members.start(restarted, members.certificates[restarted])
        members.until_logged(restarted, LISTENS, before)
        members.append(f"after {name}")


def test_certificates_come_from_the_environment_and_all_parts_are_needed(
    running: Members,
) -> None:
    members = running
    members.append("five")
    tool = members.tool
    environment = {
        "DLEDGER_TLS_CERT": str(tool.certificate),
        "DLEDGER_TLS_KEY": str(tool.key),
        "DLEDGER_TLS_CA": str(tool.authorities),
    }
    status = ("status", "--peers", members.peers, "--json")
    found = json.loads(dledger(*status, environment=environment).stdout)
    assert all("role" in member for member in found.values())
    del environment["DLEDGER_TLS_KEY"]
    refused = dledger(*status, ok=False, environment=environment).stderr
    assert refused == (
        "dledger: --tls-key: is missing: TLS takes a certificate, its key and authorities\n"
    )


def test_a_whole_group_on_this_machine_speaks_tls_with_one_certificate(tmp_path: Path) -> None:
    both = options(Authority(tmp_path / "authority").sign("n0", "n1", "n2"))
    folder = tmp_path / "group"
    with subprocess.Popen(
        [sys.executable, "-m", "dledger", "group", "--dir", str(folder), *both],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as group:
        assert group.stdout is not None
        try:
            assert any(line.startswith("ready") for line in group.stdout)
            dledger("append", "--dir", folder, *both, "one")
            dledger("append", "--dir", folder, "--timeout", "0.1", "two", ok=False)
        finally:
            group.send_signal(signal.SIGINT)
            group.communicate(timeout=30)
