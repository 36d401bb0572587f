"""Where the processes of a run listen, and how they reach one another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

CLIENTS_HOST = "clients"
NAMESERVER_HOST = "names"
BALANCER_HOST = "balancer"
PROXY_HOSTS = ("proxy-0", "proxy-1")


class Addresses(NamedTuple):
    """The addresses of a host, each as host:port.

    Attributes:
        peer: where its member takes other members.
        clients: where it takes clients.
        group: where it takes clients of the whole group.
    """

    peer: str
    clients: str
    group: str


@dataclass(frozen=True)
class Wiring:
    """The network of a run, as its processes see it.

    `command` returns the command that runs a command on a host. `left_out` are faults that cannot
    be made on this machine, and why.
    """

    kind: str
    addresses: Mapping[str, Addresses]
    command: Callable[[str, Sequence[str]], list[str]]
    left_out: Sequence[str] = ()

    def peers(self, hosts: Sequence[str]) -> dict[str, str]:
        """Return the addresses at which these hosts take other members."""
        return {host: self.addresses[host].peer for host in hosts}
