"""Passes a client's connection on to the server that leads, and to the next one when that changes.

Clients of RocketMQ notice a connection that closes late, or not at all: a consumer waits half a
minute for the pull that was held. So a relay looks at the headers of what it passes on. When its
server is gone, it answers the requests that wait, and goes on with the next server on the same
connection of the client. It cannot do so in the midst of a frame; then the client's connection
ends.

Java's clients of version 4 and the C++ client take any failure of the question for a group's offset
(14) for "none", and a consumer then skips messages. That one is asked again of the next server.

Each direction holds one read at most: what one side does not take, is not read from the other.
"""

import logging
import math
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import trio

from dledger.sockets import dialled
from remoting.net.address import Address, peer_address
from remoting.net.proxy_header import encode_proxy_header
from remoting.net.reset_on_death import end_in_order
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import ONEWAY_FLAG, Command
from remoting.wire.errors import FrameError
from remoting.wire.field_values import read_int64
from remoting.wire.frame import decode_frame, encode_command
from remoting.wire.frame_watch import FrameWatch
from remoting.wire.quoted import quoted

_log = logging.getLogger(__name__)

# How long the other server may take to accept; on a healthy network that is one round trip.
DIAL_S: Final = 2.0

# How long to look for the server that leads, and the pause after one that cannot be reached.
SEARCH_S: Final = 5.0
_AGAIN_S: Final = 0.02

# A server that ends a connection sooner, and has answered nothing, did not want it.
_REFUSED_WITHIN_S: Final = 1.0

# A server that hands leadership over has its last answers under way when it is left.
LAST_ANSWERS_S: Final = 0.1

# A client that is let go has so long to get the answers to what it has asked but pulls.
LET_GO_S: Final = 0.5

# A side that takes nothing for so long, or two sides that say nothing for so long, end a relay.
# The same as for connections that are served: see ServerLimits.
UNREAD_S: Final = 15.0
IDLE_S: Final = 120.0

# Requests of one client that wait for their answers, and are answered here if the server is gone. A
# client that has more under way is let go instead.
MAX_WAITING_REQUESTS: Final = 8192

# Fields of a question that is kept to be asked again; a longer one is forgotten instead.
MAX_KEPT_CHARACTERS: Final = 1024

_PULLS: Final = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})

# Finds the server to pass a client on to; waits for it; None when there is none for too long.
FindServer: TypeAlias = Callable[[], Awaitable[Address | None]]


Turn: TypeAlias = Callable[[], Awaitable[None]]


