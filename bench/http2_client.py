"""A client of gRPC that costs little: it writes requests that were made before it began."""

from __future__ import annotations

import socket
import struct
import uuid

from hpack import Encoder, HeaderTuple, NeverIndexedHeaderTuple

from proxy.http2.frames import (
    ACK,
    END_HEADERS,
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

_WINDOW_BYTES = 1 << 24
_READ_BYTES = 1 << 18
_PATIENCE_S = 30.0


def requests(path: str, body: bytes | None, count: int, is_huffman: bool) -> list[bytes]:
    """Return the frames of so many requests of one connection, as RocketMQ's clients write them.

    Args:
        path: the method.
        body: one message; None leaves the request open.
        count: how many.
        is_huffman: write headers as Java, Go and Node do, with Huffman's code and with each
            header in the table; or plain, and those of a single call outside of the table, as
            C-core does.
    """
    encoder = Encoder()
    made = []
    for number in range(count):
        date_time = f"20261130T{number:06d}Z"
        own = [("x-mq-request-id", str(uuid.uuid4())), ("x-mq-date-time", date_time)]
        lasting = [
            *((":method", "POST"), (":scheme", "http"), (":path", path)),
            *((":authority", "127.0.0.1:8081"), ("te", "trailers")),
            *(("content-type", "application/grpc"), ("user-agent", "grpc-python/1.85.3")),
            *(("x-mq-language", "PYTHON"), ("x-mq-protocol", "GRPC_V2")),
            *(("x-mq-client-version", "5.1.2"), ("x-mq-client-id", "vm@28471@0@hokeleuuc1")),
            ("x-mq-namespace", ""),
        ]
        kind = HeaderTuple if is_huffman else NeverIndexedHeaderTuple
        fields = [*(HeaderTuple(*each) for each in lasting), *(kind(*each) for each in own)]
        if body is not None:
            fields.append(kind("grpc-timeout", f"{3000 - number % 7}m"))
        block = encoder.encode(fields, huffman=is_huffman)
        stream_id = 2 * number + 1
        whole = frame(FrameType.HEADERS, END_HEADERS, stream_id, block)
        if body is not None:
            message = struct.pack(">BI", 0, len(body)) + body
            whole += frame(FrameType.DATA, END_STREAM, stream_id, message)
        made.append(whole)
    return made


class BenchClient:
    """One connection, used by a single thread.

    Args:
        port: of the server on this machine.
    """

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), _PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        window = window_update_frame(0, _WINDOW_BYTES - FIRST_WINDOW_BYTES)
        settings = settings_frame({Setting.INITIAL_WINDOW_SIZE: _WINDOW_BYTES})
        self._socket.sendall(PREFACE + settings + window)
        self._buffer = b""
        self._window = FIRST_WINDOW_BYTES
        self._taken_bytes = 0

    def close(self) -> None:
        self._socket.close()

    def run(self, made: list[bytes], in_flight: int, frames_each: int) -> None:
        """Send all requests, so many at a time, and wait for the answers.

        Args:
            made: of `requests`.
            in_flight: at most so many are not answered.
            frames_each: 2 if the last frame of an answer ends its stream, 1 if its headers are
                awaited.
        """
        sent = answered = 0
        while answered < len(made):
            batch = []
            while sent < len(made) and sent - answered < in_flight:
                size = len(made[sent])
                if size > self._window:
                    break
                self._window -= size
                batch.append(made[sent])
                sent += 1
            if batch:
                self._socket.sendall(b"".join(batch))
            answered += self._read(frames_each)

    def _read(self, frames_each: int) -> int:
        """Read what there is; return how many answers it ended."""
        data = self._socket.recv(_READ_BYTES)
        if not data:
            raise ConnectionError("the server closed the connection")
        buffer, at, answered, replies = self._buffer + data, 0, 0, b""
        while len(buffer) - at >= HEADER_BYTES:
            high, low, kind, flags, stream_id = FRAME_HEADER.unpack_from(buffer, at)
            after = at + HEADER_BYTES + (high << 8 | low)
            if after > len(buffer):
                break
            payload = buffer[at + HEADER_BYTES : after]
            at = after
            if kind == FrameType.HEADERS:
                answered += frames_each == 1 or flags & END_STREAM
            elif kind == FrameType.DATA:
                self._taken_bytes += len(payload)
            elif kind == FrameType.WINDOW_UPDATE and not stream_id:
                self._window += int.from_bytes(payload)
            elif kind == FrameType.SETTINGS and not flags & ACK:
                replies += frame(FrameType.SETTINGS, ACK, 0)
            elif kind == FrameType.PING and not flags & ACK:
                replies += frame(FrameType.PING, ACK, 0, payload)
            elif kind in (FrameType.GOAWAY, FrameType.RST_STREAM):
                raise ConnectionError(f"the server ended the call: {payload!r}")
        self._buffer = buffer[at:]
        if self._taken_bytes > _WINDOW_BYTES // 2:
            replies += window_update_frame(0, self._taken_bytes)
            self._taken_bytes = 0
        if replies:
            self._socket.sendall(replies)
        return answered
