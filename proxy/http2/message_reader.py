"""Cuts the body of a request into gRPC's messages. Pure."""

import struct
import zlib
from typing import Final

from proxy.http2.errors import GrpcStatus
from proxy.http2.status import Status

# Whether a message is compressed, and its length.
PREFIX: Final = struct.Struct(">BI")
PREFIX_BYTES: Final = 5

_GZIP_WINDOW_BITS: Final = 31


class MessageReader:
    """Messages of one call. They are cut when they are asked for: small ones take more as objects.

    Args:
        max_bytes: of a message, also once it is unpacked.
        is_gzip: the call says that its compressed messages are gzip.
    """

    __slots__ = ("_at", "_data", "_is_gzip", "_max_bytes")

    def __init__(self, max_bytes: int, is_gzip: bool = False) -> None:
        self._max_bytes = max_bytes
        self._is_gzip = is_gzip
        self._data: bytes | bytearray = b""
        self._at = 0

    @property
    def held_bytes(self) -> int:
        """What came, and belongs to no message that was taken."""
        return len(self._data) - self._at

    def feed(self, data: bytes) -> None:
        """Take a part of the body."""
        if self._at == len(self._data):
            self._data, self._at = data, 0
            return
        if isinstance(self._data, bytes):
            self._data = bytearray(self._data)
        del self._data[: self._at]
        self._at = 0
        self._data += data

    def take(self) -> bytes | None:
        """Return the next message, or None if it is not there yet.

        Raises GrpcStatus: it is too large, or cannot be read.
        """
        held_bytes = self.held_bytes
        if held_bytes < PREFIX_BYTES:
            return None
        flag, length = PREFIX.unpack_from(self._data, self._at)
        if length > self._max_bytes:
            raise _too_large(length, self._max_bytes)
        if held_bytes < PREFIX_BYTES + length:
            return None
        begin = self._at + PREFIX_BYTES
        self._at = begin + length
        message = bytes(self._data[begin : self._at])
        if self._at == len(self._data):
            self._data, self._at = b"", 0
        return self._unpacked(message) if flag else message

    def _unpacked(self, message: bytes) -> bytes:
        if not self._is_gzip:
            raise GrpcStatus(Status.INTERNAL, "a compressed message without a grpc-encoding")
        unpacking = zlib.decompressobj(_GZIP_WINDOW_BITS)
        try:
            unpacked = unpacking.decompress(message, self._max_bytes + 1)
        except zlib.error:
            raise GrpcStatus(Status.INTERNAL, "a message that is no gzip") from None
        if len(unpacked) > self._max_bytes:
            raise _too_large(len(unpacked), self._max_bytes)
        if not unpacking.eof:
            raise GrpcStatus(Status.INTERNAL, "a message whose gzip is cut off")
        return unpacked


def _too_large(length: int, most: int) -> GrpcStatus:
    text = f"a message of {length} bytes or more: at most {most} are taken"
    return GrpcStatus(Status.RESOURCE_EXHAUSTED, text)
