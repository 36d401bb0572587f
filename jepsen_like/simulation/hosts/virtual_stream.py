"""A connection in memory: two streams, and the two pipes between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from zlib import crc32

import trio

from jepsen_like.chance import Chance
from jepsen_like.simulation.hosts.plan import LineStyle

_NEVER = float("inf")

# Bytes that a pipe holds before its writer has to wait: a socket's send and receive buffers.
PIPE_BYTES = 512 * 1024


class VirtualLine:
    """The way from one machine to another; `bytes_per_s` is its speed now, None without a limit.

    While it is cut, bytes wait, as TCP sends them again.
    """

    def __init__(self, style: LineStyle, chance: Chance) -> None:
        self.style = style
        self.is_cut = False
        self.bytes_per_s: float | None = None
        self._chance = chance
        self._free_at = 0.0

    def arrives_at(self, size: int) -> float:
        """Return when so many bytes that are sent now arrive."""
        now = trio.current_time()
        delay_s = self.style.least_s + self._chance.wait_s(self.style.mean_s)
        if self.bytes_per_s is None:
            return now + delay_s
        self._free_at = max(self._free_at, now) + size / self.bytes_per_s
        return self._free_at + delay_s


class Pipe:
    """One direction of a connection. Bytes arrive in order, some time after they left.

    `waits` holds the tasks that wait for a change of the pipe.
    """

    __slots__ = ("_end_at", "_last_at", "_parts", "_reset_at", "_size", "line", "waits")

    def __init__(self, line: VirtualLine) -> None:
        self.line = line
        self.waits = trio.lowlevel.ParkingLot()
        self._parts: deque[tuple[float, bytes]] = deque()
        self._size = 0
        self._last_at = 0.0
        self._end_at = _NEVER
        self._reset_at = _NEVER

    @property
    def is_full(self) -> bool:
        return self._size >= PIPE_BYTES

    @property
    def size(self) -> int:
        """Bytes that are on their way or not read yet."""
        return self._size

    def put(self, data: bytes) -> None:
        self._last_at = max(self._last_at, self.line.arrives_at(len(data)))
        self._parts.append((self._last_at, data))
        self._size += len(data)
        self.waits.unpark_all()

    def end(self) -> None:
        """End the stream: the reader sees its end after the bytes that are on their way."""
        self._end_at = max(self._last_at, self.line.arrives_at(0))
        self.waits.unpark_all()

    def reset(self) -> None:
        """Break the connection for the reader, as soon as the reset can arrive."""
        self._reset_at = min(self._reset_at, self.line.arrives_at(0))
        self.waits.unpark_all()

    def reset_at(self, at: float) -> None:
        """Break the connection for the reader at that time, if it is not broken before."""
        self._reset_at = min(self._reset_at, at)
        self.waits.unpark_all()

    def taken(self, max_bytes: int, now: float) -> bytes | None:
        """Return the bytes that arrived; b"" at the end of the stream, None if the reader has to
        wait.

        Raises trio.BrokenResourceError.
        """
        if self.line.is_cut:
            return None
        if now >= self._reset_at:
            raise trio.BrokenResourceError("the connection was reset")
        parts, found, size = self._parts, [], 0
        while parts and parts[0][0] <= now and size < max_bytes:
            at, data = parts.popleft()
            if len(data) > max_bytes - size:
                parts.appendleft((at, data[max_bytes - size :]))
                data = data[: max_bytes - size]
            found.append(data)
            size += len(data)
        if found:
            self._size -= size
            self.waits.unpark_all()
            return b"".join(found)
        return b"" if not parts and now >= self._end_at else None

    @property
    def next_at(self) -> float:
        """When the next bytes arrive, as far as is known now."""
        if self.line.is_cut:
            return _NEVER
        first = self._parts[0][0] if self._parts else self._end_at
        return min(first, self._reset_at)


class VirtualStream(trio.abc.Stream):
    """One end of a connection.

    Args:
        sent: called with each write: this stream's name, how many bytes, their sum.
        closed: called once, when it is closed.
    """

    def __init__(
        self,
        name: str,
        inward: Pipe,
        outward: Pipe,
        sent: Callable[[str, int, int], None],
        closed: Callable[[VirtualStream], None],
    ) -> None:
        self.name = name
        self.inward = inward
        self.outward = outward
        self._sent = sent
        self._closed = closed
        self.is_closed = False
        self.is_accepted = False  # its system probes the other end while nothing arrives
        self.peer_is_gone = False  # closed: later bytes are answered by a reset
        self.peer_is_silent = False  # its machine has no power: bytes get no answer

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        while True:
            self._check(trio.current_time())
            if not self.outward.is_full:
                break
            await self._park(self.outward)
        self._put(bytes(data))

    def write_some(self, data: bytes) -> int:
        """Send as much as there is room for now, as a write to a socket; return how many bytes."""
        if self.is_closed or self.outward.is_full or not data:
            return 0
        self._put(data)
        return len(data)

    def _put(self, content: bytes) -> None:
        self._sent(self.name, len(content), crc32(content))
        self.outward.put(content)
        if self.peer_is_gone and not self.peer_is_silent:
            self.inward.reset()

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()
        while self.outward.is_full:
            self._check(trio.current_time())
            await self._park(self.outward)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        while True:
            if self.is_closed:
                raise trio.ClosedResourceError("this stream was closed here")
            taken = self.inward.taken(max_bytes or PIPE_BYTES, trio.current_time())
            if taken is not None:
                return taken
            await self._park(self.inward)

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        """Close at once: the other side sees the end of the stream."""
        if not self.is_closed:
            self.is_closed = True
            self.outward.end()
            self.inward.waits.unpark_all()
            self._closed(self)

    def vanish(self) -> None:
        """Note that the machine of this end lost its power: the other side is not notified."""
        self.is_closed = True
        self.inward.waits.unpark_all()
        self.outward.waits.unpark_all()

    def _check(self, now: float) -> None:
        if self.is_closed:
            raise trio.ClosedResourceError("this stream was closed here")
        if not self.inward.line.is_cut and now >= self.inward._reset_at:
            raise trio.BrokenResourceError("the connection was reset")

    async def _park(self, pipe: Pipe) -> None:
        """Wait until the pipe changes, or bytes arrive."""
        with trio.move_on_at(self.inward.next_at):
            await pipe.waits.park()
