"""The head of a request, by the rules of RFC 9113, sections 8.2 and 8.3. Pure."""

import re
from functools import lru_cache
from typing import Final

from proxy.http2.errors import StreamFault
from proxy.http2.field_decoder import Fields
from proxy.http2.frames import ErrorCode
from remoting.wire.field_values import read_natural

_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_BAD_VALUE: Final = re.compile(rb"[\0\r\n]")

# Of HTTP/1.1, about a connection and not a request.
_OF_CONNECTIONS: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
)
_PSEUDO: Final = frozenset({b":method", b":scheme", b":path", b":authority"})

# Clients have a dozen names each; a hostile one fills the memory of names with what is forgotten.
_NAMES_REMEMBERED: Final = 1024


@lru_cache(_NAMES_REMEMBERED)
def _may_be_named(name: bytes) -> bool:
    return _NAME.fullmatch(name) is not None and name not in _OF_CONNECTIONS


class RequestHead:
    """Pseudo-headers, and those that HTTP/2 or gRPC itself reads. The rest is among `fields`.

    Attributes:
        method: `:method`.
        path: `:path`.
        fields: all regular headers, in their order.
        content_length: None if absent.
    """

    __slots__ = ("content_length", "fields", "method", "path")

    def __init__(self, method: bytes, path: bytes, fields: Fields) -> None:
        self.method = method
        self.path = path
        self.fields = fields
        self.content_length: int | None = None


def request_head(stream_id: int, fields: Fields) -> RequestHead:
    """Check the fields of a request. Raises StreamFault: it is malformed."""
    pseudo: dict[bytes, bytes] = {}
    length: bytes | None = None
    at = 0
    for name, value in fields:
        if name[:1] != b":":
            break
        if name not in _PSEUDO or name in pseudo:
            raise _malformed(stream_id, "has a pseudo-header that is unknown or stands twice")
        pseudo[name] = value
        at += 1
    regular = fields[at:]
    for name, value in regular:
        if not _may_be_named(name):
            raise _malformed(stream_id, "has a header that may not stand there")
        if name == b"content-length":
            length = value
        elif name == b"te" and value != b"trailers":
            raise _malformed(stream_id, "has a te header other than trailers")
    _check_values(stream_id, fields)
    method, path = pseudo.get(b":method"), pseudo.get(b":path")
    if not method or not path or not pseudo.get(b":scheme"):
        raise _malformed(stream_id, "lacks :method, :scheme or :path")
    head = RequestHead(method, path, regular)
    if length is not None:
        head.content_length = read_natural(length.decode("latin-1"))
        if head.content_length is None:
            raise _malformed(stream_id, "has a content-length that is no number")
    return head


def check_trailers(stream_id: int, fields: Fields) -> None:
    """Check the fields that end a request. Raises StreamFault: they are malformed."""
    for name, _value in fields:
        if not _may_be_named(name):
            raise _malformed(stream_id, "has a trailer that may not stand there")
    _check_values(stream_id, fields)


def _check_values(stream_id: int, fields: Fields) -> None:
    if _BAD_VALUE.search(b" ".join([value for _name, value in fields])):
        raise _malformed(stream_id, "has a header with a line break or a zero")


def _malformed(stream_id: int, reason: str) -> StreamFault:
    return StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, f"the request {reason}")
