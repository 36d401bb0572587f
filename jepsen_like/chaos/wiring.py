"""Where the processes of a run listen, and how they reach one another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

CLIENTS_HOST = "clients"
NAMESERVER_HOST = "names"
BALANCER_HOST = "balancer"


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

    def group_address(self, target: str) -> str:
        """host:port at which a member takes clients of the whole group."""

    def listens(self, host: str) -> tuple[str, str]:
        """host:port where a member listens for members, and for clients."""

    def command(self, host: str, argv: Sequence[str]) -> list[str]:
        """What runs a command on a host."""
