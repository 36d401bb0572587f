"""Frames of RocketMQ's protocol, cut from a stream without decoding them."""

from __future__ import annotations

import re
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from bench.one_run import RunFailed
from remoting.net.address import parse_address

# A pull that finds no message is answered within 20 seconds; then something is missing.
_TIMEOUT_S = 30.0
_RECEIVED_BYTES = 256 * 1024

_PREFIX = struct.Struct(">II")  # length of all that follows; of the header

CODE = re.compile(rb'"code":(\d+)')
OPAQUE = re.compile(rb'"opaque":(\d+)')
NEXT_OFFSET = re.compile(rb'"nextBeginOffset":"(\d+)"')


class Frames:
    def __init__(self) -> None:
        self._received = bytearray()

    def take(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Return header and body of each complete frame."""
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


@contextmanager
def connected(address: str, tls: ssl.SSLContext | None = None) -> Iterator[socket.socket]:
    """Connect to a broker. Raises RunFailed when the block raises OSError."""
    at = parse_address(address)
    try:
        with socket.create_connection((at.host, at.port), _TIMEOUT_S) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is None:
                yield connection
            else:
                with tls.wrap_socket(connection, server_hostname=at.host) as protected:
                    yield protected
    except OSError as error:
        raise RunFailed(f"the connection to {address}: {error}") from None


def received(connection: socket.socket) -> bytes:
    """Return some bytes. Raises RunFailed at the end of the stream."""
    data = connection.recv(_RECEIVED_BYTES)
    if not data:
        raise RunFailed("the broker has closed the connection")
    return data


def frame(header: bytes, body: bytes = b"") -> bytes:
    return _PREFIX.pack(4 + len(header) + len(body), len(header)) + header + body


def number(pattern: re.Pattern[bytes], header: bytes) -> int:
    """Return a number of a header. Raises RunFailed if it is missing."""
    found = pattern.search(header)
    if found is None:
        raise RunFailed(f"an answer without {pattern.pattern!r}: {header!r:.300}")
    return int(found[1])
