"""Addresses of brokers, name servers and clients as text."""

from typing import Final, NamedTuple

from remoting.net.errors import AddressMalformed
from remoting.wire.field_values import read_natural

# The longest name that the domain name system has.
_MAX_HOST_CHARACTERS: Final = 253

_NO_HOST: Final = frozenset("[] ")


class Address(NamedTuple):
    """A host and a port. As text: "host:port", or "[host]:port" for IPv6."""

    host: str
    port: int

    def __str__(self) -> str:
        if ":" in self.host:
            return f"[{self.host}]:{self.port}"
        return f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Parse "host:port" or "[host]:port" with a port of 1 to 65535. Raises AddressMalformed."""
    host, colon, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise AddressMalformed(text)
    number = read_natural(port)
    if not colon or number is None or not 1 <= number <= 65535:
        raise AddressMalformed(text)
    if not 1 <= len(host) <= _MAX_HOST_CHARACTERS or not _NO_HOST.isdisjoint(host):
        raise AddressMalformed(text)
    if not host.isprintable():
        raise AddressMalformed(text)
    return Address(host, number)


def peer_address(socket_name: tuple[object, ...]) -> Address:
    """Return the address of a socket's peer; an IPv4 address mapped into IPv6 becomes IPv4."""
    host, port = str(socket_name[0]), socket_name[1]
    host = host.removeprefix("::ffff:") if "." in host else host
    return Address(host, port if isinstance(port, int) else 0)
