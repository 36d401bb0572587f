"""Recognises protocols that programs speak by mistake at a port of remoting, by their first bytes.
Pure.

The first four bytes of each would announce a frame over the limit.
"""

from typing import Final, NamedTuple


class OtherProtocol(NamedTuple):
    """A protocol that is not remoting.

    Attributes:
        name: of the protocol.
        advice: what to do.
    """

    name: str
    advice: str


_HTTP: Final = OtherProtocol("HTTP", "a broker answers GET /metrics at --metrics, and no HTTP here")
_PROXY: Final = OtherProtocol(
    "a PROXY header",
    "headers of version 2 are read, from hosts in a broker's --relays-from, at --listen",
)
# RocketMQ 5 accepts TLS and PROXY headers at the same port. b"HTTP" comes from a server.
_BEGINNINGS: Final = {
    b"\x16\x03": OtherProtocol(
        "TLS", "give this port --tls-cert and --tls-key, or the client tls.enable=false"
    ),
    b"PRI ": OtherProtocol(
        "HTTP/2, as gRPC has it",
        "use a client of RocketMQ 4, or of 5 that speaks remoting; or RocketMQ's proxy in front",
    ),
    **dict.fromkeys((b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"HTTP"), _HTTP),
    b"PROX": _PROXY,
    b"\r\n\r\n": _PROXY,
    b"SSH-": OtherProtocol("SSH", "look at the port"),
    b"AMQP": OtherProtocol("AMQP", "use a client of RocketMQ"),
}


def other_protocol(beginning: bytes) -> OtherProtocol | None:
    """Return the protocol whose connections begin like this, from four bytes or more, or None."""
    return _BEGINNINGS.get(beginning[:4]) or _BEGINNINGS.get(beginning[:2])