class Relays:
    """The connections that are passed on.

    Args:
        turn: waits until what was read may be looked at; see `ClientWork.turn`.
    """

    def __init__(self, turn: Turn = trio.lowlevel.checkpoint) -> None:
        self._turn = turn
        self._relays: set[_Relay] = set()

    def __len__(self) -> int:
        return len(self._relays)

    def move_all(self) -> None:
        """Leave the servers: another one leads. Each relay finds the next one."""
        for relay in list(self._relays):
            relay.leave_server()

    def let_go_all(self) -> None:
        """Let the clients go, as this process is about to end. No more of their requests are read;
        when they have the answers to those under way, their pulls are answered with 14, after which
        clients of Java and Go pause for 1 to 3 s, and their connections end.
        """
        for relay in list(self._relays):
            relay.let_client_go()

    async def relay(self, client: trio.SocketStream, peer: Address, find: FindServer) -> None:
        """Pass a client on until it ends, or no server is found; closes its connection.

        `peer` is the client's address, of which the server is told.
        """
        relay = _Relay(client, peer, self._turn)
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
    """One client, and its server of now.

    What is read of one side is looked at before it is written to the other, so a request of which
    only a part reached the server counts as one that waits.
    """

    def __init__(self, client: trio.SocketStream, peer: Address, turn: Turn) -> None:
        self._turn = turn
        self._client = client
        self._peer = peer
        self._here = peer_address(client.socket.getsockname())
        self._requests = FrameWatch(RequestCode.HEART_BEAT)
        self._answers = FrameWatch()
        self._waiting: dict[int, Command] = {}  # by number
        self._has_too_many = False  # more than are kept
        self._is_over = False  # the client has ended, or is to be let go
        self._has_client_ended = False
        self._is_let_go = False
        self._asking: trio.CancelScope | None = None
        self._progress = trio.current_time()
        self._receiving: trio.CancelScope | None = None
        self._leave_at = math.inf
        self._was_answered = False  # by the server of now

    @property
    def leaves_unanswered(self) -> bool:
        """Whether the client waits for answers of which none comes by its connection."""
        return bool(self._waiting) and not self._has_client_ended

    def _may_leave(self) -> bool:
        """Whether the server of now owes nothing but pulls, and the client has whole answers."""
        return self._answers.is_between_frames and not self._waits_for_answers()

    def _waits_for_answers(self) -> bool:
        """Whether requests wait but pulls, which may be asked again for nothing."""
        return any(command.code not in _PULLS for command in self._waiting.values())

    def leave_server(self) -> None:
        """Go on with the next server, as soon as this one has answered what it still will."""
        self._leave_by(LAST_ANSWERS_S)

    def _leave_by(self, within_s: float) -> None:
        self._leave_at = min(self._leave_at, trio.current_time() + within_s)
        if self._may_leave():
            self._leave_at = -math.inf
        if self._receiving is not None:
            self._receiving.deadline = self._leave_at

    def let_client_go(self) -> None:
        """Read no more requests, and end when the server owes nothing but pulls."""
        self._is_let_go = True
        if self._asking is not None:
            self._asking.cancel()
        self._leave_by(LET_GO_S)

    async def run(self, find: FindServer) -> None:
        """Pass on, until the client has ended or no server takes it."""
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

    async def _found(self, find: FindServer) -> trio.SocketStream | None:
        """A connection to the server of now, which knows the client then; None for none.

        A server that has just died may still be taken for the one that leads, so one that does not
        answer is not the last word.
        """
        give_up_at = trio.current_time() + SEARCH_S
        while (target := await find()) is not None:
            server = await self._dialled(target)
            if server is not None or trio.current_time() >= give_up_at:
                return server
            await trio.sleep(_AGAIN_S)
        return None

    async def _dialled(self, target: Address) -> trio.SocketStream | None:
        server: trio.SocketStream | None = None
        try:
            with trio.move_on_after(DIAL_S):
                server = await dialled(target.host, target.port)
                hello = encode_proxy_header(self._peer, self._here)
                await server.send_all(hello + self._heartbeat() + self._questions())
                return server
        except (OSError, trio.BrokenResourceError) as error:
            _log.debug("%s could not be passed on to %s: %s", self._peer, target, quoted(error))
        if server is not None:
            await trio.aclose_forcefully(server)
        return None

    def _heartbeat(self) -> bytes:
        """The client's last heartbeat, which tells its groups. No answer to it is wanted."""
        if self._requests.kept is None:
            return b""
        try:
            heartbeat = decode_frame(self._requests.kept)
            heartbeat.flag |= ONEWAY_FLAG
            return encode_command(heartbeat)
        except FrameError:
            return b""

    def _questions(self) -> bytes:
        """What the last server was asked, has not answered, and this one is asked now."""
        return b"".join(map(encode_command, self._waiting.values()))

    async def _copy_both(self, server: trio.SocketStream) -> None:
        """Copy until the server is gone, or is to be left, or the client has ended."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._copy_requests, server, nursery.cancel_scope)
            await self._copy_answers(server)
            nursery.cancel_scope.cancel()

    async def _copy_requests(self, server: trio.SocketStream, scope: trio.CancelScope) -> None:
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
                    await server.send_eof()
                    return
                if not await _sent(server, data):
                    self._is_over = True
                    break
            except trio.BrokenResourceError:
                self.leave_server()  # it is gone; an answer that is being written is written whole
                return
            self._progress = trio.current_time()
        scope.cancel()

    def _note_requests(self, data: bytes) -> None:
        for command in self._requests.pass_by(data):
            if command.code == RequestCode.UNREGISTER_CLIENT:
                self._requests.kept = None  # it tells of a group that the client has left
            if command.is_response or command.is_oneway:
                continue
            if len(self._waiting) >= MAX_WAITING_REQUESTS:
                self._has_too_many = True
                return
            slim = command.without_content()
            if command.code in _PULLS:
                # A text of any length would be kept as long as the client does not read. What is no
                # number is refused by the server.
                offset = read_int64(command.fields.get("queueOffset", ""))
                slim.fields["queueOffset"] = str(offset or 0)
            elif command.code == RequestCode.QUERY_CONSUMER_OFFSET:
                fields = command.fields
                if sum(map(len, fields)) + sum(map(len, fields.values())) <= MAX_KEPT_CHARACTERS:
                    slim.fields, slim.language = fields, command.language
            self._waiting[command.opaque] = slim

    async def _copy_answers(self, server: trio.SocketStream) -> None:
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
        """Wait for a turn. What was read must be noted, also if the server is left meanwhile."""
        with trio.CancelScope(shield=True):
            await self._turn()

    async def _received(self, source: trio.SocketStream, max_bytes: int) -> bytes:
        """What one side sends next; empty at its end, or when both were silent for too long."""
        while True:
            with trio.move_on_at(self._progress + IDLE_S) as idle:
                return bytes(await source.receive_some(max_bytes))
            if idle.cancelled_caught and self._progress + IDLE_S <= trio.current_time():
                self._is_over = True
                return b""

    async def _answer_waiting(self) -> None:
        """Answer what the server has not, but for what the next one is asked again.

        The client is let go when that cannot be done.
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
        """Write to the client; False if it takes nothing for too long, or is gone."""
        try:
            taken = await _sent(self._client, data)
        except trio.BrokenResourceError:
            taken = False
        self._is_over = self._is_over or not taken
        return taken


def _answer_to(command: Command, *, is_let_go: bool) -> Command:
    """The answer to a request whose server is gone: a pull finds nothing, all else is unknown. A
    pull of a client that is let go comes again after a pause, for it must not come here.
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


async def _sent(target: trio.SocketStream, data: bytes) -> bool:
    """Write; False when the other side takes nothing for too long.

    Raises trio.BrokenResourceError: it is gone.
    """
    with trio.move_on_after(UNREAD_S) as unread:
        await target.send_all(data)
    return not unread.cancelled_caught
