"""A client of gRPC that costs little: it writes requests that were made before it began."""

from __future__ import annotations

import socket
import uuid

from hpack import Encoder, HeaderTuple, NeverIndexedHeaderTuple

from jepsen_like.chaos.brokers.grpc.call_frames import (
    OPENING,
    ServerFrames,
    call_headers,
    last_message,
)
from proxy.http2.frames import (
    END_HEADERS,
    END_STREAM,
    FrameType,
    frame,
)
from proxy.http2.message_reader import PREFIX

_READ_BYTES = 1 << 18
_PATIENCE_S = 30.0


class Requests:
    """Makes the frames of the requests of one connection, as RocketMQ's clients write them.

    Args:
        is_huffman: write headers as Java, Go and Node do, with Huffman's code and with each
            header in the table; or plain, and those of a single call outside of the table, as
            C-core does.
        client_id: of all calls.
    """

    def __init__(self, is_huffman: bool, client_id: str = "vm@28471@0@hokeleuuc1") -> None:
        self._is_huffman = is_huffman
        self._client_id = client_id
        self._kind = HeaderTuple if is_huffman else NeverIndexedHeaderTuple
        self._encoder = Encoder()
        self._made = 0

    def frames(self, path: str, body: bytes | None, patience_ms: int = 3000) -> bytes:
        """Return the frames of the next request.

        Args:
            path: the method.
            body: its only message; None leaves the request open.
            patience_ms: the deadline of a request with a message.
        """
        number, kind = self._made, self._kind
        self._made += 1
        date_time = f"20261130T{number:06d}Z"
        own = [("x-mq-request-id", str(uuid.uuid4())), ("x-mq-date-time", date_time)]
        lasting = call_headers(path, "127.0.0.1:8081", self._client_id)
        fields = [*(HeaderTuple(*each) for each in lasting), *(kind(*each) for each in own)]
        if body is not None:
            fields.append(kind("grpc-timeout", f"{patience_ms - number % 7}m"))
        block = self._encoder.encode(fields, huffman=self._is_huffman)
        stream_id = 2 * number + 1
        whole = frame(FrameType.HEADERS, END_HEADERS, stream_id, block)
        return whole if body is None else whole + last_message(stream_id, body)

    def message(self, stream_id: int, body: bytes) -> bytes:
        """Return the frame of a message of a request that stays open."""
        return frame(FrameType.DATA, 0, stream_id, PREFIX.pack(0, len(body)) + body)


def requests(path: str, body: bytes | None, count: int, is_huffman: bool) -> list[bytes]:
    """Return the frames of so many requests of one connection, all alike; see `Requests`."""
    made = Requests(is_huffman)
    return [made.frames(path, body) for _ in range(count)]


def message_bytes(frames: bytes) -> int:
    """Return what frames take of a window: their headers take nothing (RFC 9113, section 5.2.1)."""
    found = ServerFrames().take(frames)
    return sum(len(one.payload) for one in found if one.kind == FrameType.DATA)


class BenchClient:
    """One connection, used by a single thread.

    Args:
        port: of the server on this machine.

    Attributes:
        messages: parts of answers that came, with their streams; the caller empties it.
    """

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), _PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(OPENING)
        self._frames = ServerFrames()
        self.messages: list[tuple[int, bytes]] = []

    def close(self) -> None:
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def post(self, frames: bytes) -> None:
        """Send frames; nothing is waited for."""
        self._socket.sendall(frames)

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
                size = message_bytes(made[sent])
                if size > self._frames.window:
                    break
                self._frames.window -= size
                batch.append(made[sent])
                sent += 1
            if batch:
                self._socket.sendall(b"".join(batch))
            answered += self.read(frames_each)

    def read(self, frames_each: int = 2) -> int:
        """Read what there is, at least something; return how many answers it ended."""
        data = self._socket.recv(_READ_BYTES)
        if not data:
            raise ConnectionError("the server closed the connection")
        answered = 0
        for kind, flags, stream_id, payload in self._frames.take(data):
            if kind == FrameType.HEADERS:
                answered += frames_each == 1 or flags & END_STREAM
            elif kind == FrameType.DATA:
                self.messages.append((stream_id, payload))
            elif kind in (FrameType.GOAWAY, FrameType.RST_STREAM):
                raise ConnectionError(f"the server ended the call: {payload!r}")
        if self._frames.replies:
            self._socket.sendall(self._frames.replies)
            self._frames.replies = b""
        return answered
