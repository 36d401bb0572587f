"""Cuts the body of a request into gRPC's messages. Pure."""

import struct
import zlib
from collections import deque
from typing import Final

from proxy.http2.errors import GrpcStatus
from proxy.http2.status import Status

# Whether a message is compressed, and its length.
PREFIX: Final = struct.Struct(">BI")
PREFIX_BYTES: Final = 5

_GZIP_WINDOW_BITS: Final = 31


class MessageReader:
    """Messages of one call.

    Args:
        max_bytes: of a message, also once it is unpacked.
        is_gzip: the call says that its compressed messages are gzip.

    Attributes:
        held_bytes: of the incomplete message, as they came.
    """

    __slots__ = ("_chunks", "_is_gzip", "_max_bytes", "_messages", "held_bytes")

    def __init__(self, max_bytes: int, is_gzip: bool = False) -> None:
        self._max_bytes = max_bytes
        self._is_gzip = is_gzip
        self._chunks: list[bytes] = []
        self._messages: deque[tuple[bytes, int]] = deque()
        self.held_bytes = 0

    def feed(self, data: bytes) -> None:
        """Take a part of the body. Raises GrpcStatus: a message is too large, or cannot be read."""
        if self._chunks:
            self._chunks.append(data)
            self.held_bytes += len(data)
            if self.held_bytes < self._wanted():
                return
            data = b"".join(self._chunks)
            self._chunks = []
        at, end = 0, len(data)
        while end - at >= PREFIX_BYTES:
            flag, length = PREFIX.unpack_from(data, at)
            if length > self._max_bytes:
                raise _too_large(length, self._max_bytes)
            after = at + PREFIX_BYTES + length
            if after > end:
                break
            message = data[at + PREFIX_BYTES : after]
            self._messages.append((self._unpacked(flag, message), after - at))
            at = after
        self.held_bytes = end - at
        if self.held_bytes:
            self._chunks = [data[at:]]

    def _wanted(self) -> int:
        """Return how many bytes are needed before the incomplete message can be looked at again."""
        first = self._chunks[0]
        if len(first) < PREFIX_BYTES:
            return PREFIX_BYTES
        return PREFIX_BYTES + int.from_bytes(first[1:PREFIX_BYTES])

    def take(self) -> tuple[bytes, int] | None:
        """Return the next message, and how many bytes it came in; None if there is none yet."""
        return self._messages.popleft() if self._messages else None

    def _unpacked(self, flag: int, message: bytes) -> bytes:
        if not flag:
            return message
        if flag > 1 or not self._is_gzip:
            raise GrpcStatus(
                Status.INTERNAL, "a compressed message in a call without grpc-encoding"
            )
        unpacking = zlib.decompressobj(_GZIP_WINDOW_BITS)
        try:
            unpacked = unpacking.decompress(message, self._max_bytes + 1)
        except zlib.error as error:
            raise GrpcStatus(Status.INTERNAL, f"a message that is no gzip: {error}") from None
        if len(unpacked) > self._max_bytes:
            raise _too_large(len(unpacked), self._max_bytes)
        if not unpacking.eof:
            raise GrpcStatus(Status.INTERNAL, "a message whose gzip is cut off")
        return unpacked


def _too_large(length: int, most: int) -> GrpcStatus:
    text = f"a message of {length} bytes or more: at most {most} are taken"
    return GrpcStatus(Status.RESOURCE_EXHAUSTED, text)
