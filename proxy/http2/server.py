"""Serves a connection of gRPC: reads, writes, and runs a task for each call."""

import logging
import math
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import trio

from dledger.wake_up import WakeUp
from proxy.http2.answer_blocks import http_refusal, trailers_only
from proxy.http2.call import Call
from proxy.http2.connection import Connection
from proxy.http2.draining import Draining
from proxy.http2.errors import GrpcStatus
from proxy.http2.events import Event, Received, Requested, Reset
from proxy.http2.first_bytes import answer_to
from proxy.http2.frames import ErrorCode
from proxy.http2.grpc_request import HttpRefusal, grpc_request
from proxy.http2.held_by_calls import HeldByCalls
from proxy.http2.limits import Limits
from proxy.http2.message_reader import MessageReader
from proxy.http2.status import Status
from remoting.net.bounded_log import about_client
from remoting.net.host_shares import HostShares
from remoting.wire.quoted import quoted

_log = logging.getLogger(__name__)

Router: TypeAlias = Callable[[Call], Awaitable[None]]

# A read: some dozens of calls, or a part of a large message. It is taken without a pause.
_READ_BYTES: Final = 64 * 1024
_LINGER_BYTES: Final = 1024 * 1024

# Calls of all connections that are being answered; most of them wait. Each takes 12 KiB, and with
# the longest headers 30. 50 000 clients may have a stream and three receives each.
MOST_CALLS: Final = 200_000

# What `HeldByCalls` says of answers.
UNTAKEN: Final = "an answer is not taken"

# Clients repeat a call that ends so, by another connection.
_ENDING: Final = (Status.UNAVAILABLE, "the server is ending")


async def serve_connection(
    stream: trio.abc.Stream,
    router: Router,
    limits: Limits,
    peer: str,
    draining: Draining | None = None,
    held: HeldByCalls | None = None,
    answers: HeldByCalls | None = None,
    calls: HostShares | None = None,
) -> None:
    """Serve a connection until its end, and close it. Raises only when cancelled.

    Args:
        stream: of the client; a TLS handshake is over.
        router: runs each call in a task of its own, which is cancelled when the client resets the
            call, when its connection ends, and at its deadline. It returns: status 0. It raises
            GrpcStatus: that. It raises anything else: status 13, and a line in the log.
        limits: of this connection.
        peer: the address of the client, "host:port".
        draining: set when the connection must end in order; None if that never happens.
        held: requests of all connections of the server; None: of this one alone.
        answers: their answers, in the same way.
        calls: that are being answered, in the same way.
    """
    held, answers = held or HeldByCalls(), answers or HeldByCalls(what=UNTAKEN)
    calls = calls or HostShares(MOST_CALLS)
    served = ServedConnection(stream, router, limits, peer, held, answers, calls)
    try:
        if draining is not None:
            draining.add(served)
        await served.run()
    finally:
        if draining is not None:
            draining.remove(served)
        await trio.aclose_forcefully(stream)


