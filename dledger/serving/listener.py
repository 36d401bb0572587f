"""Accepts connections of peers and clients, and passes each to the member that it names."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import NamedTuple

import trio

from dledger.config import Address
from dledger.errors import MessageMalformed
from dledger.network.binding import bind
from dledger.network.connections import Connections
from dledger.network.conversation import Conversation
from dledger.network.host_connection import RECEIVE_BYTES
from dledger.network.network import Listeners
from dledger.network.secure_stream import SecureStream
from dledger.network.tls import GroupTls, Stream, TlsRefused, names_shown
from dledger.serving.group_port import GroupPort
from dledger.serving.peer_conversation import PeerConversation
from dledger.serving.permit import EVERYTHING, Permit, prove
from dledger.sockets import serve_accepted
from dledger.wire.frame import HTTP_ANSWER, Frame, HttpSpoken, is_http_request
from dledger.wire.handshake import (
    MOST_GROUPS_NAMED,
    Caller,
    Hello,
    Refused,
    decode_hello,
    encode_refused,
    encode_welcome,
)
from dledger.wire.rights import Authority

logger = logging.getLogger(__name__)

# A caller has this long to introduce itself, and with TLS to prove its name. Then it only holds a
# socket, and is disconnected.
HELLO_TIMEOUT_S = 5.0

# Connections at a time: peers are few, and each client tool holds one.
MAX_CONNECTIONS = 256

# TLS handshakes at a time, among these connections. A handshake holds up the event loop for about
# one millisecond: all of them together take an eighth of the shortest election timeout, and three
# quarters of the connections stay free for callers that have shown a certificate. Where users are
# asked for without TLS, as many callers may have proven nothing yet.
MAX_HANDSHAKES = 64

# A process opens the members of its groups one after another. Until this time after its start, a
# caller of a group that has no member here is told to try again. Recovery of a large log takes
# seconds.
OPENING_S = 60.0

# The first byte of every connection with TLS. A frame that begins with it would be over any limit.
_TLS_BEGINS = b"\x16"

_SPEAK_TLS = "TLS is spoken here: give a certificate, its key and the group's authority"


class _Caller(NamedTuple):
    hello: Hello
    port: GroupPort | None  # of the member that a client asks for; None for a peer
    conversation: Conversation
    names: frozenset[str] | None  # in its certificate; None without TLS
    permit: Permit


class Listener:
    """The listening socket of a process.

    Args:
        ports: the members in this process, by group.
        connections: the outgoing connections of this process.
        max_groups: how many groups may have members here.
        authority: says who the users are, and what they may do; None: everybody may do everything.
    """

    def __init__(
        self,
        ports: Mapping[str, GroupPort],
        connections: Connections,
        max_groups: int = 1,
        authority: Authority | None = None,
    ) -> None:
        self._authority = authority
        self._ports = ports
        self._max_groups = max_groups
        self._opened_at = math.inf
        self._dialled = connections
        self._refusals = connections.refusals
        self._connections = 0
        self._handshakes = 0

    async def open(self, address: Address) -> Listeners:
        """Bind the address. Raises AddressInUse, or ConfigInvalid if this machine does not have
        it.
        """
        self._opened_at = trio.current_time()
        setting = "peers" if address == self._dialled.home else "listen"
        return await bind(setting, address, self._dialled.network.listen)

    async def serve(self, listeners: Listeners) -> None:
        await serve_accepted(self._serve_one, listeners, "members and clients")

    async def _serve_one(self, stream: Stream) -> None:
        if self._connections >= MAX_CONNECTIONS:
            self._refusals.add("connections", f"a connection: {self._connections} are open")
            await stream.aclose()
            return
        self._connections += 1
        caller = f"a caller from {_place(stream)}"
        port: GroupPort | None = None
        try:
            async with stream:
                introduced = await self._introduction(stream)
                if introduced is None:
                    return
                hello, port, conversation, names, permit = introduced
                if port is not None:
                    caller = "a client"
                    await port.serve_client(conversation, permit)
                elif hello.address is not None:
                    caller = f"the peer at {hello.address}"
                    await self._serve_peer(hello.address, conversation, names, permit)
        except TlsRefused as error:
            self._refusals.add("tls", f"{caller}: {error.problem}")
        except MessageMalformed as error:
            if isinstance(error, Refused) and error.challenge is not None:
                self._refusals.add("users", f"{caller}: {error.problem}")
            else:
                logger.warning("closed the connection of %s: %s", caller, error.problem)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            logger.debug("the connection of %s broke: %s", caller, error)
        except Exception as error:
            # A bug met while serving one caller must not end the members of all groups.
            if port is not None:
                port.driver.fail(error)
            else:
                logger.exception("closed the connection of %s", caller)
        finally:
            self._connections -= 1

    async def _introduction(self, accepted: Stream) -> _Caller | None:
        with trio.move_on_after(HELLO_TIMEOUT_S):
            names = None
            stream, place = accepted, _address(accepted)
            host = "" if place is None else place.host
            if (tls := self._dialled.tls) is not None:
                assert isinstance(accepted, trio.SocketStream), "TLS is spoken over sockets"
                secure = await self._proven(accepted, tls)
                if secure is None:
                    return None
                stream, names = secure, names_shown(secure)
            conversation = Conversation(stream)
            try:
                with self._place_among_unproven(names):
                    frame = await conversation.next_frame()
                    if frame is None:
                        return None
                    hello, port, name = self._admitted(frame)
                    permit = await self._permit(hello, port, conversation, names, host)
            except MessageMalformed as error:
                # Another version or protocol is a lasting problem. The bytes of a TLS caller look
                # like a frame over any limit; any plain answer tells it that TLS is not spoken.
                with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    await conversation.stream.send_all(_refusal(error))
                raise
            conversation.welcomed()
            await conversation.stream.send_all(encode_welcome(name))
            return _Caller(hello, port, conversation, names, permit)
        raise MessageMalformed(f"no introduction within {HELLO_TIMEOUT_S:g} s")

    async def _proven(self, socket: trio.SocketStream, tls: GroupTls) -> SecureStream | None:
        """Return the stream of a caller with a certificate of the group. Raises TlsRefused.

        None if the caller left without sending a byte, as port scanners do.
        """
        if self._handshakes >= MAX_HANDSHAKES:
            raise TlsRefused(f"{self._handshakes} other TLS handshakes are still running")
        self._handshakes += 1
        try:
            first = await socket.socket.recv(1, trio.socket.MSG_PEEK)
            if not first:
                return None
            if first != _TLS_BEGINS:
                # Read what arrived: closing a socket with unread bytes could discard the answer.
                spoken = await socket.receive_some(RECEIVE_BYTES)
                answer = encode_refused(_SPEAK_TLS, lasting=True)
                await socket.send_all(HTTP_ANSWER if is_http_request(spoken) else answer)
                raise TlsRefused("it does not speak TLS")
            return await tls.accepted(socket)
        finally:
            self._handshakes -= 1

    @contextmanager
    def _place_among_unproven(self, names: frozenset[str] | None) -> Iterator[None]:
        """Count a caller that has proven nothing yet, if something is asked for. Raises Refused."""
        if names is not None or self._authority is None or not self._authority.asks:
            yield
            return
        if self._handshakes >= MAX_HANDSHAKES:
            problem = f"{self._handshakes} other callers have not proven who they are yet"
            raise Refused(problem, challenge=b"")
        self._handshakes += 1
        try:
            yield
        finally:
            self._handshakes -= 1

    async def _permit(
        self,
        hello: Hello,
        port: GroupPort | None,
        conversation: Conversation,
        names: frozenset[str] | None,
        host: str,
    ) -> Permit:
        """Return what a caller may do, after it has proven who it is. Raises Refused.

        A certificate that counts is proof enough; all others are asked for a secret.
        """
        if (authority := self._authority) is None:
            return EVERYTHING
        make = partial(Permit, authority, names=names, host=host)
        if port is not None:
            make = partial(make, node_id=port.identity.node_id, names_member=port.names_member)
        permit = make()
        if permit.is_member if port is None else permit.is_proven:
            return permit
        return make(shown=await prove(hello, conversation, authority))

    def _admitted(self, frame: Frame) -> tuple[Hello, GroupPort | None, str]:
        """Return the caller, the port of the member that a client asks for, and the name to answer
        with.

        Raises MessageMalformed if there is no such member here.
        """
        hello = decode_hello(frame)
        if hello.caller is Caller.PEER:
            return hello, None, str(self._dialled.home)
        port = self._ports.get(hello.group)
        if port is None:
            named = tuple(sorted(self._ports)[:MOST_GROUPS_NAMED])
            groups = ", ".join(named) or "no group yet"
            problem = f"this is a node of {groups}, not of group {hello.group}"
            raise Refused(problem, self._all_are_open(), named)
        node_id = port.identity.node_id
        if hello.receiver not in ("", node_id):
            raise Refused(f"this is node {node_id}, not {hello.receiver}", lasting=True)
        return hello, port, node_id

    def _all_are_open(self) -> bool:
        """Return whether no further group is about to be opened here."""
        opened = bool(self._ports) and trio.current_time() >= self._opened_at + OPENING_S
        return opened or len(self._ports) >= self._max_groups

    async def _serve_peer(
        self,
        address: Address,
        conversation: Conversation,
        names: frozenset[str] | None,
        permit: Permit,
    ) -> None:
        peers = PeerConversation(self._ports, self._dialled, address, permit, names)
        try:
            while await conversation.wait():
                if not permit.is_member:  # it proves itself anew on its next connection
                    raise Refused("what it has proven counts no more", challenge=b"")
                if answers := peers.take(conversation.cut()):
                    await conversation.stream.send_all(b"".join(answers))
        finally:
            peers.end()


def _refusal(error: MessageMalformed) -> bytes:
    """Return the answer to a caller whose introduction is refused."""
    if isinstance(error, HttpSpoken):
        return HTTP_ANSWER
    said = error if isinstance(error, Refused) else Refused(error.problem, lasting=True)
    return encode_refused(said.problem, said.lasting, said.groups, said.challenge)


def _place(stream: Stream) -> str:
    """Return the address of a caller, if the socket still has it."""
    address = _address(stream)
    return "somewhere" if address is None else str(address)


def _address(stream: Stream) -> Address | None:
    if not isinstance(stream, trio.SocketStream):
        return None
    try:
        host, port, *_ = stream.socket.getpeername()
    except OSError:
        return None
    return Address(host, port)
