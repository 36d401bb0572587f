"""Hosts in message records: four bytes of IPv4, or sixteen of IPv6."""

import ipaddress
from functools import lru_cache
from typing import Final

from remoting.message.errors import MessageMalformed

# The host in a record of a peer without an IPv4 address: C++ and JavaScript clients read only four
# bytes there.
NO_IPV4_HOST: Final = "0.0.0.0"

# One entry a client machine; the bound keeps a scan of addresses from filling memory.
_REMEMBERED_HOSTS: Final = 4096


@lru_cache(maxsize=_REMEMBERED_HOSTS)
def packed_host(host: str) -> bytes:
    """Return the four or sixteen bytes of a numeric address. Raises MessageMalformed."""
    try:
        return ipaddress.ip_address(host).packed
    except ValueError:
        raise MessageMalformed(
            f"{host!r:.80} is not a numeric address: resolve it before it goes into a record"
        ) from None


@lru_cache(maxsize=_REMEMBERED_HOSTS)
def unpacked_host(packed: bytes) -> str:
    return str(ipaddress.ip_address(packed))


@lru_cache(maxsize=_REMEMBERED_HOSTS)
def ipv4_host(host: str) -> str:
    """Return the IPv4 address to store for a peer: itself, the one mapped into IPv6, or 0.0.0.0.

    A record must hold IPv4 hosts, because C++ and JavaScript clients cannot read any other.
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return NO_IPV4_HOST
    if isinstance(address, ipaddress.IPv4Address):
        return host
    mapped = address.ipv4_mapped
    return NO_IPV4_HOST if mapped is None else str(mapped)
