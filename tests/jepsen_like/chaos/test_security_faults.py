"""Faults of users and certificates: what is asked for, and what is noticed."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
import trio

from dledger.free_ports import free_addresses
from dledger_mq.clusters.certificate_folder import AUTHORITY, CLIENT, NAMESERVER, CertificateFolder
from dledger_mq.clusters.development_authority import (
    add_authority,
    make_certificates,
    renew_certificates,
)
from jepsen_like.chance import Chance
from jepsen_like.chaos.client_process import client_process
from jepsen_like.chaos.members.group import Group
from jepsen_like.chaos.nemeses.certificate_faults import CertificateFaults
from jepsen_like.chaos.nemeses.executor import Skipped
from jepsen_like.chaos.nemeses.process_faults import side_faults
from jepsen_like.chaos.nemeses.user_faults import user_faults
from jepsen_like.chaos.nemeses.user_orders import ALLOW_GUEST, DENY_GUEST, RENEW_SECRET
from jepsen_like.chaos.side_process import SideProcess
from jepsen_like.chaos.wiring import Addresses, Wiring
from tests.jepsen_like.chaos.run_process import run_in

NOBODY = cast(Group, None)


@pytest.fixture
def folder(tmp_path: Path) -> CertificateFolder:
    made = CertificateFolder(tmp_path / "certificates")
    make_certificates(made, ["n0"], [], 1, datetime.now(UTC))
    return made


def shake_hands(server: CertificateFolder, client: CertificateFolder) -> None:
    """One handshake in memory: a server by `server`, believed by the authorities of `client`."""
    serves = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serves.load_cert_chain(server.certificate("n0"), server.key("n0"))
    asks = ssl.create_default_context(cafile=str(client.certificate(AUTHORITY)))
    pipes = [ssl.MemoryBIO() for _ in range(2)]
    ends = [
        asks.wrap_bio(pipes[0], pipes[1], server_hostname="n0"),
        serves.wrap_bio(pipes[1], pipes[0], server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert ends[0].version() is not None


def copied(folder: CertificateFolder, path: Path) -> CertificateFolder:
    path.mkdir()
    for file in folder.path.iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    return CertificateFolder(path)


def test_renewed_certificates_are_others_of_the_same_authority(
    folder: CertificateFolder, tmp_path: Path
) -> None:
    earlier = copied(folder, tmp_path / "earlier")
    renew_certificates(folder, 1, datetime.now(UTC))
    for name in ("n0", NAMESERVER, CLIENT):
        was, now = (one.certificate(name).read_text() for one in (earlier, folder))
        assert was != now
        assert earlier.key(name).read_text() == folder.key(name).read_text()
    assert {file.name for file in folder.path.iterdir()} == {
        file.name for file in earlier.path.iterdir()
    }
    shake_hands(folder, earlier)
    shake_hands(earlier, folder)


def test_another_authority_is_believed_beside_the_first(
    folder: CertificateFolder, tmp_path: Path
) -> None:
    earlier = copied(folder, tmp_path / "earlier")
    add_authority(folder, datetime.now(UTC))
    shake_hands(folder, earlier)  # nothing is signed by it yet
    renew_certificates(folder, 1, datetime.now(UTC))
    shake_hands(folder, folder)
    shake_hands(earlier, folder)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(folder, earlier)


@pytest.mark.parametrize(
    ("kind", "orders"),
    [("renew-secret", [RENEW_SECRET]), ("take-rights", [DENY_GUEST, ALLOW_GUEST])],
)
async def test_users_are_changed_by_orders_to_the_clients(kind: str, orders: Sequence[str]) -> None:
    heard: list[str] = []

    async def change(order: str, timeout_s: float) -> bool:
        heard.append(order)
        return order != RENEW_SECRET

    carried_out = user_faults(change)["users"]
    async with carried_out(NOBODY, Chance(1, "users"), kind) as done:
        assert heard == orders[:1]
        assert done.effect() == {"answered": int(kind == "take-rights")}
    assert heard == orders


PROGRAM = """
import json, sys
for line in sys.stdin:
    print(json.dumps({"changed": line.strip()}), flush=True)
"""


async def test_a_change_waits_until_the_clients_have_made_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM]
    async with client_process(command, tmp_path / "clients.log") as clients:
        assert await clients.change(RENEW_SECRET, 30.0)
        assert await clients.change(RENEW_SECRET, 30.0)
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    async with client_process(command, tmp_path / "clients.log") as clients:
        assert not await clients.change(RENEW_SECRET, 0.05)


SERVER = """
import signal, socket, ssl, sys, time
host, port, certificate, key, reads = sys.argv[1:]
def context():
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(certificate, key)
    return made
