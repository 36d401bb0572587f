"""A server: accepts connections and hands their requests to one handler."""

import errno
import logging
import math
import socket
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Protocol, TypeAlias

import trio

from dledger.network.tls import TlsRefused
from dledger.sockets import TELL_S, accepted, listening
from dledger.system_refusals import Refusal
from remoting.net.address import Address, peer_address
from remoting.net.answering import failure_reply, log_failure
from remoting.net.bounded_log import about_client
from remoting.net.client_work import ClientWork
from remoting.net.connection import Connection, ConnectionLimits
from remoting.net.descriptors import connections_allowed
from remoting.net.errors import (
    ConnectionClosed,
    IdleTooLong,
    ListenFailed,
    PeerDoesNotRead,
    PortInUse,
    ServerOutOfRoom,
)
from remoting.net.handshakes import HandshakePlaces
from remoting.net.held_bytes import HeldBytes
from remoting.net.host_shares import HostShares
from remoting.net.proxy_header import (
    FIRST_BYTE,
    HEAD_BYTES,
    ProxyHeader,
    ProxyHeaderMalformed,
    decode_proxy_header,
    proxy_header_bytes,
)
from remoting.net.reads_in_turns import ReadsInTurns
from remoting.net.reset_on_death import end_in_order, reset_on_death
from remoting.net.tls import Secured, ServerTls, exactly
from remoting.wire.command import Command
from remoting.wire.errors import ProtocolDiffers, RemotingError
from remoting.wire.quoted import quoted

_log = logging.getLogger(__name__)

# How often connections are checked for silence and for requests without a reply.
SWEEP_S: Final = 0.5

# How long a TLS handshake may take; a healthy one takes a few round trips.
HANDSHAKE_S: Final = 10.0

# A sweep that is later than this shows that the process was stopped.
_STOPPED_S: Final = 5.0

# The first byte of a TLS connection. No frame begins with it: its length would be over 16 MiB.
_TLS_HANDSHAKE: Final = b"\x16"

# Our requests to clients are numbered from here: see RequestTable.
_FIRST_OPAQUE: Final = 1 << 30


class ConnectionHandler(Protocol):
    """Handles the connections of a server. All three methods must not block."""

    def on_open(self, connection: Connection) -> None: ...

    def on_commands(self, connection: Connection, commands: Sequence[Command]) -> int:
        """Take requests that arrived in one read. Reply by `connection.send`, now or later.

        Returns how many were taken: at least one, and all while `connection.is_turn_over` is false.
        The others are handed over again in the connection's next turn.
        """
        ...

    def on_close(self, connection: Connection) -> None:
        """A connection is gone. Called exactly once for each."""


class Gate(Protocol):
    async def __call__(self, stream: trio.SocketStream, peer: Address) -> bool:
        """Serve a connection elsewhere to its end; or return False to have it served here.

        Nothing was read from `stream`. The server closes it in the end.
        """
        ...


