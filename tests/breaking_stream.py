"""A stream that breaks in one of its calls: a test can break a connection at each of them."""

from __future__ import annotations

from typing import Any

import trio


class BreakingStream:
    """A stream that breaks in one of its calls. A call that sends first waits, and then breaks.

    Args:
        stream: carries the bytes.
        calls_left: until the call that breaks.

    Attributes:
        handed: all bytes that a call was given, whether it sent them or broke.
        broken: set when it breaks.
        is_closed: whether this side closed it.
    """

    def __init__(self, stream: Any, calls_left: int) -> None:
        self._stream = stream
        self.calls_left = calls_left
        self.handed = b""
        self.broken = trio.Event()
        self.is_closed = False

    async def __aenter__(self) -> BreakingStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        self.is_closed = True
        await self._stream.aclose()

    def breaks(self) -> bool:
        """Count a call; whether it is the one that breaks."""
        self.calls_left -= 1
        return self.calls_left == -1

    async def send_all(self, data: bytes) -> None:
        self.handed += data
        if self.breaks():
            await self._stream.send_all(data[: len(data) // 2])
            await trio.sleep(0.1)
            self.broken.set()
            raise trio.BrokenResourceError
        await self._stream.send_all(data)

    async def receive_some(self, max_bytes: int) -> bytes:
        if self.breaks():
            await trio.sleep(0.1)
            self.broken.set()
            raise trio.BrokenResourceError
        read: bytes = await self._stream.receive_some(max_bytes)
        return read
