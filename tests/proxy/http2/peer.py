"""The client's side of HTTP/2 in tests: frames to send, and what came back."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from hpack import Decoder, Encoder

from proxy.http2.connection import Connection
from proxy.http2.events import Event
from proxy.http2.frames import (
    END_HEADERS,
    END_STREAM,
    FRAME_HEADER,
    HEADER_BYTES,
    PREFACE,
    ErrorCode,
    FrameType,
    frame,
    settings_frame,
)
from proxy.http2.limits import Limits

Header = tuple[str, str]

POST: tuple[Header, ...] = (
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/test.Service/Echo"),
    (":authority", "localhost"),
)
CALL: tuple[Header, ...] = (*POST, ("content-type", "application/grpc"), ("te", "trailers"))


class Frame(NamedTuple):
    kind: int
    flags: int
    stream_id: int
    payload: bytes

    @property
    def number(self) -> int:
        """The code of a reset, the count of a window update."""
        return int.from_bytes(self.payload)


def block(headers: Iterable[Header] = CALL) -> bytes:
    """A block of headers that needs no table."""
    return plain_encoder().encode(list(headers), huffman=False)


def plain_encoder() -> Encoder:
    encoder = Encoder()
    encoder.header_table_size = 0
    encoder.table_size_changes.clear()
    return encoder


def headers(stream_id: int = 1, sent: Iterable[Header] = CALL, flags: int = END_HEADERS) -> bytes:
    return frame(FrameType.HEADERS, flags, stream_id, block(sent))


def data(stream_id: int = 1, payload: bytes = b"", flags: int = 0) -> bytes:
    return frame(FrameType.DATA, flags, stream_id, payload)


def message(body: bytes) -> bytes:
    return struct.pack(">BI", 0, len(body)) + body


def request(stream_id: int = 1, body: bytes = b"", sent: Iterable[Header] = CALL) -> bytes:
    """A whole call with one message."""
    return headers(stream_id, sent) + data(stream_id, message(body), END_STREAM)


def frames_of(sent: bytes) -> Iterator[Frame]:
    at = 0
    while at < len(sent):
        high, low, kind, flags, stream_id = FRAME_HEADER.unpack_from(sent, at)
        after = at + HEADER_BYTES + (high << 8 | low)
        yield Frame(kind, flags, stream_id, sent[at + HEADER_BYTES : after])
        at = after


class Pair:
    """A connection under test, after its preface, and what it has answered.

    Attributes:
        now: seconds; a test moves it.
    """

    def __init__(
        self, limits: Limits | None = None, settings: dict[int, int] | None = None
    ) -> None:
        self.now = 1000.0
        self.connection = Connection(limits or Limits(), self.now)
        self.events: list[Event] = []
        self.send(PREFACE + settings_frame(settings or {}))
        self.first = self.taken()
        self.decoder = Decoder()

    def send(self, *parts: bytes) -> list[Event]:
        events = self.connection.receive(b"".join(parts), self.now)
        self.events += events
        return events

    def wait(self, seconds: float) -> list[Event]:
        """Let time pass, and have done what is due until then."""
        ends = self.now + seconds
        while self.connection.next_at <= ends and not self.connection.is_over:
            self.now = max(self.now, self.connection.next_at)
            self.events += self.connection.expire(self.now)
        self.now = ends
        return self.events

    def taken(self) -> list[Frame]:
        """The frames that it sends, as many as it does while all of them are taken at once."""
        found = b""
        while self.connection.outbox.unsent_bytes:
            found += self.connection.outbox.take()
            self.connection.outbox.pump()
            self.events += self.connection.take_events(self.now)
        return list(frames_of(found))

    def outcome(self) -> list[str]:
        """What a peer is told of its mistakes: `GOAWAY PROTOCOL_ERROR`, `RST 1 CANCEL`."""
        told = []
        for each in self.taken():
            if each.kind == FrameType.GOAWAY:
                told.append(f"GOAWAY {ErrorCode(int.from_bytes(each.payload[4:8])).name}")
            elif each.kind == FrameType.RST_STREAM:
                told.append(f"RST {each.stream_id} {ErrorCode(each.number).name}")
        return told