class ServedConnection:
    """A connection with its tasks.

    Attributes:
        connection: what it has received and is to send.
        peer: the address of the client.
        limits: of this connection.
        held: requests that all connections of the server hold.
        answers: those that they hold.
        held_bytes: of incomplete messages, given back to the windows before these were read.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        router: Router,
        limits: Limits,
        peer: str,
        held: HeldByCalls,
        answers: HeldByCalls,
        shares: HostShares,
    ) -> None:
        self.connection = Connection(limits, trio.current_time())
        self.peer = peer
        self.limits = limits
        self.held = held
        self.answers = answers
        self.held_bytes = 0
        self._shares = shares
        self._host = peer.rpartition(":")[0]
        self._stream = stream
        self._router = router
        self._calls: dict[int, Call] = {}
        self._running = 0
        self._has_told_end = False
        self._ends_calls = False
        self._is_deaf = False  # the peer takes nothing of what is sent
        self._reading: trio.CancelScope | None = None
        self._wake = WakeUp()
        self._is_woken = False  # the writing task, since it last began to wait
        self._written = WakeUp()
        self._nursery: trio.Nursery | None = None

    def flush(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._wake.set()

    def drain(self) -> None:
        """Ask the client for no further calls."""
        self.connection.drain(trio.current_time())
        self.hasten()
        self.flush()

    def end_calls(self) -> None:
        self._ends_calls = True
        for call in self._calls.values():
            call.scope.cancel()

    def may_hold(self, count: int) -> bool:
        return self.held_bytes + count <= self.limits.max_held_bytes

    def give_up(self, reason: str) -> None:
        self._apply(self.connection.give_up(reason, trio.current_time()))
        self._tell_end()
        self.flush()

    async def run(self) -> None:
        """Serve until the connection ends."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._write)
            await self._read()
        if not self._is_deaf:
            await self._linger()

    async def _read(self) -> None:
        connection, data = self.connection, b""
        while not connection.is_over:
            with trio.CancelScope(deadline=connection.next_at) as scope:
                self._reading = scope
                while not connection.is_over:
                    if data:
                        self._apply(connection.receive(data, trio.current_time()))
                        if connection.outbox.unsent_bytes:
                            self.flush()
                        if connection.is_over:
                            break
                    while connection.outbox.unsent_bytes > self.limits.max_unsent_answers_bytes:
                        await self._written.wait()
                    data = await self._receive()
                    if not data:
                        self._apply(connection.peer_ended(trio.current_time()))
            if scope.cancelled_caught:
                data = b""
                self._apply(connection.expire(trio.current_time()))
            self.flush()
        self._tell_end()

    def hasten(self) -> None:
        """Have the reading end in time for what is due first."""
        reading, next_at = self._reading, self.connection.next_at
        if reading is None or reading.deadline <= next_at:
            return
        reading.deadline = next_at

    async def _receive(self) -> bytes:
        try:
            return bytes(await self._stream.receive_some(_READ_BYTES))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return b""

    def _tell_end(self) -> None:
        """Log why the connection ended, if its client broke a rule or a limit."""
        if self._has_told_end:
            return
        self._has_told_end = True
        connection = self.connection
        first_bytes = connection.first_bytes
        if first_bytes:
            answer = answer_to(first_bytes)
            connection.outbox.add(answer.answer)
            reason = answer.advice
        elif connection.fault is not None:
            reason = connection.fault.reason
        else:
            return
        _log.warning(
            "connection of gRPC from %s ended: %s",
            self.peer,
            quoted(reason),
            extra=about_client(self._host),
        )
        self.flush()

    async def _write(self) -> None:
        """Write all that is ready, in one call for each pass of the loop."""
        connection, stream, limits = self.connection, self._stream, self.limits
        outbox = connection.outbox
        nursery = self._nursery
        assert nursery is not None
        with trio.CancelScope() as scope:
            try:
                while True:
                    while outbox.unsent_bytes:
                        scope.deadline = trio.current_time() + limits.unread_s
                        await stream.send_all(outbox.take())
                        outbox.pump()
                        if outbox.events:
                            self._apply(connection.take_events(trio.current_time()))
                        self._written.set()
                    if connection.is_over:
                        break
                    scope.deadline = math.inf
                    await self._wake.wait()
                    self._is_woken = False
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                self._apply(connection.peer_ended(trio.current_time()))
        if scope.cancelled_caught:
            _log.warning(
                "connection of gRPC from %s ended: it takes nothing of what is sent",
                self.peer,
                extra=about_client(self._host),
            )
            self._apply(connection.peer_ended(trio.current_time()))
            self._is_deaf = True
        nursery.cancel_scope.cancel()

    def _apply(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Requested):
                self._begin(event)
                continue
            call = self._calls.get(event.stream.stream_id)
            if call is None:
                continue
            if isinstance(event, Received):
                call.take(event.data)
            elif isinstance(event, Reset):
                call.cancel()
            else:
                call.sent()
        self.hasten()

    def _begin(self, event: Requested) -> None:
        """Begin a call, or refuse it."""
        stream, head = event
        connection = self.connection
        if stream.is_closed:
            return  # by a frame that came in the same read
        try:
            request = grpc_request(head)
        except GrpcStatus as refusal:
            block = trailers_only(refusal.code, refusal.message)
            connection.answer(stream, block, trio.current_time())
            return
        if isinstance(request, HttpRefusal):
            body = f"{request.text}\n".encode()
            connection.outbox.headers(stream, http_refusal(request.code, len(body)))
            now = trio.current_time()
            connection.outbox.data(stream, b"", body, now)
            connection.end(stream, b"", now)
            return
        if self._ends_calls:
            connection.answer(stream, trailers_only(*_ENDING), trio.current_time())
            return
        if self._running >= self.limits.max_calls:
            connection.reset(stream.stream_id, ErrorCode.REFUSED_STREAM, "too many calls")
            return
        if not self._shares.has_room(self._host):
            count = self._shares.of(self._host)
            _log.warning(
                "%d calls of host %s are being answered: more are refused",
                count,
                quoted(self._host),
                extra=about_client(self._host),
            )
            text = f"{count} calls of this host are being answered: call later, or another proxy"
            block = trailers_only(Status.RESOURCE_EXHAUSTED, text)
            connection.answer(stream, block, trio.current_time())
            return
        deadline_s = None
        if request.timeout_s is not None:
            deadline_s = trio.current_time() + request.timeout_s
        reader = MessageReader(self.limits.max_message_bytes, request.is_gzip)
        call = Call(self, stream, head, reader, deadline_s)
        self._calls[stream.stream_id] = call
        self._running += 1
        self._shares.take(self._host)
        assert self._nursery is not None
        self._nursery.start_soon(self._run, call, stream.stream_id)

    async def _run(self, call: Call, stream_id: int) -> None:
        code: int = Status.OK
        message = ""
        try:
            try:
                with call.scope:
                    await self._router(call)
                    await call.finish()
                if call.scope.cancelled_caught and self._ends_calls:
                    code, message = _ENDING
                elif call.scope.cancelled_caught:
                    code, message = Status.DEADLINE_EXCEEDED, "the deadline has passed"
            except Exception as error:
                code, message = self._status_of(call, error)
            call.end(code, message)
        finally:
            self._running -= 1
            self._shares.give_back(self._host)
            self.held.let_go(call)
            del self._calls[stream_id]

    def _status_of(self, call: Call, error: Exception) -> tuple[int, str]:
        """Return the status of a call that failed, also if a nursery has wrapped its error."""
        while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        if isinstance(error, GrpcStatus):
            return error.code, error.message
        if not call.is_over:
            _log.error("the call %s of %s failed", quoted(call.path), self.peer, exc_info=error)
        return Status.INTERNAL, "the server failed: see its log"

    async def _linger(self) -> None:
        """Let the client read the last frame: unread bytes would reset the connection."""
        stream = self._stream
        with trio.move_on_after(self.limits.linger_s):
            try:
                if isinstance(stream, trio.abc.HalfCloseableStream):
                    await stream.send_eof()
                left = _LINGER_BYTES
                while left > 0 and (data := await self._stream.receive_some(_READ_BYTES)):
                    left -= len(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return
