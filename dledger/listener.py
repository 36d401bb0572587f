"""Takes in the connections of peers and clients, and passes on what they say to whom they want."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import trio

from dledger.binding import bind
from dledger.config import Address
from dledger.connections import Connections
from dledger.conversation import Conversation
from dledger.errors import MessageMalformed
from dledger.frame import Frame
from dledger.group_port import GroupPort
from dledger.handshake import Caller, Hello, decode_hello, encode_refused, encode_welcome
from dledger.peer_conversation import PeerConversation

logger = logging.getLogger(__name__)

# A caller that does not introduce itself in this time only holds a socket.
HELLO_TIMEOUT_S = 5.0

# Connections at a time: peers are few, and each client tool holds one.
MAX_CONNECTIONS = 256


class Listener:
    """The listening socket of a process.

    Args:
        ports: the members in this process, by group.
        connections: those that this process dialled.
    """

    def __init__(self, ports: Mapping[str, GroupPort], connections: Connections) -> None:
        self._ports = ports
        self._dialled = connections
        self._connections = 0

    async def open(self, address: Address) -> list[trio.SocketListener]:
        """Bind the address. Raises AddressInUse, or ConfigInvalid where it is not ours."""
        return await bind("peers", address)

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
                if hello.address is not None:
                    caller = f"the peer at {hello.address}"
                    await self._serve_peer(hello.address, conversation)
                else:
                    caller = "a client"
                    await self._ports[hello.group].serve_client(conversation)
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
                hello, name = self._admitted(frame)
            except MessageMalformed as error:
                await conversation.stream.send_all(encode_refused(error.problem))
                raise
            await conversation.stream.send_all(encode_welcome(name))
            return hello
        raise MessageMalformed(f"no introduction within {HELLO_TIMEOUT_S:g} s")

    def _admitted(self, frame: Frame) -> tuple[Hello, str]:
        """Who calls, and whom they reached. Raises MessageMalformed with the reason if nobody."""
        hello = decode_hello(frame)
        if hello.caller is Caller.PEER:
            return hello, str(self._dialled.home)
        port = self._ports.get(hello.group)
        if port is None:
            groups = ", ".join(sorted(self._ports)[:3]) or "no group yet"
            raise MessageMalformed(f"this is a node of {groups}, not of group {hello.group}")
        node_id = port.identity.node_id
        if hello.receiver not in ("", node_id):
            raise MessageMalformed(f"this is node {node_id}, not {hello.receiver}")
        return hello, node_id

    async def _serve_peer(self, address: Address, conversation: Conversation) -> None:
        peers = PeerConversation(self._ports, self._dialled, address)
        try:
            while frames := await conversation.frames():
                if answers := peers.take(frames):
                    await conversation.stream.send_all(b"".join(answers))
        finally:
            peers.end()
