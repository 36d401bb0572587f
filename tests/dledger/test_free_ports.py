"""Ports for local groups: all different, kept clear of outgoing connections."""

from __future__ import annotations

import itertools
import socket
from pathlib import Path

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
