"""Networks of clients as text."""

import ipaddress
from collections.abc import Iterable
from typing import Final, TypeAlias

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


# IPv4 addresses in IPv6. Hosts with such an address are compared by their IPv4 one.
_MAPPED: Final = ipaddress.IPv6Network("::ffff:0:0/96")


def parse_network(text: str, *, strict: bool = True) -> Network:
    """Parse "10.0.0.0/8". IPv4 addresses that are mapped into IPv6 become IPv4.

    Raises ValueError: it is none, or, if `strict`, has bits behind its prefix.
    """
    network = ipaddress.ip_network(text, strict=strict)
    if isinstance(network, ipaddress.IPv6Network) and network.subnet_of(_MAPPED):
        address = network.network_address.packed[-4:]
        return ipaddress.IPv4Network((address, network.prefixlen - _MAPPED.prefixlen))
    return network


def parse_networks(text: str) -> tuple[Network, ...]:
    """Parse "10.0.0.0/8,127.0.0.1". Raises ValueError, whose text says what to give."""
    try:
        return tuple(parse_network(part.strip()) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise ValueError(f"{error}: give networks, as 10.0.0.0/8,127.0.0.1") from None


def is_in(host: str, networks: Iterable[Network]) -> bool:
    """Return whether an IP address is in one of these networks."""
    address = ipaddress.ip_address(host.partition("%")[0])
    address = getattr(address, "ipv4_mapped", None) or address
    return any(address in network for network in networks)
