"""The header of the PROXY protocol, version 2: the address of a relayed client. Pure.

Source: HAProxy's specification of the PROXY protocol, section 2.2.

===== ==== =============================================================================
 off  size value
===== ==== =============================================================================
   0   12  the signature
  12    1  version 2 in the high half; 0 LOCAL or 1 PROXY in the low half
  13    1  0x11 for TCP over IPv4, 0x21 for TCP over IPv6
  14    2  bytes that follow: addresses (12 or 36 bytes), then type-length-value fields
===== ==== =============================================================================

A member that passes a client on by TLS adds an empty field of its own type: the handshake that
follows is one between members, and then the member tells the names of the client. The type is one
of those that the specification leaves to users.
"""

import ipaddress
import struct
from typing import Final, NamedTuple

from remoting.net.address import Address
from remoting.wire.errors import RemotingError

SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"

# The first byte. No frame begins with it: its length would be over 16 MiB.
FIRST_BYTE: Final = SIGNATURE[:1]

# Addresses and some fields. The specification limits senders to this for IPv4 and IPv6.
MAX_HEADER_BYTES: Final = 536

_HEAD: Final = struct.Struct(">12sBBH")
HEAD_BYTES: Final = _HEAD.size
_LOCAL: Final = 0x20
_PROXY: Final = 0x21
_TCP4: Final = 0x11
_TCP6: Final = 0x21
_BY_MEMBER: Final = b"\xe0\x00\x00"  # a field: its type, and no bytes
_ADDRESS_BYTES: Final = {_TCP4: 4, _TCP6: 16}


class ProxyHeaderMalformed(RemotingError):
    """The first bytes from a relay are no PROXY header of version 2.

    Attributes:
        reason: what is wrong with it.
    """

    outcome_unknown = False

    reason: str
    _template = "no PROXY header of version 2 ({reason}): look at the relay in front"


class ProxyHeader(NamedTuple):
    """A decoded header.

    Attributes:
        client: the address of the client; None if the relay itself is the client (LOCAL), or for
            an address of another kind.
        by_member: whether a handshake between members follows.
    """

    client: Address | None
    by_member: bool = False


def encode_proxy_header(client: Address, server: Address, *, by_member: bool = False) -> bytes:
    """Encode the header for a client that connected to `server`.

    Args:
        client: its address.
        server: the address that it connected to.
        by_member: whether a handshake between members follows.

    Raises ValueError unless both have IP addresses of the same version.
    """
    source, target = ipaddress.ip_address(client.host), ipaddress.ip_address(server.host)
    if source.version != target.version:
        raise ValueError(f"{client} and {server} are of different kinds")
    family = _TCP4 if source.version == 4 else _TCP6
    ports = struct.pack(">HH", client.port, server.port)
    addresses = source.packed + target.packed + ports + (_BY_MEMBER if by_member else b"")
    return _HEAD.pack(SIGNATURE, _PROXY, family, len(addresses)) + addresses


def proxy_header_bytes(head: bytes) -> int:
    """Return the length of the header that begins with these HEAD_BYTES.

    Raises ProxyHeaderMalformed for another beginning, or a length above MAX_HEADER_BYTES.
    """
    signature, command, _family, length = _HEAD.unpack(head)
    if signature != SIGNATURE:
        raise ProxyHeaderMalformed("another signature")
    if command not in (_LOCAL, _PROXY):
        raise ProxyHeaderMalformed(f"version and command {command:#04x}")
    if HEAD_BYTES + length > MAX_HEADER_BYTES:
        raise ProxyHeaderMalformed(f"{HEAD_BYTES + length} bytes, more than {MAX_HEADER_BYTES}")
    return int(HEAD_BYTES + length)


def decode_proxy_header(header: bytes) -> ProxyHeader:
    """Decode a whole header. Raises ProxyHeaderMalformed."""
    if len(header) < HEAD_BYTES or len(header) != proxy_header_bytes(header[:HEAD_BYTES]):
        raise ProxyHeaderMalformed(f"{len(header)} bytes")
    _signature, command, family, length = _HEAD.unpack_from(header)
    size = _ADDRESS_BYTES.get(family)
    if command == _LOCAL or size is None:
        return ProxyHeader(None)
    if length < 2 * size + 4:
        raise ProxyHeaderMalformed(f"{length} bytes for the addresses of family {family:#04x}")
    host = str(ipaddress.ip_address(header[HEAD_BYTES : HEAD_BYTES + size]))
    (port,) = struct.unpack_from(">H", header, HEAD_BYTES + 2 * size)
    fields = header[HEAD_BYTES + 2 * size + 4 :]
    return ProxyHeader(Address(host, port), fields == _BY_MEMBER)
