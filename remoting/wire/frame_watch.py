"""Decodes the headers of relayed frames from pieces, without keeping their bodies. Pure."""

import struct
from typing import Final

from remoting.wire.command import Command, HeaderFormat
from remoting.wire.errors import FrameError
from remoting.wire.frame import MAX_FRAME_BYTES, MAX_HEADER_BYTES
from remoting.wire.header_binary import decode_binary_header
from remoting.wire.header_json import decode_json_header

_PREFIX: Final = struct.Struct(">II")

# The longest frame that is kept whole.
MAX_KEPT_BYTES: Final = 64 * 1024

# Several hundred headers at most, which take a few milliseconds to decode.
_HEADERS_BYTES: Final = 16 * 1024
_BODY_BYTES: Final = 64 * 1024


class FrameWatch:
    """One direction of a connection.

    Args:
        kept_code: the newest whole request of this code is kept; None keeps nothing.

    Attributes:
        is_lost: whether the stream had bytes that are no frame, so that nothing more is known.
        kept: the newest frame of `kept_code`, up to MAX_KEPT_BYTES.
    """

    def __init__(self, kept_code: int | None = None) -> None:
        self.is_lost = False
        self.kept: bytes | None = None
        self._kept_code = kept_code
        self._head = bytearray()  # an incomplete prefix and header
        self._body_bytes = 0  # of the present frame, still to come
        self._keeping: bytearray | None = None

    @property
    def is_between_frames(self) -> bool:
        """Whether the last frame that began has passed whole."""
        return not (self._head or self._body_bytes or self.is_lost)

    @property
    def bytes_at_once(self) -> int:
        """The size of the next read: much of a long body, but few headers, as each is decoded."""
        return _BODY_BYTES if self._body_bytes > _HEADERS_BYTES else _HEADERS_BYTES

    def pass_by(self, data: bytes) -> list[Command]:
        """Take bytes; return commands without bodies for the headers that they complete."""
        found: list[Command] = []
        at = 0
        while at < len(data) and not self.is_lost:
            at = self._skip(data, at) if self._body_bytes else self._take_head(data, at, found)
        return found

    def _skip(self, data: bytes, at: int) -> int:
        end = min(at + self._body_bytes, len(data))
        self._body_bytes -= end - at
        if self._keeping is not None:
            self._keeping += data[at:end]
            self._end_keeping()
        return end

    def _take_head(self, data: bytes, at: int, found: list[Command]) -> int:
        head = self._head
        wanted = _PREFIX.size
        if len(head) >= wanted:
            wanted += _PREFIX.unpack_from(head)[1] & 0xFFFFFF
        end = min(at + wanted - len(head), len(data))
        head += data[at:end]
        if len(head) < wanted:
            return end
        total, second = _PREFIX.unpack_from(head)
        header_bytes = second & 0xFFFFFF
        if (
            total > MAX_FRAME_BYTES
            or header_bytes + 4 > total
            or header_bytes > MAX_HEADER_BYTES
            or second >> 24 > HeaderFormat.BINARY
        ):
            self.is_lost = True
        elif len(head) == _PREFIX.size + header_bytes:
            self._end_head(total, second, found)
        return end

    def _end_head(self, total: int, second: int, found: list[Command]) -> None:
        header = bytes(self._head[_PREFIX.size :])
        is_json = second >> 24 == HeaderFormat.JSON
        try:
            command = (decode_json_header if is_json else decode_binary_header)(header, b"")
        except FrameError:
            self.is_lost = True
            return
        found.append(command)
        self._body_bytes = total - 4 - len(header)
        if command.code == self._kept_code and not command.is_response and total < MAX_KEPT_BYTES:
            self._keeping = bytearray(self._head)
            self._end_keeping()
        self._head.clear()

    def _end_keeping(self) -> None:
        if self._keeping is not None and not self._body_bytes:
            self.kept = bytes(self._keeping)
            self._keeping = None
