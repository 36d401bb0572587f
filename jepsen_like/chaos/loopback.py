"""All processes of a run on 127.0.0.1, where no link can break."""

from __future__ import annotations

from collections.abc import Sequence

from dledger.free_ports import free_ports


class Loopback:
    """All processes on 127.0.0.1, and nothing between them that can break."""

    kind = "loopback"

    def __init__(self, hosts: Sequence[str], left_out: Sequence[str] = ()) -> None:
        self.left_out = left_out
        addresses = iter(f"127.0.0.1:{port}" for port in free_ports(3 * len(hosts)))
        self._addresses = {
            host: (next(addresses), next(addresses), next(addresses)) for host in hosts
        }

    def peer_address(self, source: str, target: str) -> str:
        """See Wiring."""
        return self._addresses[target][0]

    def port_address(self, target: str) -> str:
        """See Wiring."""
        return self._addresses[target][1]

    def group_address(self, target: str) -> str:
        """See Wiring."""
        return self._addresses[target][2]

    def listens(self, host: str) -> tuple[str, str]:
        """See Wiring."""
        return self._addresses[host][:2]

    def command(self, host: str, argv: Sequence[str]) -> list[str]:
        """See Wiring."""
        return list(argv)
