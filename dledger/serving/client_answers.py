"""One client's open requests, and the answers that wait to be sent to it."""

from __future__ import annotations

import trio

from dledger.network.plain_socket import NO_DESCRIPTOR, plain_descriptor, write_now
from dledger.network.tls import Stream
from dledger.wire.client_protocol import MAX_OPEN_BYTES, MAX_OPEN_REQUESTS


class ClientAnswers:
    """The requests of one connection, from their arrival until their answers are sent.

    At most MAX_OPEN_REQUESTS are open. Their bytes and those of the answers may exceed
    MAX_OPEN_BYTES only by the answers to open requests. Beyond either bound the node stops reading
    from the client.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._open = 0
        self._open_bytes = 0
        self._outbox: list[bytes] = []
        self._outbox_bytes = 0
        self._leaving = 0  # open requests whose answers wait to be sent
        self._writing = False
        self._closed = False
        # A plain stream is written to directly where that saves the wake-up of a task.
        self._fileno = plain_descriptor(stream)
        self._wake = trio.lowlevel.ParkingLot()
        self._room = trio.lowlevel.ParkingLot()

    async def wait_room(self, size: int) -> None:
        """Wait until there is room for a request of `size` bytes."""
        while self._open and (
            self._open >= MAX_OPEN_REQUESTS
            or self._open_bytes + self._outbox_bytes + size > MAX_OPEN_BYTES
        ):
            await self._room.park()

    def begin(self, size: int) -> None:
        """Count a request of `size` bytes as open, until `answer`."""
        self._open += 1
        self._open_bytes += size

    def answer(self, size: int, frame: bytes) -> None:
        """Send the answer to a request of `size` bytes."""
        if self._closed:
            return
        self._open_bytes -= size
        if (
            self._open == 1
            and not self._outbox
            and not self._writing
            and self._fileno != NO_DESCRIPTOR
        ):
            # No other answer waits: writing here saves a wake-up of the writing task.
            frame = frame[write_now(self._fileno, frame) :]
            if not frame:
                self._open = 0
                self._room.unpark_all()
                return
        self._leaving += 1
        self._outbox.append(frame)
        self._outbox_bytes += len(frame)
        self._wake.unpark()

    def close(self) -> None:
        """Drop the answers that are still to come: the client is gone."""
        self._closed = True

    async def write(self, scope: trio.CancelScope) -> None:
        """Send answers, all that wait in one write; cancel `scope` when the connection breaks."""
        try:
            while True:
                while self._outbox:
                    frames, self._outbox = self._outbox, []
                    count, self._leaving = self._leaving, 0
                    self._writing = True
                    await self._stream.send_all(frames[0] if count == 1 else b"".join(frames))
                    self._writing = False
                    self._open -= count
                    self._outbox_bytes -= sum(map(len, frames))
                    self._room.unpark_all()
                await self._wake.park()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            scope.cancel()
