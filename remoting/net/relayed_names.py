"""The names of a client that a member passes on, told to the leader inside TLS. Pure.

===== ==== =============================================================================
 off  size value
===== ==== =============================================================================
   0    2  bytes that follow
   2       the names in UTF-8, in order, with a line feed after each
===== ==== =============================================================================
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from remoting.wire.errors import RemotingError

# Names of one client, and the characters of each: a DNS name has no more. Access control grants
# rights to names, so those left out grant none.
MAX_NAMES: Final = 32
MAX_NAME_CHARACTERS: Final = 253

_LENGTH: Final = struct.Struct(">H")
LENGTH_BYTES: Final = _LENGTH.size
_MAX_BYTES: Final = MAX_NAMES * (MAX_NAME_CHARACTERS * 4 + 1)


class NamesMalformed(RemotingError):
    """The names of a client that is passed on cannot be read."""

    outcome_unknown = False

    reason: str
    _template = "no names of a client ({reason}): give all members of the group one version"


def kept_names(names: Iterable[str]) -> frozenset[str]:
    """Return the names that count: printable, short, and the first few in order."""
    fit = {name for name in names if name.isprintable() and 0 < len(name) <= MAX_NAME_CHARACTERS}
    return frozenset(sorted(fit)[:MAX_NAMES])


def encode_names(names: frozenset[str]) -> bytes:
    """Encode names of `kept_names`."""
    text = "".join(f"{name}\n" for name in sorted(names)).encode()
    return _LENGTH.pack(len(text)) + text


def names_bytes(length: bytes) -> int:
    """Return how many bytes follow these LENGTH_BYTES. Raises NamesMalformed."""
    count = int.from_bytes(length, "big")
    if count > _MAX_BYTES:
        raise NamesMalformed(f"{count} bytes, more than {_MAX_BYTES}")
    return count


def decode_names(text: bytes) -> frozenset[str]:
    """Decode the bytes after the length. Raises NamesMalformed."""
    try:
        return kept_names(text.decode().split("\n"))
    except UnicodeDecodeError:
        raise NamesMalformed("no UTF-8") from None
