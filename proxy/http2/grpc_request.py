"""What the head of a request says to gRPC. Pure."""

from typing import Final, NamedTuple

from proxy.http2.errors import GrpcStatus
from proxy.http2.request_head import RequestHead
from proxy.http2.status import Status
from remoting.wire.field_values import read_natural

_GRPC: Final = b"application/grpc"
_SECONDS: Final = {72: 3600.0, 77: 60.0, 83: 1.0, 109: 1e-3, 117: 1e-6, 110: 1e-9}  # H M S m u n
_MOST_DIGITS: Final = 8


class HttpRefusal(NamedTuple):
    """A request that is not gRPC's gets an answer of HTTP."""

    code: int
    text: str


class GrpcRequest(NamedTuple):
    """A call.

    Attributes:
        timeout_s: None without one.
        is_gzip: its compressed messages are gzip.
    """

    timeout_s: float | None
    is_gzip: bool


def grpc_request(head: RequestHead) -> GrpcRequest | HttpRefusal:
    """Return what a head says. Raises GrpcStatus: the call cannot be served."""
    content_type = timeout = encoding = None
    for name, value in head.fields:
        if name == b"content-type":
            content_type = value
        elif name == b"grpc-timeout":
            timeout = value
        elif name == b"grpc-encoding":
            encoding = value
    if content_type is None or not _is_grpc(content_type):
        return HttpRefusal(415, "this port speaks gRPC: the content-type must be application/grpc")
    if head.method != b"POST":
        return HttpRefusal(405, "this port speaks gRPC: the method must be POST")
    if encoding not in (None, b"identity", b"gzip"):
        raise GrpcStatus(
            Status.UNIMPLEMENTED,
            "messages may be compressed by gzip, or not at all: see grpc-encoding",
        )
    timeout_s = None if timeout is None else _timeout_s(timeout)
    return GrpcRequest(timeout_s, encoding == b"gzip")


def _is_grpc(content_type: bytes) -> bool:
    return content_type == _GRPC or (
        content_type.startswith(_GRPC) and content_type[len(_GRPC) : len(_GRPC) + 1] in (b"+", b";")
    )


def _timeout_s(text: bytes) -> float:
    scale = _SECONDS.get(text[-1]) if text else None
    number = read_natural(text[:-1].decode("latin-1"))
    if scale is None or number is None or len(text) > _MOST_DIGITS + 1:
        raise GrpcStatus(Status.INVALID_ARGUMENT, "grpc-timeout: 1 to 8 digits and one of HMSmun")
    return number * scale
