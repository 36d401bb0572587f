"""The server's side of an HTTP/2 connection (RFC 9113): bytes in, events and bytes out. Pure.

Time comes in as `now`, in seconds of a monotonic clock.
"""

from collections import OrderedDict
from typing import Final

from proxy.http2.allowance import Allowance
from proxy.http2.errors import ConnectionFault, StreamFault
from proxy.http2.events import Event, Received, Requested, Reset
from proxy.http2.field_decoder import FieldDecoder
from proxy.http2.frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    FIRST_WINDOW_BYTES,
    FRAME_HEADER,
    HEADER_BYTES,
    PADDED,
    PREFACE,
    PRIORITY,
    STREAM_MASK,
    ErrorCode,
    FrameType,
    Setting,
    frame,
    goaway_frame,
    reset_frame,
    settings_frame,
    window_update_frame,
)
from proxy.http2.limits import Limits
from proxy.http2.outbox import Outbox
from proxy.http2.peer_settings import PeerSettings
from proxy.http2.request_head import check_trailers, request_head
from proxy.http2.stream import Stream
from proxy.http2.watched_times import WatchedTimes

_NEVER_OPENED: Final = "has begun no such stream"

# Frames of streams that we have reset may still be on their way: so many of these are remembered.
_RESETS_REMEMBERED: Final = 4096
# Ranges of stream numbers that a client left out. None does more than once or twice.
_GAPS_REMEMBERED: Final = 64

# What our pings carry: one asks a silent peer, the other tells when a GOAWAY has been read.
_PING_SILENT: Final = b"silent ?"
_PING_DRAIN: Final = b"draining"


