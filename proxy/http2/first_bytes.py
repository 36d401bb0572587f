"""Answers clients that speak something else than HTTP/2. Pure."""

from typing import Final, NamedTuple

_METHODS: Final = (b"GET ", b"POST ", b"PUT ", b"HEAD ", b"OPTIONS ", b"DELETE ", b"PATCH ")


class FirstAnswer(NamedTuple):
    """What to answer, and what to tell the operator."""

    answer: bytes
    advice: str


def answer_to(first_bytes: bytes) -> FirstAnswer:
    """Return the answer to a connection that begins with no preface of HTTP/2."""
    if first_bytes.startswith(_METHODS):
        advice = "this port speaks gRPC, over HTTP/2 without an upgrade from HTTP/1.1"
        body = f"{advice}\n".encode()
        head = (
            "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        return FirstAnswer(head.encode() + body, advice)
    if first_bytes.startswith(b"\x16\x03"):
        return FirstAnswer(
            b"", "it speaks TLS: give this port a certificate, or switch the client's off"
        )
    return FirstAnswer(b"", "it does not speak HTTP/2: this port is for gRPC")
