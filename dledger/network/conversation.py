"""An accepted connection, read as a stream of frames."""

from __future__ import annotations

from collections.abc import Sequence

from dledger.network.host_connection import RECEIVE_BYTES
from dledger.network.plain_socket import NO_DESCRIPTOR, plain_descriptor, read_some
from dledger.network.tls import Stream
from dledger.wire.frame import MAX_FRAME_BYTES, Frame, FrameDecoder
from dledger.wire.handshake import MAX_INTRODUCTION_BYTES

# Frames decoded at once: 3 ms, if each has a short header.
CUT_FRAMES = 2048


class Conversation:
    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._decoder = FrameDecoder(MAX_INTRODUCTION_BYTES, CUT_FRAMES)
        self._frames: list[Frame] = []
        self._received = b""  # not decoded yet
        self._fileno = plain_descriptor(stream)

    async def wait(self) -> bool:
        """Wait until `cut` has bytes or frames; return False at the end of the stream."""
        if self._frames or self._decoder.has_more:
            return True
        if self._fileno != NO_DESCRIPTOR:
            self._received = await read_some(self._fileno, RECEIVE_BYTES)
        else:
            self._received = bytes(await self.stream.receive_some(RECEIVE_BYTES))
        return bool(self._received)

    def cut(self) -> Sequence[Frame]:
        """Return some of the frames that arrived, perhaps none. Raises MessageMalformed."""
        frames, self._frames = self._frames, []
        if not frames:
            received, self._received = self._received, b""
            frames = self._decoder.feed(received)
        return frames

    async def next_frame(self) -> Frame | None:
        """Return one frame of an introduction; None at the end. Raises MessageMalformed."""
        while await self.wait():
            if frames := self.cut():
                self._frames = list(frames[1:])
                return frames[0]
        return None

    def welcomed(self) -> None:
        """Take longer frames from now on: the caller is known."""
        self._decoder.max_bytes = MAX_FRAME_BYTES
