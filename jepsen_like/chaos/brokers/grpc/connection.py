"""One connection to a proxy, and the calls on it."""

from __future__ import annotations

from typing import Final

import trio
from hpack import Encoder

from dledger.declared_error import DeclaredError
from jepsen_like.chaos.brokers.grpc.call_frames import (
    OPENING,
    ServerFrame,
    ServerFrames,
    call_headers,
    last_message,
)
from proxy.http2.field_decoder import FieldDecoder
from proxy.http2.frames import (
    END_HEADERS,
    END_STREAM,
    STREAM_MASK,
    ErrorCode,
    FrameType,
    frame,
    reset_frame,
)
from proxy.http2.message_reader import PREFIX_BYTES, MessageReader

SERVICE: Final = "/apache.rocketmq.v2.MessagingService/"
_READ_BYTES: Final = 64 * 1024
_LIST_BYTES: Final = 64 * 1024
_MESSAGE_BYTES: Final = 5 * 1024 * 1024


class CallBroken(DeclaredError):
    """A call was not answered.

    Attributes:
        problem: what went wrong.
        is_certain: whether certainly nothing was done: the server has not taken it.
    """

    problem: str
    is_certain: bool
    _template = "{problem}"


class _OpenCall:
    def __init__(self) -> None:
        self.reader = MessageReader(_MESSAGE_BYTES)
        self.messages: list[bytes] = []
        self.broken: CallBroken | None = None
        self.is_over = trio.Event()

    def end(self, broken: CallBroken | None) -> None:
        self.broken = broken
        self.is_over.set()


class GrpcConnection:
    """A connection on which any number of tasks make calls while `run` reads and writes.

    Attributes:
        is_over: no further call is taken: the proxy has ended the connection, or is about to.
    """

    def __init__(self, stream: trio.abc.Stream, authority: str, client_id: str) -> None:
        self.is_over = False
        self._stream = stream
        self._authority = authority
        self._client_id = client_id
        self._encoder = Encoder()
        self._decoder = FieldDecoder(_LIST_BYTES)
        self._frames = ServerFrames()
        self._calls: dict[int, _OpenCall] = {}
        self._next_id = 1
        self._scope = trio.CancelScope()
        self._room = trio.lowlevel.ParkingLot()
        self._writes, self._written = trio.open_memory_channel[bytes](float("inf"))
        self._writes.send_nowait(OPENING)

    async def run(self) -> None:
        """Serve calls until the connection ends."""
        try:
            with self._scope:
                async with self._stream, trio.open_nursery() as nursery:
                    nursery.start_soon(self._write)
                    await self._read()
                    nursery.cancel_scope.cancel()
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self._end_all("the connection to the proxy has ended")

    def leave(self) -> None:
        """Take no further calls, and close once those that are open are over."""
        self.is_over = True
        if not self._calls:
            self._scope.cancel()

    async def _write(self) -> None:
        async for data in self._written:
            await self._stream.send_all(data)

    async def _read(self) -> None:
        while data := await self._stream.receive_some(_READ_BYTES):
            for one in self._frames.take(bytes(data)):
                self._take(one)
            if self._frames.replies:
                self._writes.send_nowait(self._frames.replies)
                self._frames.replies = b""
            self._room.unpark_all()

    async def call(self, method: str, request: bytes, timeout_s: float) -> list[bytes]:
        """Make a call with one message; return the messages of its answer. Raises CallBroken."""
        with trio.move_on_after(timeout_s):
            # A message on a new stream needs no other window: requests are short.
            while self._frames.window < PREFIX_BYTES + len(request) and not self.is_over:
                await self._room.park()
            return await self._made(method, request, timeout_s)
        raise CallBroken(f"no answer within {timeout_s:g} s", False)

    async def _made(self, method: str, request: bytes, timeout_s: float) -> list[bytes]:
        if self.is_over:
            raise CallBroken("the connection to the proxy has ended", True)
        stream_id, self._next_id = self._next_id, self._next_id + 2
        headers = call_headers(SERVICE + method, self._authority, self._client_id)
        headers.append(("grpc-timeout", f"{round(timeout_s * 1000)}m"))
        block = self._encoder.encode(headers)
        data = last_message(stream_id, request)
        self._frames.window -= PREFIX_BYTES + len(request)
        call = self._calls[stream_id] = _OpenCall()
        self._writes.send_nowait(frame(FrameType.HEADERS, END_HEADERS, stream_id, block) + data)
        try:
            await call.is_over.wait()
        finally:
            if self._calls.pop(stream_id, None) is not None:
                self._writes.send_nowait(reset_frame(stream_id, ErrorCode.CANCEL))
            if self.is_over:
                self.leave()
        if call.broken is not None:
            raise call.broken
        return call.messages

    def _take(self, one: ServerFrame) -> None:
        if one.kind == FrameType.GOAWAY:
            self._go_away(int.from_bytes(one.payload[:4]) & STREAM_MASK)
            return
        # All blocks are decoded: the table is that of the connection.
        fields = {}
        if one.kind == FrameType.HEADERS:
            fields = dict(self._decoder.decode(one.payload))
        call = self._calls.get(one.stream_id)
        if call is None:
            return
        if one.kind == FrameType.RST_STREAM:
            code = int.from_bytes(one.payload)
            is_certain = code == ErrorCode.REFUSED_STREAM
            self._end(one.stream_id, CallBroken(f"the proxy reset the call ({code})", is_certain))
            return
        if one.kind == FrameType.DATA:
            call.reader.feed(one.payload)
            while (message := call.reader.take()) is not None:
                call.messages.append(message)
        if one.flags & END_STREAM:
            status = fields.get(b"grpc-status", b"no").decode()
            text = fields.get(b"grpc-message", b"").decode()
            broken = None if status == "0" else CallBroken(f"gRPC status {status}: {text}", False)
            self._end(one.stream_id, broken)

    def _end(self, stream_id: int, broken: CallBroken | None) -> None:
        self._calls.pop(stream_id).end(broken)

    def _go_away(self, last_id: int) -> None:
        """Make no further calls. Those that the proxy has taken go on."""
        self.is_over = True
        for stream_id in [one for one in self._calls if one > last_id]:
            self._end(stream_id, CallBroken("the proxy goes away", True))

    def _end_all(self, problem: str) -> None:
        self.is_over = True
        for stream_id in list(self._calls):
            self._end(stream_id, CallBroken(problem, False))
        self._room.unpark_all()
