"""The body of a no-op: which leader appended it, when, and (in entry 0) which birth it began.

A leader opens its term with a no-op. A msgpack array:

===== ========= ==============================================================================
 at   field     value
===== ========= ==============================================================================
   0  version   1; a later version may append fields
   1  leader    the member that appended the entry
   2  time_ms   its wall clock, milliseconds since 1970-01-01 UTC. Clocks of leaders differ, and
                may step: the time is for operators and tables, nothing else depends on it
   3  birth     in entry 0 the birth of the group, 16 bytes; in any other entry empty
===== ========= ==============================================================================

No-ops of Java DLedger, and of versions before this body, are empty.
"""

from __future__ import annotations

from typing import NamedTuple

import msgpack

VERSION = 1
BIRTH_BYTES = 16

# The birth of every group whose first entry names none: it began before births were recorded.
BEFORE_BIRTHS = bytes(BIRTH_BYTES)

# The name of the leader takes up to 127 bytes.
LONGEST_BYTES = 160

_FIELDS = 4
_MAX_LEADER_CHARACTERS = 64
_MAX_TIME_MS = 2**63 - 1


class NoopBody(NamedTuple):
    """See the table of the module."""

    leader: str
    time_ms: int
    birth: bytes = b""


def encode_noop_body(body: NoopBody) -> bytes:
    packed: bytes = msgpack.packb([VERSION, *body])
    return packed


def decode_noop_body(content: bytes | memoryview) -> NoopBody | None:
    """Decode the body of a no-op; None if this version cannot read it."""
    if not content:
        return None
    try:
        fields = msgpack.unpackb(content, strict_map_key=False)
    except (ValueError, TypeError, msgpack.UnpackException):  # TypeError: a list as a map's key
        return None
    if not isinstance(fields, list) or len(fields) < _FIELDS:
        return None
    version, leader, time_ms, birth = fields[:_FIELDS]
    if type(version) is not int or version < VERSION:
        return None
    if type(leader) is not str or not 0 < len(leader) <= _MAX_LEADER_CHARACTERS:
        return None
    if type(time_ms) is not int or not 0 <= time_ms <= _MAX_TIME_MS:
        return None
    if type(birth) is not bytes or len(birth) not in (0, BIRTH_BYTES):
        return None
    return NoopBody(leader, time_ms, birth)


def birth_of(content: bytes | memoryview) -> bytes:
    """Return the birth of the group whose entry 0 has this body."""
    body = decode_noop_body(content)
    return BEFORE_BIRTHS if body is None or not body.birth else body.birth
