"""Passes a client's connection on to the leading server, and to the next one after a change.

Clients of RocketMQ notice a connection that closes late, or not at all: a consumer waits half a
minute for the pull that was held. So a relay reads the headers of the frames that it passes on.
When its server is gone, it answers the waiting requests, and continues with the next server on the
same connection of the client. It cannot do so in the middle of a frame; then the client's
connection ends.

Java's clients of version 4 and the C++ client take any failed query of a group's offset (14) for
"none", and a consumer then skips messages. The relay repeats that query at the next server.

Each direction holds one read at most: it reads no more from one side until the other has taken it.

With TLS the relay ends that of the client, because it reads the frames. It speaks TLS of its own to
the server, which checks that a member of the group calls, and believes it the names in the client's
certificate.
"""

import logging
import math
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import trio

from dledger.network.tls import TlsRefused
from dledger.sockets import dialled
from remoting.net.address import Address, peer_address
from remoting.net.bounded_log import about_client
from remoting.net.proxy_header import encode_proxy_header
from remoting.net.relayed_names import encode_names
from remoting.net.reset_on_death import end_in_order
from remoting.net.tls import Secured
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import ONEWAY_FLAG, Command
from remoting.wire.errors import FrameError
from remoting.wire.field_values import read_int64
from remoting.wire.frame import decode_frame, encode_command
from remoting.wire.frame_watch import FrameWatch
from remoting.wire.quoted import quoted

_log = logging.getLogger(__name__)

# How long a server may take to accept; on a healthy network that is one round trip.
DIAL_S: Final = 2.0

# How long to look for the leading server, and the pause after one that cannot be reached.
SEARCH_S: Final = 5.0
_AGAIN_S: Final = 0.02

# A server that ends a connection sooner, without an answer, has refused it.
_REFUSED_WITHIN_S: Final = 1.0

# The last answers of a server that hands over leadership may take this long.
LAST_ANSWERS_S: Final = 0.1

# Before a client is dismissed, its requests other than pulls may take this long.
LET_GO_S: Final = 0.5

# A side that takes nothing for the first time, or two sides that are silent for the second, end a
# relay. The limits of served connections are the same: see ServerLimits.
UNREAD_S: Final = 15.0
IDLE_S: Final = 120.0

# Waiting requests of one client, which are answered here if the server is gone. A client with more
# in flight is dismissed then.
MAX_WAITING_REQUESTS: Final = 8192

# Fields of a query that is kept to be repeated; a longer query is forgotten instead.
MAX_KEPT_CHARACTERS: Final = 1024

_PULLS: Final = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})

# Waits for the leading server; returns None if there is none for too long.
FindServer: TypeAlias = Callable[[], Awaitable[Address | None]]

Turn: TypeAlias = Callable[[], Awaitable[None]]

# Does the handshake with the leading server as a member of its group. Raises TlsRefused.
ToServer: TypeAlias = Callable[[trio.SocketStream], Awaitable[trio.abc.Stream]]


class Relays:
    """The relayed connections.

    Args:
        turn: waits until the bytes of a read may be decoded; see `ClientWork.turn`.
        to_server: speaks TLS to servers; plain connections if None.
    """

    def __init__(
        self, turn: Turn = trio.lowlevel.checkpoint, to_server: ToServer | None = None
    ) -> None:
        self._turn = turn
        self._to_server = to_server
        self._relays: set[_Relay] = set()

    def __len__(self) -> int:
        return len(self._relays)

    def move_all(self) -> None:
        """Leave the servers: another one leads. Each relay finds the next one."""
        for relay in list(self._relays):
            relay.leave_server()

    def let_go_all(self) -> None:
        """Dismiss the clients before this process ends.

        No more of their requests are read. Once the requests in flight are answered, pulls are
        answered with 14, after which clients of Java and Go pause for 1 to 3 s, and the connections
        end.
        """
        for relay in list(self._relays):
            relay.let_client_go()

    async def relay(
        self,
        client: trio.SocketStream,
        peer: Address,
        find: FindServer,
        secured: Secured | None = None,
    ) -> None:
        """Pass a client on until it ends, or no server is found; then close its connection.

        Args:
            client: its connection.
            peer: its address, which the server is told.
            find: finds the leading server.
            secured: the client's connection with TLS, and its names, which the server is told.
        """
        here = peer_address(client.socket.getsockname())
        secured = secured or Secured(client)
        relay = _Relay(secured, peer, here, self._turn, self._to_server)
        self._relays.add(relay)
        try:
            await relay.run(find)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            _log.debug("a relay of %s ended: %s", peer, quoted(error))
        finally:
            self._relays.discard(relay)
            if not relay.leaves_unanswered:
                end_in_order(client)
            await trio.aclose_forcefully(client)


