"""Connections between members: each member dials every other and sends on that connection only.

What arrives comes in on the connections the others dialled. So a broken connection is noticed by
the side that has something to send, and both directions fail independently, as in the real world.

Who the others are may change while the node runs. And a node that is about to join is asked, and
told, by members it has never heard of: it answers them where they said that they listen.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import trio

from dledger.codec import PROTOCOL_VERSION
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

# Connections to those who are not members, or not yet. A change can replace nine voters and nine
# learners at once, and nobody else has a reason to ask this node.
MAX_STRANGERS = 18

# A connection to a stranger that carries nothing for so long has done its work. A member that has
# just joined hears of itself well within that.
STRANGER_IDLE_S = 10.0

# Addresses kept of those who introduced themselves, the newest of them.
MAX_KNOWN_ADDRESSES = 64

# A peer reads large pieces: a batch is 256 KiB.
RECEIVE_BYTES = 256 * 1024

LinkChanged = Callable[[str, bool], None]


@dataclass(frozen=True, slots=True)
class Identity:
    """How a member introduces itself, and where the others reach it."""

    group: str
    node_id: str
    address: Address


class Link:
    """The connection this member dials to one other, and the frames that wait to leave on it."""

    def __init__(
        self, identity: Identity, peer: str, address: Address, changed: LinkChanged
    ) -> None:
        self.peer = peer
        self.address = address
        self.connected = False
        self.last_problem: str | None = None
        self._hello = encode_hello(
            Hello(Caller.PEER, identity.group, identity.node_id, peer, identity.address)
        )
        self._life = trio.CancelScope()
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
        """Keep a connection open until `close`."""
        with self._life:
            await self._keep_open()

    def close(self) -> None:
        """End the connection, if there is one, and do not open another."""
        self._life.cancel()
        if self.connected:
            self._disconnected()

    async def _keep_open(self) -> None:
        retry_s = FIRST_RETRY_S
        while True:
            try:
                with trio.fail_after(CONNECT_TIMEOUT_S):
                    stream = await trio.open_tcp_stream(*self.address)
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
            logger.info("peer %s at %s: connected again", self.peer, self.address)
        self._said = False
        self.connected = True
        self._changed(self.peer, True)
        try:
            with trio.CancelScope() as self._scope:
                await self._both_ways(stream)
        finally:
            if self.connected:
                self._disconnected()

    def _disconnected(self) -> None:
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
        logger.warning("peer %s at %s: %s", self.peer, self.address, problem)


async def _received(stream: trio.SocketStream) -> bytes:
    data = await stream.receive_some(RECEIVE_BYTES)
    if not data:
        raise MessageMalformed(
            "the connection ended before an answer: another program, or an older protocol version "
            f"than {PROTOCOL_VERSION}?"
        )
    return bytes(data)


class Links:
    """The connections to the other members, which come and go with them."""

    def __init__(
        self,
        identity: Identity,
        changed: LinkChanged,
        stranger_idle_s: float = STRANGER_IDLE_S,
    ) -> None:
        self.dropped = 0  # messages to those of whom no address is known
        self._identity = identity
        self._changed = changed
        self._stranger_idle_s = stranger_idle_s
        self._members: dict[str, Link] = {}
        self._strangers: dict[str, Link] = {}
        self._used_at: dict[str, float] = {}  # each stranger's link, when it last had a message
        self._known: dict[str, Address] = {}  # where those who called listen, the newest last
        self._nursery: trio.Nursery | None = None

    @property
    def members(self) -> Mapping[str, Link]:
        """The link to every other member."""
        return self._members

    @property
    def strangers(self) -> Mapping[str, Link]:
        """The links to those who are not members, and had something to be answered."""
        return self._strangers

    def set_members(self, addresses: Mapping[str, Address]) -> None:
        """The members are these from now on; the node itself may be among them.

        A link to one that is new is opened, that to one that is gone is closed, and to one that
        moved there is a new link.
        """
        for peer, link in list(self._members.items()):
            if addresses.get(peer) != link.address:
                self._members.pop(peer).close()
        for peer, address in addresses.items():
            if peer == self._identity.node_id or peer in self._members:
                continue
            known = self._forget_stranger(peer)
            if known is not None and known.address != address:
                known.close()
                known = None
            self._members[peer] = known or self._open(peer, address)

    def heard_of(self, peer: str, address: Address) -> None:
        """That one introduced itself, and listens there: an answer can reach it."""
        self._known.pop(peer, None)
        self._known[peer] = address
        if len(self._known) > MAX_KNOWN_ADDRESSES:
            del self._known[next(iter(self._known))]

    def link_to(self, peer: str) -> Link | None:
        """The connected link to `peer`, member or not, for a message that is to leave now.

        A message to nobody known is dropped and counted. So is the first one to a stranger whose
        address is known; it opens a link for those that follow.
        """
        link = self._members.get(peer)
        if link is None:
            link = self._link_to_stranger(peer)
        return link if link is not None and link.connected else None

    async def run(self) -> None:
        """Keep all links open, for ever."""
        async with trio.open_nursery() as nursery:
            for link in self._members.values():
                nursery.start_soon(link.run)
            self._nursery = nursery
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def _open(self, peer: str, address: Address) -> Link:
        link = Link(self._identity, peer, address, self._changed)
        if self._nursery is not None:
            self._nursery.start_soon(link.run)
        return link

    def _link_to_stranger(self, peer: str) -> Link | None:
        link = self._strangers.get(peer)
        if link is not None:
            self._used_at[peer] = trio.current_time()
            return link
        self.dropped += 1
        address = self._known.get(peer)
        if address is None or self._nursery is None or len(self._strangers) >= MAX_STRANGERS:
            return None
        self._used_at[peer] = trio.current_time()
        link = self._strangers[peer] = self._open(peer, address)
        self._nursery.start_soon(self._end_when_idle, link)
        return link

    async def _end_when_idle(self, link: Link) -> None:
        while self._strangers.get(link.peer) is link:
            idle_at = self._used_at[link.peer] + self._stranger_idle_s
            if trio.current_time() >= idle_at:
                self._forget_stranger(link.peer)
                link.close()
                return
            await trio.sleep_until(idle_at)

    def _forget_stranger(self, peer: str) -> Link | None:
        self._used_at.pop(peer, None)
        return self._strangers.pop(peer, None)
