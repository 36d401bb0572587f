"""The frames of HTTP/2 that clients of gRPC send, and those that a server sends them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from proxy.http2.frames import (
    ACK,
    END_STREAM,
    FIRST_WINDOW_BYTES,
    FRAME_HEADER,
    HEADER_BYTES,
    PREFACE,
    FrameType,
    Setting,
    frame,
    settings_frame,
    window_update_frame,
)
from proxy.http2.message_reader import PREFIX

# What a server may send before it is given more room, on a connection and on each stream.
WINDOW_BYTES: Final = 1 << 24

OPENING: Final = (
    PREFACE
    + settings_frame({Setting.INITIAL_WINDOW_SIZE: WINDOW_BYTES})
    + window_update_frame(0, WINDOW_BYTES - FIRST_WINDOW_BYTES)
)


def call_headers(path: str, authority: str, client_id: str) -> list[tuple[str, str]]:
    """Return the headers that all calls of a client of RocketMQ have, in its Python client's
    order.
    """
    return [
        *((":method", "POST"), (":scheme", "http"), (":path", path)),
        *((":authority", authority), ("te", "trailers")),
        *(("content-type", "application/grpc"), ("user-agent", "grpc-python/1.85.3")),
        *(("x-mq-language", "PYTHON"), ("x-mq-protocol", "GRPC_V2")),
        *(("x-mq-client-version", "5.1.2"), ("x-mq-client-id", client_id)),
        ("x-mq-namespace", ""),
    ]


def last_message(stream_id: int, body: bytes) -> bytes:
    """Return the frame of the only message of a call."""
    return frame(FrameType.DATA, END_STREAM, stream_id, PREFIX.pack(0, len(body)) + body)


class ServerFrame(NamedTuple):
    kind: int
    flags: int
    stream_id: int
    payload: bytes


class ServerFrames:
    """Cuts what a server sends on one connection into frames.

    Attributes:
        replies: what the server is to be sent for its settings, its pings and what came; the
            caller sends it, and empties it.
        window: how many bytes of messages may be sent on the connection.
    """

    def __init__(self) -> None:
        self.replies = b""
        self.window = FIRST_WINDOW_BYTES
        self._rest = b""
        self._taken_bytes = 0

    def take(self, data: bytes) -> Iterator[ServerFrame]:
        """Yield the frames that are whole now, and are of calls or end the connection."""
        buffer, at = self._rest + data, 0
        while len(buffer) - at >= HEADER_BYTES:
            high, low, kind, flags, stream_id = FRAME_HEADER.unpack_from(buffer, at)
            after = at + HEADER_BYTES + (high << 8 | low)
            if after > len(buffer):
                break
            payload = buffer[at + HEADER_BYTES : after]
            at = after
            if kind == FrameType.WINDOW_UPDATE:
                self.window += 0 if stream_id else int.from_bytes(payload)
            elif kind in (FrameType.SETTINGS, FrameType.PING):
                if not flags & ACK:
                    echo = payload if kind == FrameType.PING else b""
                    self.replies += frame(kind, ACK, 0, echo)
            else:
                if kind == FrameType.DATA:
                    self._taken_bytes += len(payload)
                yield ServerFrame(kind, flags, stream_id, payload)
        self._rest = buffer[at:]
        if self._taken_bytes > WINDOW_BYTES // 2:
            self.replies += window_update_frame(0, self._taken_bytes)
            self._taken_bytes = 0
