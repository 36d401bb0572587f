"""Recognises protocols that programs speak by mistake at a port of remoting, by their first bytes.
Pure.

The first four bytes of each would announce a frame over the limit; those of the log's members, a
header longer than its frame.
"""

import struct
from typing import Final, NamedTuple

import msgspec


class OtherProtocol(NamedTuple):
    """A protocol that is not remoting.

    Attributes:
        name: of the protocol.
        advice: what to do.
        answer: what its programs understand as a refusal; empty where nothing is.
    """

    name: str
    advice: str
    answer: bytes = b""


def _bad_request(text: str) -> bytes:
    body = f"{text}\n".encode()
    head = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


_NO_HTTP: Final = "a broker answers GET /metrics at --metrics, and no HTTP here"
_HTTP: Final = OtherProtocol("HTTP", _NO_HTTP, _bad_request(f"RocketMQ's remoting: {_NO_HTTP}"))
_HTTP_SERVER: Final = OtherProtocol("HTTP", _NO_HTTP)


def _refused(text: str) -> bytes:
    """Return the log's refusal of a caller, which lasts; see `dledger.wire.handshake`."""
    header = msgspec.msgpack.encode(["refused", text, True, []])
    return struct.pack(">IH", 2 + len(header), len(header)) + header


_LOG_ADVICE: Final = (
    "members connect to one another, and the tools of the log to them, at the addresses in --peers"
)
_LOG: Final = OtherProtocol(
    "the protocol of the log's members",
    _LOG_ADVICE,
    _refused(f"this is a port for clients of RocketMQ: {_LOG_ADVICE}"),
)
# An array of six, and a text of five letters: "hello".
_LOG_AT: Final = 6
_LOG_BEGINS: Final = b"\x96\xa5"

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
        "clients that speak gRPC connect to a proxy: `dledger-mq proxy`",
    ),
    **dict.fromkeys((b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PATC"), _HTTP),
    b"HTTP": _HTTP_SERVER,
    b"PROX": _PROXY,
    b"\r\n\r\n": _PROXY,
    b"SSH-": OtherProtocol("SSH", "look at the port"),
    b"AMQP": OtherProtocol("AMQP", "use a client of RocketMQ"),
}


def other_protocol(beginning: bytes) -> OtherProtocol | None:
    """Return the protocol whose connections begin like this, from four bytes or more, or None.

    Only for bytes that are no frame: eight of them may be one that begins like the log's.
    """
    if beginning[_LOG_AT : _LOG_AT + 2] == _LOG_BEGINS:
        return _LOG
    return _BEGINNINGS.get(beginning[:4]) or _BEGINNINGS.get(beginning[:2])