# Returns whether a host may name its client by a PROXY header.
TrustsProxy: TypeAlias = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits of a server.

    Attributes:
        max_connections: further ones are closed at once, and those of a host that has four fifths
            of them. A client process opens one or two. None: as many as the process may open files
            for, and 65536 at most.
        idle_s: a connection silent in both directions for this long is closed; RocketMQ's
            value. Clients send heartbeats every 30 seconds.
        unread_s: a connection whose peer takes nothing of its answers for this long is
            closed. A network that lost a packet is silent for a few seconds.
        spare_descriptors: files that the process needs besides connections. Its limit of open files
            less these is the most connections, if that is below `max_connections`.
        max_held_bytes: of all connections: incomplete frames, requests that are being answered, and
            answers not yet taken. Above half of it, connections with unread answers are read no
            further; above all of it, those without progress for the longest time are closed.
        connection: limits of each connection.
    """

    max_connections: int | None = None
    idle_s: float = 120.0
    unread_s: float = 15.0
    spare_descriptors: int = 256
    max_held_bytes: int = 256 * 1024 * 1024
    connection: ConnectionLimits = field(default_factory=ConnectionLimits)

    def within_descriptors(self) -> "ServerLimits":
        """Return limits with a number of connections that the process may open files for.

        A lower number is logged. A server does this itself; a program with other duties can do it
        before it starts anything.

        Raises:
            TooFewDescriptors: the process may open too few files.
        """
        allowed = connections_allowed(self.max_connections, self.spare_descriptors)
        return replace(self, max_connections=allowed)


async def serve(
    host: str,
    port: int,
    handler: ConnectionHandler,
    *,
    task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED,
    limits: ServerLimits | None = None,
    tls: ServerTls | None = None,
) -> None:
    """Listen, and serve until cancelled. Start it by `nursery.start`, which returns the address.

    Args:
        host: the address to listen on; "0.0.0.0" is every IPv4 address of the machine.
        port: 0 takes a free one.
        handler: handles connections and requests.
        task_status: gets the address listened on.
        limits: the defaults if None.
        tls: only plain connections if None.

    Raises:
        PortInUse: another program listens there.
        ListenFailed: the address is not this machine's, or the port may not be used.
        TooFewDescriptors: the process may open too few files.
    """
    listeners = await listen(host, port)
    await serve_listeners(listeners, handler, task_status=task_status, limits=limits, tls=tls)


async def serve_listeners(
    listeners: list[trio.SocketListener],
    handler: ConnectionHandler,
    *,
    task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED,
    limits: ServerLimits | None = None,
    tls: ServerTls | None = None,
) -> None:
    """Serve listeners of `listen` like `serve` until cancelled, and close them. Raises
    TooFewDescriptors.
    """
    async with AsyncExitStack() as stack:
        for listener in listeners:
            stack.push_async_callback(listener.aclose)
        server = Server(handler, limits, tls)
        nursery = await stack.enter_async_context(trio.open_nursery())
        nursery.start_soon(server.run)
        await server.take(listeners, task_status=task_status)


async def listen(host: str, port: int, *, is_shared: bool = False) -> list[trio.SocketListener]:
    """Take a port. trio sets TCP_NODELAY on accepted connections.

    For programs with other duties: a taken port is then known before anything else starts.

    Args:
        host: as for `serve`.
        port: as for `serve`.
        is_shared: other processes of the same user may listen on the same port in the same way, and
            the system spreads connections over all of them (SO_REUSEPORT). `host` is an IPv4
            address.

    Raises:
        PortInUse: another program listens there.
        ListenFailed: the address is not this machine's, or the port may not be used.
    """
    if not 0 <= port <= 65535:
        raise ListenFailed(host, port, "a port is 0 to 65535")
    if is_shared and not hasattr(socket, "SO_REUSEPORT"):
        raise ListenFailed(host, port, "this system cannot share a port among processes")
    try:
        return await listening(host, port, is_shared=is_shared)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(host, port) from None
        raise ListenFailed(host, port, error.strerror or str(error)) from None


class Server:
    """Connections of any number of listeners, within the same limits.

    Args:
        handler: handles connections and requests.
        limits: the defaults if None.
        tls: only plain connections if None.
        client_work: where the connections take turns; None makes one.

    Attributes:
        client_work: where the connections take turns.

    Raises:
        TooFewDescriptors: the process may open too few files.
    """

    def __init__(
        self,
        handler: ConnectionHandler,
        limits: ServerLimits | None = None,
        tls: ServerTls | None = None,
        client_work: ClientWork | None = None,
    ) -> None:
        self.client_work = ClientWork() if client_work is None else client_work
        limits = (limits or ServerLimits()).within_descriptors()
        self._handler = handler
        self._limits = limits
        self._tls = tls
        self._handshakes = HandshakePlaces()
        self._connections: set[Connection] = set()
        self._held = HeldBytes(limits.max_held_bytes, self._relieve)
        self._logged_full_at = self._logged_descriptors_at = -math.inf
        self._descriptors = HostShares(limits.max_connections or 0)

    async def take(
        self,
        listeners: list[trio.SocketListener],
        *,
        gate: Gate | None = None,
        trusts_proxy: TrustsProxy | None = None,
        nursery: trio.Nursery | None = None,
        task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Accept connections of listeners until cancelled; then close both. `run` must run.

        Args:
            listeners: of `listen`.
            gate: called for each connection; None serves all.
            trusts_proxy: which hosts' PROXY headers are believed; None believes none. A client of
                such
                a host is served once its first byte has come.
            nursery: runs the connections, which then outlive the listeners; None: they end
                together.
            task_status: gets the address listened on.
        """
        async with AsyncExitStack() as stack:
            for listener in listeners:
                stack.push_async_callback(listener.aclose)
            task_status.started(peer_address(listeners[0].socket.getsockname()))
            accepting = await stack.enter_async_context(trio.open_nursery())
            for listener in listeners:
                accepting.start_soon(
                    self._accept, listener, nursery or accepting, gate, trusts_proxy
                )

    async def _accept(
        self,
        listener: trio.SocketListener,
        nursery: trio.Nursery,
        gate: Gate | None,
        trusts_proxy: TrustsProxy | None,
    ) -> None:
        while True:
            stream = await accepted(listener, self._tell_refusal)
            nursery.start_soon(self._take_stream, stream, gate, trusts_proxy)

    def _tell_refusal(self, found: Refusal) -> None:
        now = trio.current_time()
        if now >= self._logged_descriptors_at + TELL_S:
            self._logged_descriptors_at = now
            _log.warning(
                "no connection can be accepted while %d are open: %s; %s",
                len(self._connections),
                quoted(found.meaning),
                quoted(found.cure),
            )

    def _relieve(self, count: int) -> None:
        """Close the connections with the oldest progress, until they held `count` bytes."""
        stalled = [
            (connection.stalled_since(), number, connection)
            for number, connection in enumerate(self._connections)
        ]
        for since, _number, connection in sorted(stalled):
            # A connection that only waits for our answers frees nothing.
            if count <= 0 or since == math.inf:
                return
            held = connection.held_bytes
            count -= held
            limit_bytes = self._limits.max_held_bytes
            connection.close(ServerOutOfRoom(str(connection.peer), held, limit_bytes))

    async def run(self) -> None:
        """Take turns for the connections, and check them, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.client_work.run)
            nursery.start_soon(self._sweep)

    async def _sweep(self) -> None:
        before = trio.current_time()
        while True:
            await trio.sleep(SWEEP_S)
            now = trio.current_time()
            # After a stop, the process must first send what its peers would have taken meanwhile.
            was_stopped = now - before > _STOPPED_S
            before = now
            look = partial(self._look_at, now=now, was_stopped=was_stopped)
            self.client_work.each("looking at connections", list(self._connections), look)

    def _look_at(self, connection: Connection, now: float, was_stopped: bool) -> None:
        connection.expire(now)
        silent = now - connection.last_activity
        if silent >= self._limits.idle_s:
            connection.close(IdleTooLong(str(connection.peer), silent))
        unread = connection.unread_s(now)
        if unread >= self._limits.unread_s and not was_stopped:
            unsent = connection.unsent_bytes
            connection.close(PeerDoesNotRead(str(connection.peer), unsent, unread))

    async def _take_stream(
        self, stream: trio.SocketStream, gate: Gate | None, trusts_proxy: TrustsProxy | None
    ) -> None:
        """Serve one client from its first byte to its last. Raises only when cancelled."""
        try:
            peer = peer_address(stream.socket.getpeername())
        except OSError as error:
            _log.debug("a client left before it was served: %s", quoted(error))
            await trio.aclose_forcefully(stream)
            return
        descriptors, host = 1 if gate is None else 2, peer.host  # a gate may open a connection too
        has_room = self._descriptors.has_room(host, descriptors)
        if trusts_proxy is not None and trusts_proxy(host):
            has_room = descriptors <= self._descriptors.left  # it has clients of many hosts
        if not has_room:
            now = trio.current_time()
            if now >= self._logged_full_at + TELL_S:
                self._logged_full_at = now
                _log.warning(
                    "connection from %s refused: of %d descriptors for connections %d are taken, "
                    "%d of them by its host; raise --max-connections or close some",
                    peer,
                    self._limits.max_connections,
                    self._descriptors.taken,
                    self._descriptors.of(host),
                )
            await trio.aclose_forcefully(stream)
            return
        found: ProxyHeader | None = None
        self._descriptors.take(host, descriptors)
        reset_on_death(stream)
        try:
            found = await self._client_to_serve(stream, peer, gate, trusts_proxy)
        except Exception:
            _log.exception("the connection of %s is closed", peer)
        finally:
            self._descriptors.give_back(host, descriptors)
            if found is None:
                end_in_order(stream)
                await trio.aclose_forcefully(stream)
        if found is not None:
            self._descriptors.take(host)
            try:
                await self._serve_stream(stream, found.client or peer, by_member=found.by_member)
            finally:
                self._descriptors.give_back(host)

    async def _client_to_serve(
        self,
        stream: trio.SocketStream,
        peer: Address,
        gate: Gate | None,
        trusts_proxy: TrustsProxy | None,
    ) -> ProxyHeader | None:
        """Return the client to serve; None if its connection is over already."""
        found: ProxyHeader | None = ProxyHeader(peer)
        if trusts_proxy is not None and trusts_proxy(peer.host):
            found = await self._named_client(stream, peer)
            if found is None or found.client != peer:
                end_in_order(stream)  # a relay notices the end; it shall get the last answers
        if found is not None and gate is not None and await gate(stream, found.client or peer):
            return None
        return found

    async def _named_client(self, stream: trio.SocketStream, peer: Address) -> ProxyHeader | None:
        """Return the client of a trusted host: the one in its header, or the host itself.

        None if the connection must be closed.
        """
        head = b""
        try:
            with trio.move_on_after(self._limits.idle_s):
                if not (first := await self._first_byte(stream)):
                    return None
                if first != FIRST_BYTE:
                    return ProxyHeader(peer)
                head = await exactly(stream, HEAD_BYTES, ProxyHeaderMalformed)
                rest = proxy_header_bytes(head) - HEAD_BYTES
                body = await exactly(stream, rest, ProxyHeaderMalformed)
                header = decode_proxy_header(head + body)
                return header._replace(client=header.client or peer)
        except ProxyHeaderMalformed as error:
            about = about_client(peer.host)
            _log.warning("connection from %s closed: %s", peer, quoted(error), extra=about)
        except (OSError, trio.BrokenResourceError) as error:
            _log.debug("%s left before it was served: %s", peer, quoted(error))
        return None

    async def _serve_stream(
        self, stream: trio.SocketStream, peer: Address, *, by_member: bool
    ) -> None:
        connection = Connection(
            peer, self._limits.connection, _FIRST_OPAQUE, self._held, self.client_work
        )
        self._connections.add(connection)
        try:
            self._handler.on_open(connection)
            if self._tls is None:
                await connection.run(stream, self._receive)
                return
            secured = await self.secured(stream, peer, by_member=by_member)
            if secured is None:
                connection.close("the client spoke no TLS, or its handshake failed")
            else:
                connection.names = secured.names
                await connection.run(secured.stream, self._receive)
        except Exception:
            _log.exception("serving %s failed; its connection is closed", peer)
        finally:
            connection.close("the server ended it")
            self._connections.discard(connection)
            self._tell_closed(connection)
            _log_close(connection)
            end_in_order(stream)
            await trio.aclose_forcefully(stream)

    async def secured(
        self, stream: trio.SocketStream, peer: Address, *, by_member: bool = False
    ) -> Secured | None:
        """Return the connection of a client, plain or with TLS by its first byte.

        None, and a line in the log, if the client may not speak like that, or its handshake failed.
        The caller closes `stream`. Each handshake waits for a place, and is done in its turn.

        Args:
            stream: accepted, and nothing of it read.
            peer: the client.
            by_member: whether a member of the group passes the client on.
        """
        if (tls := self._tls) is None:
            return Secured(stream)
        about = about_client(peer.host)
        try:
            first = b""
            with trio.move_on_after(self._limits.idle_s):
                first = await self._first_byte(stream)
            if first != _TLS_HANDSHAKE:
                if not first:
                    return None
                if not tls.required and not by_member:
                    return Secured(stream)
                _log.warning(
                    "plain connection from %s closed: only TLS is taken here; use TLS in the "
                    "client, as with tls.enable=true",
                    peer,
                    extra=about,
                )
                return None
            begun = False
            with trio.move_on_after(HANDSHAKE_S):
                async with self._handshakes.place(peer.host):
                    begun = True
                    reads = ReadsInTurns(stream, self.client_work)
                    secured = await tls.accepted(reads, by_member=by_member)
                    reads.handshake_is_over()
                    return secured
            problem = "no whole handshake" if begun else "no place among the other handshakes"
            raise TlsRefused(f"{problem} within {HANDSHAKE_S:g} s")
        except TlsRefused as error:
            _log.warning("TLS with %s failed: %s", peer, quoted(error.problem), extra=about)
        except (OSError, trio.BrokenResourceError) as error:
            _log.debug("%s left before it was served: %s", peer, quoted(error))
        return None

    async def _first_byte(self, stream: trio.SocketStream) -> bytes:
        """Wait for a client's first byte, and leave it there; empty if the client has left."""
        await self.client_work.readable(stream.socket.fileno())
        return await stream.socket.recv(1, trio.socket.MSG_PEEK)

    def _receive(self, connection: Connection, commands: Sequence[Command]) -> int:
        """Hand over commands. An exception answers every command of the turn that wants a reply.

        Handlers that answer one by one use `answer_each`, which raises nothing.
        """
        try:
            return self._handler.on_commands(connection, commands)
        except Exception as error:
            log_failure(connection.peer, commands[0], error)
            for command in commands:
                connection.send(failure_reply(command, error))
            return len(commands)

    def _tell_closed(self, connection: Connection) -> None:
        """Call the handler; its exception must not reach the other connections."""
        try:
            self._handler.on_close(connection)
        except Exception:
            _log.exception("the handler failed when %s closed", connection.peer)


def _log_close(connection: Connection) -> None:
    """Log a connection that we had to close; a client that leaves is no news."""
    error: RemotingError | None = connection.close_error
    if isinstance(error, ConnectionClosed):
        _log.debug("connection with %s closed: %s", connection.peer, quoted(error.reason))
        return
    whose = connection.peer.host
    if isinstance(error, ProtocolDiffers):
        whose += f" by {error.protocol}"  # so that each protocol has its own line
    about = about_client(whose)
    _log.warning("connection with %s closed: %s", connection.peer, quoted(error), extra=about)
