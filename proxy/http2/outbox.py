"""Frames on their way to the peer, within its windows (RFC 9113, section 5.2). Pure."""

from collections import deque
from typing import Final

from proxy.http2.errors import ConnectionFault, StreamFault
from proxy.http2.events import Event, Sent
from proxy.http2.frames import (
    END_HEADERS,
    END_STREAM,
    FIRST_WINDOW_BYTES,
    MOST_WINDOW_BYTES,
    ErrorCode,
    FrameType,
    frame,
    frame_header,
)
from proxy.http2.peer_settings import PeerSettings
from proxy.http2.stream import Stream

# A dynamic table of no entries (RFC 7541, section 6.3): said once to a peer that makes its own
# smaller. Our blocks never use one, so that their bytes are always the same.
_NO_TABLE: Final = b"\x20"


class Outbox:
    """Frames that wait to be written, and data that wait for windows.

    Args:
        peer: what the peer has set.
        max_unsent_bytes: above it, data wait until some was written.

    Attributes:
        unsent_bytes: of frames that wait to be written.
        events: streams whose data were all sent, for the owner to take.
        stalled: all streams with pending data, that which stalled first before the others.
    """

    __slots__ = (
        "_frames",
        "_max_unsent_bytes",
        "_peer",
        "_prefix",
        "_ready",
        "_window",
        "events",
        "stalled",
        "unsent_bytes",
    )

    def __init__(self, peer: PeerSettings, max_unsent_bytes: int) -> None:
        self._peer = peer
        self._max_unsent_bytes = max_unsent_bytes
        self._frames: list[bytes] = []
        self._window = FIRST_WINDOW_BYTES
        self._prefix = b""
        # Streams with data that wait for the connection's window, or for bytes to be written, in
        # turn. Those that wait for their own window are not among them.
        self._ready: dict[Stream, None] = {}
        self.stalled: dict[Stream, None] = {}
        self.unsent_bytes = 0
        self.events: list[Event] = []

    def add(self, data: bytes) -> None:
        """Add a whole frame."""
        self._frames.append(data)
        self.unsent_bytes += len(data)

    def take(self) -> bytes:
        """Return all that waits to be written. Call `pump` once it was."""
        frames, self._frames = self._frames, []
        self.unsent_bytes = 0
        return frames[0] if len(frames) == 1 else b"".join(frames)

    def headers(self, stream: Stream, block: bytes, flags: int = 0) -> None:
        """Add a block of headers, in as many frames as it takes."""
        if self._prefix:
            block, self._prefix = self._prefix + block, b""
        most = self._peer.frame_bytes
        if len(block) <= most:
            self.add(frame(FrameType.HEADERS, flags | END_HEADERS, stream.stream_id, block))
            return
        self.add(frame(FrameType.HEADERS, flags, stream.stream_id, block[:most]))
        for at in range(most, len(block), most):
            flags = END_HEADERS if at + most >= len(block) else 0
            part = block[at : at + most]
            self.add(frame(FrameType.CONTINUATION, flags, stream.stream_id, part))

    def data(self, stream: Stream, prefix: bytes, data: bytes, now: float) -> bool:
        """Send data, now or when windows allow it; return whether all was sent."""
        size = len(prefix) + len(data)
        if (
            stream.pending is None
            and size <= stream.send_window
            and size <= self._window
            and size <= self._peer.frame_bytes
            and self.unsent_bytes < self._max_unsent_bytes
        ):
            header = frame_header(size, FrameType.DATA, 0, stream.stream_id)
            self._frames.append(header + prefix)
            self._frames.append(data)
            self.unsent_bytes += len(header) + size
            stream.send_window -= size
            self._window -= size
            return True
        if stream.pending is None:
            stream.pending = deque()
            self.stall(stream, now)
        stream.pending.append(memoryview(prefix + data))
        self._make_ready(stream)
        self.pump()
        return stream.pending is None

    def stall(self, stream: Stream, now: float) -> None:
        """Have the peer take something of a stream from now on."""
        stream.stalled_since, stream.taken_bytes = now, 0
        self.stalled.pop(stream, None)
        self.stalled[stream] = None

    def end(self, stream: Stream, trailers: bytes) -> bool:
        """End a stream after what is pending; return whether it has ended now."""
        if stream.pending is not None:
            stream.ending = trailers
            return False
        if trailers:
            self.headers(stream, trailers, END_STREAM)
        else:
            self.add(frame(FrameType.DATA, END_STREAM, stream.stream_id))
        return True

    def forget(self, stream: Stream) -> None:
        """Drop what a stream has pending."""
        stream.pending = None
        self.stalled.pop(stream, None)
        self._ready.pop(stream, None)

    def open_window(self, count: int) -> None:
        """Take a WINDOW_UPDATE of the connection. Raises ConnectionFault: it overflows."""
        self._window += count
        if self._window > MOST_WINDOW_BYTES:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "its window is over 2^31 - 1")
        self.pump()

    def open_stream_window(self, stream: Stream, count: int) -> None:
        """Change the window of a stream. Raises StreamFault: it overflows."""
        stream.send_window += count
        if stream.send_window > MOST_WINDOW_BYTES:
            raise StreamFault(
                stream.stream_id, ErrorCode.FLOW_CONTROL_ERROR, "its window is over 2^31 - 1"
            )
        if stream.pending is not None:
            self._make_ready(stream)
            self.pump()

    def shrink_table(self) -> None:
        """Note that the peer has made its table of headers smaller."""
        self._prefix = _NO_TABLE

    def pump(self) -> None:
        """Send pending data in turn, a frame of each stream, as far as windows allow it."""
        ready = self._ready
        while ready and self._window > 0 and self.unsent_bytes < self._max_unsent_bytes:
            stream = next(iter(ready))
            del ready[stream]
            self._send_pending(stream)
            if stream.pending is None:
                self.events.append(Sent(stream))
            else:
                self._make_ready(stream)

    def _make_ready(self, stream: Stream) -> None:
        if stream.send_window > 0:
            self._ready[stream] = None
        else:
            self._ready.pop(stream, None)

    def _send_pending(self, stream: Stream) -> None:
        """Send one frame of data."""
        pending = stream.pending
        assert pending is not None
        room = min(stream.send_window, self._window, self._peer.frame_bytes)
        parts: list[memoryview] = []
        size = 0
        while pending and size < room:
            part = pending.popleft()
            if len(part) > room - size:
                pending.appendleft(part[room - size :])
                part = part[: room - size]
            parts.append(part)
            size += len(part)
        stream.send_window -= size
        self._window -= size
        stream.taken_bytes += size
        self.add(frame(FrameType.DATA, 0, stream.stream_id, b"".join(parts)))
        if not pending:
            self.forget(stream)
