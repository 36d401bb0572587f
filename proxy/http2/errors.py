"""The errors of HTTP/2 and of calls. Each has one line."""

from dledger.declared_error import DeclaredError
from proxy.http2.status import Status


class ConnectionFault(DeclaredError):
    """The peer broke a rule, or a limit; the connection ends (RFC 9113, section 5.4.1).

    Attributes:
        code: an `ErrorCode`.
        reason: for the peer and the log.
    """

    code: int
    reason: str
    _template = "{reason}"


class StreamFault(DeclaredError):
    """The peer broke a rule of one stream, which is reset (RFC 9113, section 5.4.2).

    Attributes:
        stream_id: which.
        code: an `ErrorCode`.
        reason: for the log.
    """

    stream_id: int
    code: int
    reason: str
    _template = "stream {stream_id}: {reason}"


class CallEnded(DeclaredError):
    """The client of a call is gone: it reset the call, or its connection ended."""

    path: str
    _template = "the client of {path} has ended the call: send nothing more"


class GrpcStatus(DeclaredError):
    """A call ends with this status. Raised by routers.

    Attributes:
        code: one of gRPC's 17.
        message: for the client; may be empty.
    """

    code: Status
    message: str = ""

    def _text(self) -> str:
        return f"{Status(self.code).name}: {self.message}"
