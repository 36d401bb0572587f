"""All processes of a run on 127.0.0.1, where no link can break."""

from __future__ import annotations

from collections.abc import Sequence

from dledger.free_ports import free_addresses
from jepsen_like.chaos.wiring import Addresses, Wiring


def loopback(hosts: Sequence[str], left_out: Sequence[str] = ()) -> Wiring:
    """Return hosts that are all this machine, without links that can break."""
    free = iter(free_addresses(len(Addresses._fields) * len(hosts)))
    addresses = {host: Addresses(next(free), next(free), next(free)) for host in hosts}
    return Wiring("loopback", addresses, lambda host, argv: list(argv), left_out)
