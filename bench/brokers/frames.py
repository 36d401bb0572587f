"""Frames of RocketMQ's protocol, cut from a stream without a look at what they hold."""

from __future__ import annotations

import re
import struct

from bench.one_run import RunFailed

_PREFIX = struct.Struct(">II")  # length of all that follows; of the header

CODE = re.compile(rb'"code":(\d+)')
OPAQUE = re.compile(rb'"opaque":(\d+)')
NEXT_OFFSET = re.compile(rb'"nextBeginOffset":"(\d+)"')


class Frames:
    """What a connection has received."""

    def __init__(self) -> None:
        self._received = bytearray()

    def take(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Header and body of each frame that is whole now."""
        found: list[tuple[bytes, bytes]] = []
        received, at = self._received, 0
        received += data
        while len(received) - at >= _PREFIX.size:
            total, header_bytes = _PREFIX.unpack_from(received, at)
            end = at + 4 + total
            if len(received) < end:
                break
            header_at = at + _PREFIX.size
            body_at = header_at + header_bytes
            found.append((bytes(received[header_at:body_at]), bytes(received[body_at:end])))
            at = end
        del received[:at]
        return found


def frame(header: bytes, body: bytes = b"") -> bytes:
    """A request with a header in JSON."""
    return _PREFIX.pack(4 + len(header) + len(body), len(header)) + header + body


def number(pattern: re.Pattern[bytes], header: bytes) -> int:
    """A number of a header. Raises RunFailed if it is not there."""
    found = pattern.search(header)
    if found is None:
        raise RunFailed(f"an answer without {pattern.pattern!r}: {header!r:.300}")
    return int(found[1])
