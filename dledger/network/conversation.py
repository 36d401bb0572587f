"""An accepted connection, read as a stream of frames."""

from __future__ import annotations

from collections.abc import Sequence

from dledger.network.host_connection import RECEIVE_BYTES
from dledger.network.plain_socket import NO_DESCRIPTOR, plain_descriptor, read_some
from dledger.network.tls import Stream
from dledger.wire.frame import MAX_FRAME_BYTES, Frame, FrameDecoder
from dledger.wire.handshake import MAX_INTRODUCTION_BYTES


class Conversation:
    """One accepted connection."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._decoder = FrameDecoder(MAX_INTRODUCTION_BYTES)
        self._frames: list[Frame] = []
        self._fileno = plain_descriptor(stream)

    async def frames(self) -> Sequence[Frame]:
        """Wait for frames, and return all that arrived; empty at the end of the stream.

        Raises MessageMalformed.
        """
        while not self._frames:
            if self._fileno != NO_DESCRIPTOR:
                data = await read_some(self._fileno, RECEIVE_BYTES)
            else:
                data = bytes(await self.stream.receive_some(RECEIVE_BYTES))
            if not data:
                return ()
            self._frames = self._decoder.feed(data)
        frames, self._frames = self._frames, []
        return frames

    async def first_frame(self) -> Frame | None:
        """The first frame, an introduction; None at the end. Raises MessageMalformed."""
        frames = await self.frames()
        self._decoder.max_bytes = MAX_FRAME_BYTES
        self._frames = list(frames[1:])
        return frames[0] if frames else None