made = [context()]
def read(*_):
    if reads == "reads":
        made[0] = context()
signal.signal(signal.SIGHUP, read)
listener = socket.create_server((host, int(port)))
print("listening on", port, flush=True)
while True:
    taken, _ = listener.accept()
    try:
        with made[0].wrap_socket(taken, server_side=True):
            pass
    except OSError:
        pass
"""


class OneMember:
    def __init__(self, process: SideProcess) -> None:
        self.name = "n0"
        self.status = {"role": "leader"}
        self.hang_up = process.hang_up


class OneGroup:
    healthy = True

    def __init__(self, process: SideProcess) -> None:
        self.present = [OneMember(process)]


@pytest.mark.parametrize("reads", ["reads", "does-not"])
async def test_a_server_that_shows_its_earlier_certificate_is_a_finding(
    reads: str, folder: CertificateFolder, tmp_path: Path
) -> None:
    addresses = free_addresses(2)
    hosts = {
        name: Addresses(address, address, address)
        for name, address in zip(("n0", "names"), addresses, strict=True)
    }
    wiring = Wiring("loopback", hosts, lambda host, argv: list(argv))

    def server(name: str, address: str, reads: str) -> SideProcess:
        files = str(folder.certificate(name)), str(folder.key(name))
        command = [sys.executable, "-c", SERVER, *address.split(":"), *files, reads]
        return SideProcess(name, command, tmp_path / f"{name}.log")

    member = server("n0", addresses[0], reads)
    name_server = server(NAMESERVER, addresses[1], "reads")
    found: list[str] = []
    faults = CertificateFaults(folder, wiring, name_server, found.append, lambda: datetime.now(UTC))
    carried_out = faults.executors["certificates"]
    group = cast(Group, OneGroup(member))
    with pytest.raises(Skipped, match="the name server begins"):
        async with carried_out(group, Chance(1, "x"), "renew-certificates"):
            pass
    async with trio.open_nursery() as nursery:
        nursery.start_soon(member.run)
        nursery.start_soon(name_server.run)
        with trio.fail_after(60):
            for process in (member, name_server):
                while not process.has_said("listening on"):  # noqa: ASYNC110
                    await trio.sleep(0.05)
        async with carried_out(group, Chance(1, "x"), "new-authority") as done:
            pass
        nursery.cancel_scope.cancel()
    assert done.targets == ("n0",)
    if reads == "reads":
        assert (found, done.effect()) == ([], {"renewed": 2})
    else:
        told = ["n0 shows an earlier certificate after it was renewed"]
        assert (found, done.effect()) == (told, {"renewed": 1})


@pytest.mark.long
def test_nothing_denied_is_stored_while_certificates_and_users_change(tmp_path: Path) -> None:
    nemeses = "certificates,users,kill"
    words = ("--workload", "guarded", "--nemesis", nemeses, "--time", "30", "--seed", "2")
    ended = run_in(tmp_path, *words, "--network", "none", "--out", "out")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "valid (guarded-queue)" in ended.stdout


class FakeProcess:
    def __init__(self, name: str) -> None:
        self.name = name
        self.heard: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda: self.heard.append(name)

    async def started(self) -> None: ...

    async def ended(self) -> None: ...

    def held_down(self) -> Any:
        return trio.CancelScope()


@pytest.mark.parametrize(
    ("kind", "hit", "heard"),
    [
        ("kill-proxy", 1, ["kill"]),
        ("stop-proxy", 1, ["stop"]),
        ("freeze-proxy", 1, ["freeze", "resume"]),
        ("kill-all-proxies", 2, ["kill"]),
    ],
)
async def test_a_fault_of_proxies_hits_one_or_all(kind: str, hit: int, heard: list[str]) -> None:
    processes = {name: FakeProcess(name) for name in ("proxy-0", "proxy-1", "name-server")}
    carried_out = side_faults(cast(dict[str, SideProcess], processes))["proxy"]
    async with carried_out(NOBODY, Chance(3, kind), kind) as done:
        assert len(done.targets) == hit
    assert [processes[name].heard for name in done.targets] == [heard] * hit
    assert processes["name-server"].heard == []
