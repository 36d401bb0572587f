"""Networks of clients as text."""

import ipaddress
from collections.abc import Iterable
from typing import TypeAlias

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


def parse_networks(text: str) -> tuple[Network, ...]:
    """Parse "10.0.0.0/8,127.0.0.1". Raises ValueError, whose text says what to give."""
    try:
        return tuple(ipaddress.ip_network(part.strip()) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise ValueError(f"{error}: give networks, as 10.0.0.0/8,127.0.0.1") from None


def is_in(host: str, networks: Iterable[Network]) -> bool:
    """Return whether an IP address is in one of these networks."""
    address = ipaddress.ip_address(host.partition("%")[0])
    return any(address in network for network in networks)