class _Relay:
    """One client, and its present server.

    A read from one side is decoded before it is written to the other, so a request that reached the
    server only in part counts as waiting.
    """

    def __init__(
        self,
        client: Secured,
        peer: Address,
        here: Address,
        turn: Turn,
        to_server: ToServer | None,
    ) -> None:
        self._turn = turn
        self._client = client.stream
        self._names = client.names
        self._peer = peer
        self._here = here
        self._to_server = to_server
        self._requests = FrameWatch(RequestCode.HEART_BEAT)
        self._answers = FrameWatch()
        self._waiting: dict[int, Command] = {}  # by opaque
        self._has_too_many = False  # whether more requests wait than are kept
        self._is_over = False  # whether the client has ended, or must be disconnected
        self._has_client_ended = False
        self._is_let_go = False
        self._asking: trio.CancelScope | None = None
        self._progress = trio.current_time()
        self._receiving: trio.CancelScope | None = None
        self._leave_at = math.inf
        self._was_answered = False  # by the present server

    @property
    def leaves_unanswered(self) -> bool:
        """Whether the client still waits for answers that will not come."""
        return bool(self._waiting) and not self._has_client_ended

    def _may_leave(self) -> bool:
        """Return whether only pulls wait for the server, and the client has whole answers."""
        return self._answers.is_between_frames and not self._waits_for_answers()

    def _waits_for_answers(self) -> bool:
        """Return whether requests other than pulls wait; pulls may be repeated."""
        return any(command.code not in _PULLS for command in self._waiting.values())

    def leave_server(self) -> None:
        """Continue with the next server, once this one has sent its last answers."""
        self._leave_by(LAST_ANSWERS_S)

    def _leave_by(self, within_s: float) -> None:
        self._leave_at = min(self._leave_at, trio.current_time() + within_s)
        if self._may_leave():
            self._leave_at = -math.inf
        if self._receiving is not None:
            self._receiving.deadline = self._leave_at

    def let_client_go(self) -> None:
        """Read no more requests, and end once only pulls wait for the server."""
        self._is_let_go = True
        if self._asking is not None:
            self._asking.cancel()
        self._leave_by(LET_GO_S)

    async def run(self, find: FindServer) -> None:
        """Pass on until the client has ended or no server accepts it."""
        refused_since = math.inf
        while not self._is_over:
            self._leave_at = math.inf
            self._was_answered = False
            server = await self._found(find)
            if server is None:
                return
            began = trio.current_time()
            try:
                await self._copy_both(server)
            finally:
                await trio.aclose_forcefully(server)
            if not self._is_over:
                await self._answer_waiting()
            if self._is_let_go:
                return
            now = trio.current_time()
            if self._was_answered or now > began + _REFUSED_WITHIN_S:
                refused_since = math.inf
                continue
            refused_since = min(refused_since, began)
            if now >= refused_since + SEARCH_S:
                return
            await trio.sleep(_AGAIN_S)

    async def _found(self, find: FindServer) -> trio.abc.Stream | None:
        """Return a connection to the leading server that knows the client, or None.

        A server that has just died may still count as the leader, so one that does not answer is
        tried again.
        """
        give_up_at = trio.current_time() + SEARCH_S
        while (target := await find()) is not None:
            server = await self._dialled(target)
            if server is not None or trio.current_time() >= give_up_at:
                return server
            await trio.sleep(_AGAIN_S)
        return None

    async def _dialled(self, target: Address) -> trio.abc.Stream | None:
        plain: trio.SocketStream | None = None
        try:
            with trio.move_on_after(DIAL_S):
                plain = await dialled(target.host, target.port)
                return await self._introduced(plain)
        except TlsRefused as error:
            _log.warning(
                "clients cannot be passed on to %s: %s",
                target,
                quoted(error.problem),
                extra=about_client(target.host),
            )
        except (OSError, trio.BrokenResourceError) as error:
            _log.debug("%s could not be passed on to %s: %s", self._peer, target, quoted(error))
        if plain is not None:
            await trio.aclose_forcefully(plain)
        return None

    async def _introduced(self, plain: trio.SocketStream) -> trio.abc.Stream:
        """Return a connection whose server knows the client."""
        by_member = self._to_server is not None
        hello = encode_proxy_header(self._peer, self._here, by_member=by_member)
        repeated = self._heartbeat() + self._repeated_queries()
        if self._to_server is None:
            await plain.send_all(hello + repeated)
            return plain
        await plain.send_all(hello)
        server = await self._to_server(plain)
        await server.send_all(encode_names(self._names) + repeated)
        return server

    def _heartbeat(self) -> bytes:
        """Return the client's last heartbeat, which names its groups, as a oneway request."""
        if self._requests.kept is None:
            return b""
        try:
            heartbeat = decode_frame(self._requests.kept)
            heartbeat.flag |= ONEWAY_FLAG
            return encode_command(heartbeat)
        except FrameError:
            return b""

    def _repeated_queries(self) -> bytes:
        """Return the queries that the last server has not answered, for the next one."""
        return b"".join(map(encode_command, self._waiting.values()))

    async def _copy_both(self, server: trio.abc.Stream) -> None:
        """Copy until the server is gone or must be left, or the client has ended."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._copy_requests, server, nursery.cancel_scope)
            await self._copy_answers(server)
            nursery.cancel_scope.cancel()

    async def _copy_requests(self, server: trio.abc.Stream, scope: trio.CancelScope) -> None:
        while True:
            if self._is_let_go:
                return
            data = b""
            with trio.CancelScope() as self._asking:
                try:
                    data = await self._received(self._client, self._requests.bytes_at_once)
                except trio.BrokenResourceError:
                    self._is_over = True
                    break
            if self._asking.cancelled_caught:
                return
            await self._turn_with_data()
            self._note_requests(data)
            try:
                if not data:
                    # The client has sent its last request; its answers may still come.
                    self._is_over = self._has_client_ended = True
                    if not isinstance(server, trio.SocketStream):
                        break  # TLS ends in both directions at once
                    await server.send_eof()
                    return
                if not await _sent(server, data):
                    self._is_over = True
                    break
            except trio.BrokenResourceError:
                self.leave_server()  # it is gone; finish the answer that is being written
                return
            self._progress = trio.current_time()
        scope.cancel()

    def _note_requests(self, data: bytes) -> None:
        for command in self._requests.pass_by(data):
            if command.code == RequestCode.UNREGISTER_CLIENT:
                self._requests.kept = None  # the heartbeat names a group that the client has left
            if command.is_response or command.is_oneway:
                continue
            if len(self._waiting) >= MAX_WAITING_REQUESTS:
                self._has_too_many = True
                return
            slim = command.without_content()
            if command.code in _PULLS:
                # Keep a number, as a long text would stay in memory while the client does not read.
                # The server refuses an offset that is no number.
                offset = read_int64(command.fields.get("queueOffset", ""))
                slim.fields["queueOffset"] = str(offset or 0)
            elif command.code == RequestCode.QUERY_CONSUMER_OFFSET:
                fields = command.fields
                if sum(map(len, fields)) + sum(map(len, fields.values())) <= MAX_KEPT_CHARACTERS:
                    slim.fields, slim.language = fields, command.language
            self._waiting[command.opaque] = slim

    async def _copy_answers(self, server: trio.abc.Stream) -> None:
        while True:
            data = b""
            if self._leave_at < math.inf and self._may_leave():
                return
            with trio.CancelScope(deadline=self._leave_at) as self._receiving:
                try:
                    data = await self._received(server, self._answers.bytes_at_once)
                except trio.BrokenResourceError:
                    return  # the server is gone
            if not data:
                return
            self._was_answered = True
            await self._turn_with_data()
            for command in self._answers.pass_by(data):
                if command.is_response:
                    self._waiting.pop(command.opaque, None)
            if not await self._told(data):
                return
            self._progress = trio.current_time()

    async def _turn_with_data(self) -> None:
        """Wait for a turn. Bytes that were read must be noted even if the server is left
        meanwhile.
        """
        with trio.CancelScope(shield=True):
            await self._turn()

    async def _received(self, source: trio.abc.Stream, max_bytes: int) -> bytes:
        """Read from one side; empty at its end, or if both sides were silent for too long."""
        while True:
            with trio.move_on_at(self._progress + IDLE_S) as idle:
                return bytes(await source.receive_some(max_bytes))
            if idle.cancelled_caught and self._progress + IDLE_S <= trio.current_time():
                self._is_over = True
                return b""

    async def _answer_waiting(self) -> None:
        """Answer the waiting requests, except queries that the next server gets.

        If that is not possible, the client's connection ends.
        """
        between = self._requests.is_between_frames and self._answers.is_between_frames
        if self._has_too_many or not between:
            self._is_over = True
            return
        waiting, self._waiting = self._waiting, {}
        answers: list[bytes] = []
        for opaque, command in waiting.items():
            if command.code != RequestCode.QUERY_CONSUMER_OFFSET:
                answers.append(encode_command(_answer_to(command, is_let_go=self._is_let_go)))
            elif command.fields:
                self._waiting[opaque] = command
        await self._told(b"".join(answers))

    async def _told(self, data: bytes) -> bool:
        """Write to the client; return False if it takes nothing for too long, or is gone."""
        try:
            taken = await _sent(self._client, data)
        except trio.BrokenResourceError:
            taken = False
        self._is_over = self._is_over or not taken
        return taken


def _answer_to(command: Command, *, is_let_go: bool) -> Command:
    """Return the answer to a request whose server is gone.

    A pull finds no message and is repeated; the outcome of other requests is unknown. A pull of a
    dismissed client is repeated after a pause, because it must not come here again.
    """
    if command.code in _PULLS and is_let_go:
        return command.reply(ResponseCode.SERVICE_NOT_AVAILABLE, remark="this member ends")
    if command.code in _PULLS:
        offset = command.fields.get("queueOffset", "0")
        fields = {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": offset,
            "minOffset": "0",
            "maxOffset": offset,
        }
        return command.reply(ResponseCode.PULL_RETRY_IMMEDIATELY, fields, remark="leadership moves")
    remark = "it may or may not have been carried out: leadership moved meanwhile"
    return command.reply(ResponseCode.SYSTEM_ERROR, remark=remark)


async def _sent(target: trio.abc.Stream, data: bytes) -> bool:
    """Write; return False if the other side takes nothing for too long.

    Raises trio.BrokenResourceError if it is gone.
    """
    with trio.move_on_after(UNREAD_S) as unread:
        await target.send_all(data)
    return not unread.cancelled_caught
