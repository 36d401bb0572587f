"""Where the processes of a run listen, and how they reach one another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dledger.free_ports import free_ports

CLIENTS_HOST = "clients"


class Wiring(Protocol):
    """The network of a run, as its processes see it."""

    @property
    def kind(self) -> str:
        """How it is made."""

    @property
    def left_out(self) -> Sequence[str]:
        """What cannot be broken on this machine, and why."""

    def peer_address(self, source: str, target: str) -> str:
        """host:port at which the node on one host reaches that of another."""

    def port_address(self, target: str) -> str:
        """host:port at which clients reach the port of a member."""

    def listens(self, host: str) -> tuple[str, str]:
        """host:port where a member listens for members, and for clients."""

    def command(self, host: str, argv: Sequence[str]) -> list[str]:
        """What runs a command on a host."""


class Loopback:
    """All processes on 127.0.0.1, and nothing between them that can break."""

    kind = "loopback"

    def __init__(self, hosts: Sequence[str], left_out: Sequence[str] = ()) -> None:
        self.left_out = left_out
        ports = iter(free_ports(2 * len(hosts)))
        self._addresses = {
            host: (f"127.0.0.1:{next(ports)}", f"127.0.0.1:{next(ports)}") for host in hosts
        }

    def peer_address(self, source: str, target: str) -> str:
        """See Wiring."""
        return self._addresses[target][0]

    def port_address(self, target: str) -> str:
        """See Wiring."""
        return self._addresses[target][1]

    def listens(self, host: str) -> tuple[str, str]:
        """See Wiring."""
        return self._addresses[host]

    def command(self, host: str, argv: Sequence[str]) -> list[str]:
        """See Wiring."""
        return list(argv)
