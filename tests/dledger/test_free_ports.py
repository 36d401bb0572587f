"""Ports for local groups: all different, kept clear of outgoing connections."""

from __future__ import annotations

import itertools
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE

import pytest

from dledger import free_ports as ports
from dledger.free_ports import END_PORT, FIRST_PORT, NoFreePort, free_addresses, free_ports


def test_two_calls_never_give_the_same_port() -> None:
    given = [*free_ports(20), *free_ports(20), *free_ports(1), *free_ports(1)]
    assert len(set(given)) == 42


def test_addresses_are_on_loopback() -> None:
    (address,) = free_addresses(1)
    host, port = address.split(":")
    assert host == "127.0.0.1"
    assert FIRST_PORT <= int(port) < END_PORT


def test_a_port_somebody_listens_on_is_passed_by(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, free = free_ports(2)
    monkeypatch.setattr(ports, "_walk", iter([taken, free]))
    with socket.create_server(("127.0.0.1", taken)):
        assert free_ports(1) == [free]


def test_a_machine_without_a_free_port_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    (taken,) = free_ports(1)
    monkeypatch.setattr(ports, "_walk", itertools.repeat(taken))
    with (
        socket.create_server(("127.0.0.1", taken)),
        pytest.raises(NoFreePort, match="does not have 1 free ports between"),
    ):
        free_ports(1)


def test_no_port_is_one_that_the_system_gives_to_outgoing_connections() -> None:
    setting = Path("/proc/sys/net/ipv4/ip_local_port_range")
    if not setting.exists():
        pytest.skip("only Linux says which ports those are")
    first = int(setting.read_text().split()[0])
    assert first >= END_PORT or first <= 1024, "a machine with a range of its own"


@pytest.fixture
def claims_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Claims of ports that no process outside of this test looks at."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    ports._claims.cache_clear()
    yield tmp_path
    ports._claims.cache_clear()


@pytest.mark.usefixtures("claims_folder")
def test_two_processes_are_never_given_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        "from dledger.free_ports import free_ports\n"
        "print(*free_ports(5), flush=True)\n"
        "input()\n"  # it runs, and no process listens on its ports yet
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=PIPE, stdout=PIPE, text=True
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        theirs = list(map(int, other.stdout.readline().split()))
        monkeypatch.setattr(ports, "_walk", iter([*theirs, *range(END_PORT - 1000, END_PORT)]))
        assert set(free_ports(20)).isdisjoint(theirs)
        other.stdin.write("\n")
    assert not any(map(ports._is_claimed, theirs))  # its claims have ended with it


def test_without_a_place_for_claims_there_are_ports_all_the_same(
    claims_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(claims_folder / "nowhere"))
    assert len(set(free_ports(3))) == 3
    assert ports._claims() is None


def test_the_port_beside_each_of_them_is_given_to_nobody() -> None:
    before, with_room, after = free_ports(3), free_ports(12, -2), free_ports(3)
    beside = {port - 2 for port in with_room}
    assert beside.isdisjoint([*before, *with_room, *after])
