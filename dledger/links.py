"""Connections between members: each member dials every other and sends on that connection only.

What arrives comes in on the connections the others dialled. So a broken connection is noticed by
the side that has something to send, and both directions fail independently, as in the real world.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import trio

from dledger.config import Address
from dledger.errors import MessageMalformed
from dledger.frame import FrameDecoder
from dledger.handshake import Caller, Hello, check_welcome, encode_hello

logger = logging.getLogger(__name__)

# What may wait for one peer's socket. A window of sixteen batches fits several times; more than
# this means that the peer does not read.
MAX_OUTBOX_BYTES = 64 * 1024 * 1024

# A dialled connection that does not open in this time is tried again.
CONNECT_TIMEOUT_S = 2.0

# Between two attempts: short at first, because a restarted member is soon back.
FIRST_RETRY_S = 0.05
LAST_RETRY_S = 1.0

# A connection that is down for less than this is not worth a line: members start one by one.
QUIET_S = 3.0

# A peer reads large pieces: a batch is 256 KiB.
RECEIVE_BYTES = 256 * 1024

LinkChanged = Callable[[str, bool], None]


@dataclass(frozen=True, slots=True)
class Identity:
    """How a member introduces itself."""

    group: str
    node_id: str


class Link:
    """The connection this member dials to one other, and the frames that wait to leave on it."""

    def __init__(
        self, identity: Identity, peer: str, address: Address, changed: LinkChanged
    ) -> None:
        self.peer = peer
        self.connected = False
        self.last_problem: str | None = None
        self._hello = encode_hello(Hello(Caller.PEER, identity.group, identity.node_id, peer))
        self._address = address
        self._changed = changed
        self._outbox: list[bytes] = []
        self._outbox_bytes = 0
        self._writing = False
        self._fileno = -1
        self._wake = trio.lowlevel.ParkingLot()
        self._scope: trio.CancelScope | None = None
        self._down_since = trio.current_time()
        self._said = False

    def send(self, frame: bytes) -> None:
        """Let a frame leave soon.

        Without a connection it is dropped: the protocol repeats what matters, and a member that
        comes back is compared anew.
        """
        if not self.connected:
            return
        if not self._outbox and not self._writing:
            frame = self._write_now(frame)
            if not frame:
                return
        self._outbox.append(frame)
        self._outbox_bytes += len(frame)
        if self._outbox_bytes > MAX_OUTBOX_BYTES and self._scope is not None:
            self._note(f"reads too slowly: {self._outbox_bytes} bytes wait")
            self._scope.cancel()
        self._wake.unpark()

    def _write_now(self, frame: bytes) -> bytes:
        """Write what the socket takes at once; the rest, which the writing task must wait for.

        It spares the wake-up of that task, which every append would wait for twice.
        """
        try:
            return frame[os.write(self._fileno, frame) :]
        except OSError:
            # The socket is full, or broken: the writing task waits, or meets the same error
            # and ends the connection.
            return frame

    async def run(self) -> None:
        """Keep a connection open, for ever."""
        retry_s = FIRST_RETRY_S
        while True:
            try:
                with trio.fail_after(CONNECT_TIMEOUT_S):
                    stream = await trio.open_tcp_stream(*self._address)
                async with stream:
                    await self._converse(stream)
                retry_s = FIRST_RETRY_S
            except (OSError, trio.TooSlowError, trio.BrokenResourceError) as error:
                self._note(f"cannot be reached: {str(error) or type(error).__name__}")
            except MessageMalformed as error:
                self._note(error.problem)
            await trio.sleep(retry_s)
            retry_s = min(2 * retry_s, LAST_RETRY_S)

    async def _converse(self, stream: trio.SocketStream) -> None:
        stream.setsockopt(trio.socket.IPPROTO_TCP, trio.socket.TCP_NODELAY, 1)
        await stream.send_all(self._hello)
        decoder = FrameDecoder()
        with trio.fail_after(CONNECT_TIMEOUT_S):
            while not (frames := decoder.feed(await _received(stream))):
                pass
        check_welcome(frames[0])
        self.last_problem = None
        self._fileno = stream.socket.fileno()
        self._writing = False
        if self._said:
            logger.info("peer %s at %s: connected again", self.peer, self._address)
        self._said = False
        self.connected = True
        self._changed(self.peer, True)
        try:
            with trio.CancelScope() as self._scope:
                await self._both_ways(stream)
        finally:
            self.connected = False
            self._down_since = trio.current_time()
            self._outbox.clear()
            self._outbox_bytes = 0
            self._changed(self.peer, False)

    async def _both_ways(self, stream: trio.SocketStream) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._notice_end, stream, nursery.cancel_scope)
            try:
                await self._write(stream)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                nursery.cancel_scope.cancel()

    @staticmethod
    async def _notice_end(stream: trio.SocketStream, scope: trio.CancelScope) -> None:
        try:
            while await stream.receive_some(RECEIVE_BYTES):
                pass  # a peer says nothing here after its welcome
        except trio.BrokenResourceError:
            pass  # the connection ended the hard way: the same news as an orderly end
        scope.cancel()

    async def _write(self, stream: trio.SocketStream) -> None:
        while True:
            while self._outbox:
                frames, self._outbox = self._outbox, []
                self._outbox_bytes = 0
                self._writing = True
                await stream.send_all(frames[0] if len(frames) == 1 else b"".join(frames))
                self._writing = False
            await self._wake.park()

    def _note(self, problem: str) -> None:
        """Keep why there is no connection; say it once, and not while a group is just starting."""
        self.last_problem = problem
        if self._said or trio.current_time() - self._down_since < QUIET_S:
            return
        self._said = True
        logger.warning("peer %s at %s: %s", self.peer, self._address, problem)


async def _received(stream: trio.SocketStream) -> bytes:
    data = await stream.receive_some(RECEIVE_BYTES)
    if not data:
        raise MessageMalformed("the connection ended before an answer")
    return bytes(data)


def dial(
    identity: Identity, addresses: Mapping[str, Address], changed: LinkChanged
) -> dict[str, Link]:
    """A link to every other member."""
    return {
        peer: Link(identity, peer, address, changed)
        for peer, address in addresses.items()
        if peer != identity.node_id
    }
