"""Takes in the connections of peers and clients, checks who they are, passes on what they say."""

from __future__ import annotations

import errno
import logging
from collections.abc import Awaitable, Callable, Sequence

import trio

from dledger.codec import decode_message
from dledger.config import Address
from dledger.errors import AddressInUse, ConfigInvalid, MessageMalformed
from dledger.frame import Frame, FrameDecoder
from dledger.handshake import (
    Caller,
    Hello,
    decode_hello,
    encode_refused,
    encode_welcome,
    refusal,
)
from dledger.links import MAX_STRANGERS, RECEIVE_BYTES, Identity, Links
from dledger.messages import Message, PushRequest
from dledger.push_check import PushCheck

logger = logging.getLogger(__name__)

# A caller that does not introduce itself in this time only holds a socket.
HELLO_TIMEOUT_S = 5.0

# Connections at a time: peers are few, and each client tool holds one.
MAX_CONNECTIONS = 256

Received = Callable[[str, Sequence[Message]], None]


class Conversation:
    """One accepted connection, as a stream of frames."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._decoder = FrameDecoder()
        self._frames: list[Frame] = []

    async def frames(self) -> Sequence[Frame]:
        """What arrived since the last call, at least one frame; nothing at the end of the stream.

        Raises MessageMalformed.
        """
        while not self._frames:
            data = await self.stream.receive_some(RECEIVE_BYTES)
            if not data:
                return ()
            self._frames = self._decoder.feed(bytes(data))
        frames, self._frames = self._frames, []
        return frames

    async def first_frame(self) -> Frame | None:
        """The next frame alone."""
        frames = await self.frames()
        self._frames = list(frames[1:])
        return frames[0] if frames else None


ServeClient = Callable[[Conversation], Awaitable[None]]


class Listener:
    """The node's listening socket."""

    def __init__(
        self,
        identity: Identity,
        links: Links,
        received: Received,
        new_check: Callable[[], PushCheck],
        serve_client: ServeClient,
    ) -> None:
        self._identity = identity
        self._links = links
        self._received = received
        self._new_check = new_check
        self._serve_client = serve_client
        self._connections = 0
        self._peers: list[str] = []  # whose connections are open, one name for each

    async def open(self, address: Address) -> list[trio.SocketListener]:
        """Bind the address. Raises AddressInUse, or ConfigInvalid where it is not ours."""
        try:
            return await trio.open_tcp_listeners(address.port, host=address.host)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise AddressInUse(str(address)) from error
            raise ConfigInvalid("peers", f"cannot listen on {address}: {error}") from error

    async def serve(self, listeners: list[trio.SocketListener]) -> None:
        """Serve every connection, for ever."""
        await trio.serve_listeners(self._serve_one, listeners)

    async def _serve_one(self, stream: trio.SocketStream) -> None:
        if self._connections >= MAX_CONNECTIONS:
            logger.warning("refused a connection: %d are open", self._connections)
            await stream.aclose()
            return
        self._connections += 1
        caller = "a caller"
        try:
            async with stream:
                stream.setsockopt(trio.socket.IPPROTO_TCP, trio.socket.TCP_NODELAY, 1)
                conversation = Conversation(stream)
                hello = await self._introduction(conversation)
                if hello is None:
                    return
                caller = hello.sender or "a client"
                if hello.caller is Caller.PEER:
                    await self._serve_peer(hello, conversation)
                else:
                    await self._serve_client(conversation)
        except MessageMalformed as error:
            logger.warning("closed the connection of %s: %s", caller, error.problem)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            logger.debug("the connection of %s broke: %s", caller, error)
        finally:
            self._connections -= 1

    async def _introduction(self, conversation: Conversation) -> Hello | None:
        with trio.move_on_after(HELLO_TIMEOUT_S):
            frame = await conversation.first_frame()
            if frame is None:
                return None
            try:
                hello = self._admitted(frame)
            except MessageMalformed as error:
                await conversation.stream.send_all(encode_refused(error.problem))
                raise
            await conversation.stream.send_all(encode_welcome(self._identity.node_id))
            return hello
        raise MessageMalformed(f"no introduction within {HELLO_TIMEOUT_S:g} s")

    def _admitted(self, frame: Frame) -> Hello:
        """Who calls, if this node talks to them. Raises MessageMalformed with the reason."""
        hello = decode_hello(frame)
        reason = refusal(hello, self._identity.group, self._identity.node_id)
        if reason is None and hello.caller is Caller.PEER:
            reason = self._no_room_for(hello.sender)
        if reason is not None:
            raise MessageMalformed(reason)
        return hello

    def _no_room_for(self, peer: str) -> str | None:
        """A member always has room; of strangers there may be a few."""
        members = self._links.members
        if peer in members:
            return None
        strangers = sum(other not in members for other in self._peers)
        if strangers < MAX_STRANGERS:
            return None
        return f"{peer} is not a member, and {strangers} who are not are connected already"

    async def _serve_peer(self, hello: Hello, conversation: Conversation) -> None:
        if hello.address is not None:
            self._links.heard_of(hello.sender, hello.address)
        self._peers.append(hello.sender)
        try:
            await self._take_messages(hello.sender, conversation)
        finally:
            self._peers.remove(hello.sender)

    async def _take_messages(self, peer: str, conversation: Conversation) -> None:
        check = self._new_check()
        while frames := await conversation.frames():
            messages = []
            for frame in frames:
                message = decode_message(frame)
                if isinstance(message, PushRequest):
                    message = check.check(message)
                messages.append(message)
            self._received(peer, messages)
