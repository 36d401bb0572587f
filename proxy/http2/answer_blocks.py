"""The headers and trailers of answers, as blocks that no table is needed for. Pure."""

from functools import lru_cache
from typing import Final

from hpack.hpack import encode_integer

from proxy.http2.status import Status

# A longer text would pass what peers take as headers.
_MOST_MESSAGE_CHARACTERS: Final = 1000

# The place of `:status` 200 in the table, and that of the name for another value.
_STATUS_200: Final = b"\x88"
_STATUS: Final = b"\x08"
_PLAIN: Final = frozenset(range(0x20, 0x7F)) - {ord("%")}


def _literal(name: bytes, value: bytes) -> bytes:
    """Return a field that is not indexed (RFC 7541, section 6.2.2)."""
    return b"\0" + _text(name) + _text(value)


def _text(text: bytes) -> bytes:
    return bytes(encode_integer(len(text), 7)) + text


GRPC_HEADERS: Final = _STATUS_200 + _literal(b"content-type", b"application/grpc")
ACCEPTED_ENCODINGS: Final = _literal(b"grpc-accept-encoding", b"identity,gzip")


def http_refusal(code: int, length: int) -> bytes:
    """Return headers of an answer to a request that is not gRPC's."""
    return (
        _STATUS
        + _text(str(code).encode())
        + _literal(b"content-type", b"text/plain; charset=utf-8")
        + _literal(b"content-length", str(length).encode())
    )


@lru_cache(256)
def trailers(code: int, message: str = "") -> bytes:
    """Return the trailers of a call."""
    block = _literal(b"grpc-status", f"{code:d}".encode())
    if message:
        block += _literal(b"grpc-message", percent_encoded(message[:_MOST_MESSAGE_CHARACTERS]))
    return block


def trailers_only(code: int, message: str = "") -> bytes:
    """Return headers of a call that ends with them."""
    accepted = ACCEPTED_ENCODINGS if code == Status.UNIMPLEMENTED else b""
    return GRPC_HEADERS + accepted + trailers(code, message)


def percent_encoded(message: str) -> bytes:
    """Encode a message as gRPC says: UTF-8, of which all but printable ASCII, and `%`, as %XX."""
    return "".join(
        [
            chr(each) if each in _PLAIN else f"%{each:02X}"
            for each in message.encode("utf-8", "replace")
        ]
    ).encode()