class Connection:
    """A connection from its preface to its last frame.

    Args:
        limits: what the peer may do.
        now: the time at which it began.

    Attributes:
        streams: those that are open, by their numbers.
        outbox: what is to be written.
        fault: why the connection ended, if the peer broke a rule or a limit.
        is_over: nothing more is read; what is in `outbox` is to be written, and the connection
            closed.
        is_draining: no new streams are wanted.
        first_bytes: what came instead of a preface; empty if one came.
    """

    def __init__(self, limits: Limits, now: float) -> None:
        self._limits = limits
        self._now = now
        self.streams: dict[int, Stream] = {}
        self.fault: ConnectionFault | None = None
        self.is_over = self.is_draining = False
        self.first_bytes = b""
        self._peer = PeerSettings()
        self.outbox = Outbox(self._peer, limits.max_unsent_bytes)
        self._decoder = FieldDecoder(limits.max_header_list_bytes)
        self._buffer = b""
        self._has_preface = self._has_settings = False
        self._unacknowledged_settings = 1
        self._last_id = 0
        self._last_taken_id = STREAM_MASK
        self._reset_ids: OrderedDict[int, None] = OrderedDict()
        self._gaps: list[range] = []
        self._window = limits.connection_window_bytes
        self._unreported_bytes = 0
        self._block: list[bytes] | None = None
        self._block_bytes = self._block_flags = self._block_id = 0
        self._events: list[Event] = []
        self.times = WatchedTimes(limits, now)
        self._resets = Allowance(limits.reset_burst, limits.resets_per_s, now)
        self._pings = Allowance(limits.ping_burst, limits.pings_per_s, now)
        self._settings = Allowance(limits.settings_burst, limits.settings_per_s, now)
        self._idle_frames = Allowance(limits.idle_frame_burst, limits.idle_frames_per_s, now)

    # What the peer sends.

    def receive(self, data: bytes, now: float) -> list[Event]:
        """Take bytes of the peer; return what they mean."""
        self._now = now
        self.times.heard(now)
        buffer = self._buffer + data if self._buffer else data
        at = 0
        try:
            if not self._has_preface:
                if not self._take_preface(buffer):
                    return []
                at = len(PREFACE)
            at = self._take_frames(buffer, at)
        except ConnectionFault as fault:
            self._fail(fault)
            at = len(buffer)
        self._buffer = buffer[at:] if at else buffer
        self.times.frame(bool(self._buffer), at > 0, now)
        return self.take_events(now)

    def take_events(self, now: float) -> list[Event]:
        """Return what has happened since, and end the streams whose last data were sent."""
        if self.outbox.events:
            sent, self.outbox.events = self.outbox.events, []
            for event in sent:
                if event.stream.ending is not None and not event.stream.is_closed:
                    self.end(event.stream, event.stream.ending, now)
            self._events += sent
        events, self._events = self._events, []
        return events

    def peer_ended(self, now: float) -> list[Event]:
        """Note that the peer has closed the connection."""
        if not self._has_preface:
            self.first_bytes = self._buffer
        self._end("the client closed the connection")
        return self.take_events(now)

    def _take_preface(self, buffer: bytes) -> bool:
        if not PREFACE.startswith(buffer[: len(PREFACE)]):
            self.first_bytes = buffer[:64]
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "it does not speak HTTP/2")
        self._has_preface = len(buffer) >= len(PREFACE)
        if self._has_preface:
            self._greet()
        else:
            self._buffer = buffer
        return self._has_preface

    def _greet(self) -> None:
        """Send our own preface: a program that speaks something else would not understand it."""
        limits = self._limits
        settings: dict[int, int] = {
            Setting.MAX_CONCURRENT_STREAMS: limits.max_streams,
            Setting.INITIAL_WINDOW_SIZE: limits.stream_window_bytes,
            Setting.MAX_FRAME_SIZE: limits.max_frame_bytes,
            Setting.MAX_HEADER_LIST_SIZE: limits.max_header_list_bytes,
        }
        self.outbox.add(settings_frame(settings))
        opened = limits.connection_window_bytes - FIRST_WINDOW_BYTES
        self.outbox.add(window_update_frame(0, opened))
        if self.is_draining:
            self.drain(self._now)

    def _take_frames(self, buffer: bytes, at: int) -> int:
        """Take all whole frames from `at`; return where the first incomplete one begins."""
        end, most = len(buffer), self._limits.max_frame_bytes
        while end - at >= HEADER_BYTES and not self.is_over:
            high, low, kind, flags, stream_id = FRAME_HEADER.unpack_from(buffer, at)
            length = high << 8 | low
            if length > most:
                raise ConnectionFault(
                    ErrorCode.FRAME_SIZE_ERROR, f"a frame of {length} bytes, over {most}"
                )
            begin = at + HEADER_BYTES
            if end - begin < length:
                break
            at = begin + length
            stream_id &= STREAM_MASK
            self._check_order(kind, flags, stream_id)
            try:
                if kind < len(_TAKERS):
                    _TAKERS[kind](self, flags, stream_id, buffer[begin:at])
                else:
                    self._take_idle_frame()
            except StreamFault as fault:
                self._count_reset()
                self.reset(fault.stream_id, fault.code, str(fault))
        return at

    def _check_order(self, kind: int, flags: int, stream_id: int) -> None:
        """Raise ConnectionFault if a frame may not follow the one before it."""
        if not self._has_settings:
            if kind != FrameType.SETTINGS or flags & ACK:
                raise _broken("its first frame is not its settings")
            self._has_settings = True
            self.times.settled()
        if self._block is not None:
            if kind != FrameType.CONTINUATION or stream_id != self._block_id:
                raise _broken("a block of headers is interrupted by another frame")
        elif kind == FrameType.CONTINUATION:
            raise _broken("a continuation follows no headers")

    def _take_idle_frame(self) -> None:
        if not self._idle_frames.take(self._now):
            raise _flood("frames that carry nothing")

    def _take_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        size = len(payload)
        self._window -= size
        if self._window < 0:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "data beyond its window")
        if flags & PADDED:
            payload = _unpadded(payload)
        try:
            stream = self._stream(stream_id)
            if stream is not None and stream.has_remote_ended:
                raise StreamFault(stream_id, ErrorCode.STREAM_CLOSED, "data after its end")
        except StreamFault:
            self._give_back(size)
            raise
        if stream is None:
            self._give_back(size)
            return
        stream.receive_window -= size
        stream.held_bytes += size
        if stream.receive_window < 0:
            raise StreamFault(stream_id, ErrorCode.FLOW_CONTROL_ERROR, "data beyond its window")
        if flags & PADDED:
            self.read(stream, size - len(payload))
        if stream.expected_bytes is not None:
            stream.expected_bytes -= len(payload)
        if flags & END_STREAM:
            self._end_remote(stream)
        elif not payload:
            self._take_idle_frame()
            return
        self._events.append(Received(stream, payload))

    def _take_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not stream_id & 1:
            raise _broken("headers on a stream that no client may begin")
        if flags & PADDED:
            payload = _unpadded(payload)
        depends_on_itself = False
        if flags & PRIORITY:
            if len(payload) < 5:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "headers without their priority")
            depends_on_itself = int.from_bytes(payload[:4]) & STREAM_MASK == stream_id
            payload = payload[5:]
        if flags & END_HEADERS:
            self._take_block(flags, stream_id, payload)
        else:
            self._block, self._block_id = [payload], stream_id
            self._block_flags, self._block_bytes = flags, len(payload)
            self.times.block(True, self._now)
        if depends_on_itself:
            raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, "it depends on itself")

    def _take_continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        block, limits = self._block, self._limits
        assert block is not None
        block.append(payload)
        self._block_bytes += len(payload)
        if len(block) - 1 > limits.max_continuations or self._block_bytes > limits.max_block_bytes:
            raise _flood(
                f"headers of more than {limits.max_block_bytes} bytes, or in more than "
                f"{limits.max_continuations} continuations"
            )
        if flags & END_HEADERS:
            self._block = None
            self.times.block(False, self._now)
            self._take_block(self._block_flags, stream_id, b"".join(block))

    def _take_block(self, flags: int, stream_id: int, block: bytes) -> None:
        """Take a whole block of headers: of a new request, or of trailers."""
        fields = self._decoder.decode(block)
        if stream_id > self._last_id:
            self._note_gap(stream_id)
            self._last_id = stream_id
            if stream_id > self._last_taken_id or stream_id in self._reset_ids:
                self._remember_reset(stream_id)
                return
            if len(self.streams) >= self._limits.max_streams:
                raise StreamFault(stream_id, ErrorCode.REFUSED_STREAM, "too many streams")
            head = request_head(stream_id, fields)
            stream = Stream(stream_id, self._peer.window_bytes, self._limits.stream_window_bytes)
            stream.expected_bytes = head.content_length
            self.streams[stream_id] = stream
            self.times.busy()
            if flags & END_STREAM:
                self._end_remote(stream)
            self._events.append(Requested(stream, head))
            return
        try:
            stream_or_none = self._stream(stream_id)
        except StreamFault as fault:
            raise ConnectionFault(fault.code, "headers after the end of their stream") from None
        if stream_or_none is None:
            return
        if stream_or_none.has_remote_ended:
            raise StreamFault(stream_id, ErrorCode.STREAM_CLOSED, "headers after its end")
        if not flags & END_STREAM:
            raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, "trailers that do not end it")
        check_trailers(stream_id, fields)
        self._end_remote(stream_or_none)
        self._events.append(Received(stream_or_none, b""))

    def _take_priority(self, _flags: int, stream_id: int, payload: bytes) -> None:
        self._take_idle_frame()
        if not stream_id:
            raise _broken("a priority without a stream")
        if len(payload) != 5:
            raise StreamFault(stream_id, ErrorCode.FRAME_SIZE_ERROR, "a priority of another size")
        if int.from_bytes(payload[:4]) & STREAM_MASK == stream_id:
            raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, "it depends on itself")

    def _take_reset(self, _flags: int, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "a reset of another size")
        if not stream_id or stream_id > self._last_id:
            raise _broken("a reset: it " + _NEVER_OPENED)
        self._count_reset()
        stream = self.streams.get(stream_id)
        if stream is not None:
            self._close(stream)
            self._events.append(Reset(stream, "the client cancelled it"))

    def _take_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise _broken("settings of a stream")
        if flags & ACK:
            if payload:
                raise ConnectionFault(
                    ErrorCode.FRAME_SIZE_ERROR, "an acknowledgement with settings"
                )
            self._unacknowledged_settings -= 1
            if self._unacknowledged_settings < 0:
                self._take_idle_frame()
            return
        if not self._settings.take(self._now):
            raise _flood("settings")
        peer = self._peer
        window, table = peer.window_bytes, peer.header_table_bytes
        peer.take(payload)
        self.outbox.add(frame(FrameType.SETTINGS, ACK, 0))
        if peer.header_table_bytes < table:
            self.outbox.shrink_table()
        if peer.window_bytes != window:
            for stream in list(self.streams.values()):
                try:
                    self.outbox.open_stream_window(stream, peer.window_bytes - window)
                except StreamFault as fault:
                    raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, str(fault)) from None

    def _take_push(self, _flags: int, _stream_id: int, _payload: bytes) -> None:
        raise _broken("a push, by a client")

    def _take_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise _broken("a ping of a stream")
        if len(payload) != 8:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "a ping of another size")
        if not self._pings.take(self._now):
            raise _flood("pings")
        if not flags & ACK:
            self.outbox.add(frame(FrameType.PING, ACK, 0, payload))
        elif payload == _PING_DRAIN and self.is_draining:
            self._take_no_more()

    def _take_goaway(self, _flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise _broken("a GOAWAY of a stream")
        if len(payload) < 8:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "a GOAWAY of another size")
        self._take_idle_frame()
        self.is_draining = True
        self._close_when_drained()

    def _take_window_update(self, _flags: int, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "a window update of another size")
        count = int.from_bytes(payload) & STREAM_MASK
        if not stream_id:
            if not count:
                raise _broken("a window that opens by nothing")
            self.outbox.open_window(count)
            return
        stream = self.streams.get(stream_id)
        if stream is None:
            if stream_id > self._last_id:
                raise _broken("a window: it " + _NEVER_OPENED)
        elif not count:
            raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, "a window that opens by nothing")
        else:
            self.outbox.open_stream_window(stream, count)

    def _stream(self, stream_id: int) -> Stream | None:
        """Return an open stream; None for one that was reset while frames were on their way.

        Raises ConnectionFault for one that was never opened, and StreamFault for one that ended.
        """
        stream = self.streams.get(stream_id)
        if stream is not None or stream_id in self._reset_ids:
            return stream
        if stream_id > self._last_id or not stream_id & 1:
            raise _broken("a frame of a stream: it " + _NEVER_OPENED)
        if any(stream_id in gap for gap in self._gaps):
            raise _broken("a stream that was passed over by a later one")
        raise StreamFault(stream_id, ErrorCode.STREAM_CLOSED, "a frame after its end")

    def _note_gap(self, stream_id: int) -> None:
        begin = self._last_id + 2 if self._last_id else 1
        if begin < stream_id:
            self._gaps = [*self._gaps[1 - _GAPS_REMEMBERED :], range(begin, stream_id, 2)]

    def _end_remote(self, stream: Stream) -> None:
        if stream.expected_bytes:
            raise StreamFault(
                stream.stream_id,
                ErrorCode.PROTOCOL_ERROR,
                "its content-length is not that of its data",
            )
        stream.has_remote_ended = True

    def _count_reset(self) -> None:
        if not self._resets.take(self._now):
            raise _flood("streams that are reset")

    # What the owner does.

    def read(self, stream: Stream, count: int) -> None:
        """Note that `count` bytes of a stream were read: the peer may send as many more."""
        count = min(count, stream.held_bytes)
        stream.held_bytes -= count
        self._give_back(count)
        if stream.has_remote_ended or stream.is_closed:
            return
        stream.unreported_bytes += count
        if stream.unreported_bytes >= self._limits.stream_window_bytes // 2:
            self.outbox.add(window_update_frame(stream.stream_id, stream.unreported_bytes))
            stream.receive_window += stream.unreported_bytes
            stream.unreported_bytes = 0

    def _give_back(self, count: int) -> None:
        self._unreported_bytes += count
        if self._unreported_bytes >= self._limits.connection_window_bytes // 4:
            self.outbox.add(window_update_frame(0, self._unreported_bytes))
            self._window += self._unreported_bytes
            self._unreported_bytes = 0

    def end(self, stream: Stream, trailers: bytes, now: float) -> None:
        """End the answer: once its data are sent, with a block of trailers, or without any."""
        if self.outbox.end(stream, trailers):
            self._ended(stream, now)

    def answer(self, stream: Stream, block: bytes, now: float) -> None:
        """Answer with headers alone."""
        self.outbox.headers(stream, block, END_STREAM)
        self._ended(stream, now)

    def _ended(self, stream: Stream, now: float) -> None:
        self._now = now
        if not stream.has_remote_ended:
            # The rest of the request is not wanted (RFC 9113, section 8.1).
            self._remember_reset(stream.stream_id)
            self.outbox.add(reset_frame(stream.stream_id, ErrorCode.NO_ERROR))
        self._close(stream)

    def reset(self, stream_id: int, code: int, reason: str) -> None:
        """Reset a stream, also one that was refused or has ended."""
        self._remember_reset(stream_id)
        self.outbox.add(reset_frame(stream_id, code))
        stream = self.streams.get(stream_id)
        if stream is not None:
            self._close(stream)
            self._events.append(Reset(stream, reason))

    def _remember_reset(self, stream_id: int) -> None:
        self._reset_ids[stream_id] = None
        if len(self._reset_ids) > _RESETS_REMEMBERED:
            self._reset_ids.popitem(last=False)

    def _close(self, stream: Stream) -> None:
        """Forget a stream, and give back what was not read of it."""
        stream.is_closed = True
        del self.streams[stream.stream_id]
        if stream.pending is not None:
            self.outbox.forget(stream)
        if stream.held_bytes:
            self._give_back(stream.held_bytes)
            stream.held_bytes = 0
        if not self.streams:
            self.times.idle(self._now)
            self._close_when_drained()

    # How a connection ends.

    def drain(self, now: float) -> None:
        """Ask the peer for no new streams, and end once those it has begun are over.

        The first GOAWAY names no stream, so that none is lost that is on its way (RFC 9113, 6.8).
        """
        if self.is_over or self._last_taken_id != STREAM_MASK or self.times.is_draining:
            return
        self.is_draining = True
        if not self._has_preface:
            return  # our settings come first, and then this
        self.outbox.add(goaway_frame(STREAM_MASK, ErrorCode.NO_ERROR, "the server is ending"))
        self.outbox.add(frame(FrameType.PING, 0, 0, _PING_DRAIN))
        self.times.drain(now)

    def _take_no_more(self) -> None:
        """Tell the peer which stream was the last."""
        if self._last_taken_id != STREAM_MASK:
            return
        self._last_taken_id = self._last_id
        self.times.drained()
        self.outbox.add(goaway_frame(self._last_id, ErrorCode.NO_ERROR, "the server is ending"))
        self._close_when_drained()

    def _close_when_drained(self) -> None:
        if self.is_draining and not self.times.is_draining and not self.streams:
            self.is_over = True

    def expire(self, now: float) -> list[Event]:
        """Do what is due at `now`; see `times.next_at`."""
        self._now = now
        try:
            late = self.times.late(now)
            if late is not None:
                raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, late)
            if self.times.take_drain(now):
                self._take_no_more()
            if self.times.is_idle(now) and not self.is_over:
                self._end("no call for long")
            if self.times.take_silence(now):
                self.outbox.add(frame(FrameType.PING, 0, 0, _PING_SILENT))
            self._expire_answers(now)
        except ConnectionFault as fault:
            self._fail(fault)
        return self.take_events(now)

    def _expire_answers(self, now: float) -> None:
        """Reset streams whose peer takes nothing of an answer, or too little."""
        limits = self._limits
        for stream in list(self.outbox.stalled):
            if now < stream.stalled_since + limits.unread_s:
                return
            if stream.taken_bytes < limits.min_taken_bytes:
                self._count_reset()
                self.reset(stream.stream_id, ErrorCode.CANCEL, "its answer is not read")
            else:
                self.outbox.stall(stream, now)

    @property
    def next_at(self) -> float:
        """When `expire` is to be called, at the latest."""
        next_at = self.times.next_at(bool(self.streams))
        for stream in self.outbox.stalled:
            return min(next_at, stream.stalled_since + self._limits.unread_s)
        return next_at

    def give_up(self, reason: str, now: float) -> list[Event]:
        """End the connection, because the server has not the room for it."""
        self._now = now
        if not self.is_over:
            self._fail(ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, reason))
        return self.take_events(now)

    def _fail(self, fault: ConnectionFault) -> None:
        self.fault = fault
        self._end(fault.reason, fault.code)

    def _end(self, reason: str, code: int = ErrorCode.NO_ERROR) -> None:
        if self.is_over:
            return
        if self._has_preface:
            self.outbox.add(goaway_frame(min(self._last_id, self._last_taken_id), code, reason))
        self.is_over = True
        for stream in list(self.streams.values()):
            self._close(stream)
            self._events.append(Reset(stream, reason))


def _broken(what: str) -> ConnectionFault:
    return ConnectionFault(ErrorCode.PROTOCOL_ERROR, what)


def _flood(what: str) -> ConnectionFault:
    return ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, f"too many {what}: send fewer")


def _unpadded(payload: bytes) -> bytes:
    """Return what is left without padding. Raises ConnectionFault."""
    if not payload or payload[0] >= len(payload):
        raise _broken("padding that is longer than its frame")
    return payload[1 : len(payload) - payload[0]]


_TAKERS: Final = (
    Connection._take_data,
    Connection._take_headers,
    Connection._take_priority,
    Connection._take_reset,
    Connection._take_settings,
    Connection._take_push,
    Connection._take_ping,
    Connection._take_goaway,
    Connection._take_window_update,
    Connection._take_continuation,
)
