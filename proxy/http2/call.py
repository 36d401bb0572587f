"""One call of a client: its messages in both directions."""

import math
from collections.abc import Mapping
from typing import Protocol

import trio

from proxy.http2.answer_blocks import GRPC_HEADERS, trailers, trailers_only
from proxy.http2.connection import Connection
from proxy.http2.errors import CallEnded, GrpcStatus
from proxy.http2.field_decoder import Fields
from proxy.http2.held_by_calls import HeldByCalls
from proxy.http2.limits import Limits
from proxy.http2.message_reader import PREFIX, MessageReader
from proxy.http2.request_head import RequestHead
from proxy.http2.status import Status
from proxy.http2.stream import Stream


class Served(Protocol):
    """The connection of a call, as it is served."""

    connection: Connection
    held: HeldByCalls
    answers: HeldByCalls
    limits: Limits
    peer: str

    # Of incomplete messages, given back to the windows before these were read.
    held_bytes: int

    def may_hold(self, count: int) -> bool:
        """Return whether so many bytes more may be held."""
        ...

    def flush(self) -> None:
        """Have what waits in the outbox written, with all else that is ready by then."""

    def hasten(self) -> None:
        """Have the time limits looked at as early as the connection now says."""

    def give_up(self, reason: str) -> None:
        """End the connection, because the server has not the room for it."""


class Call:
    """A call. One task may receive; any number may send.

    Attributes:
        deadline_s: when the client stops waiting, on trio's clock; None if it never does.
        scope: of the call's task.
    """

    __slots__ = (
        "_ahead_bytes",
        "_has_headers",
        "_head",
        "_metadata",
        "_reader",
        "_receiver",
        "_senders",
        "_served",
        "_stream",
        "deadline_s",
        "scope",
    )

    def __init__(
        self,
        served: Served,
        stream: Stream,
        head: RequestHead,
        reader: MessageReader,
        deadline_s: float | None,
    ) -> None:
        self._served = served
        self._stream = stream
        self._head = head
        self._reader = reader
        self._has_headers = False
        self._ahead_bytes = 0
        self._metadata: Mapping[str, str] | None = None
        self._receiver: trio.lowlevel.Task | None = None
        self._senders: trio.lowlevel.ParkingLot | None = None
        self.deadline_s = deadline_s
        # A deadline that is given later is registered with the loop by itself.
        self.scope = trio.CancelScope(deadline=math.inf if deadline_s is None else deadline_s)

    @property
    def path(self) -> str:
        """The method, as "/package.Service/Method"."""
        return self._head.path.decode("utf-8", "replace")

    @property
    def peer(self) -> str:
        """The address of the client."""
        return self._served.peer

    @property
    def metadata(self) -> Mapping[str, str]:
        """The headers by their names, in small letters; several values of a name are joined."""
        if self._metadata is None:
            fields = self._head.fields
            found = {name.decode(): value.decode("utf-8", "replace") for name, value in fields}
            self._metadata = found if len(found) == len(fields) else _joined(fields)
        return self._metadata

    @property
    def is_over(self) -> bool:
        """Whether the client is gone, or has its answer."""
        return self._stream.is_closed

    async def receive(self) -> bytes | None:
        """Return the client's next message, or None after its last one.

        Raises:
            GrpcStatus: a message is too large, or cannot be read; to be raised on by a router.
            CallEnded: the client is gone.
        """
        stream, reader, served = self._stream, self._reader, self._served
        while True:
            held_bytes = reader.held_bytes
            message = reader.take()
            if message is not None:
                count = held_bytes - reader.held_bytes
                ahead_bytes = min(count, self._ahead_bytes)
                self._ahead_bytes -= ahead_bytes
                served.held_bytes -= ahead_bytes
                self._note_read(count - ahead_bytes)
                served.held.take(self, count)
                return message
            if stream.has_remote_ended:
                if held_bytes:
                    raise GrpcStatus(Status.INTERNAL, "the request ends within a message")
                return None
            if stream.is_closed:
                raise CallEnded(self.path)
            # A message may be longer than the window: what came of it makes room for the rest.
            ahead_bytes = held_bytes - self._ahead_bytes
            if ahead_bytes:
                if not served.may_hold(ahead_bytes):
                    raise GrpcStatus(Status.RESOURCE_EXHAUSTED, "too many incomplete messages")
                if served.held.is_tight:
                    await self._wait_for_room()
                    continue
                self._note_read(ahead_bytes)
                self._ahead_bytes += ahead_bytes
                served.held_bytes += ahead_bytes
            await self._wait_for_data()

    async def _wait_for_room(self) -> None:
        """Wait for data, or until all connections together hold less."""
        held = self._served.held
        held.keep_window(self)
        with trio.move_on_after(self._served.limits.room_s) as scope:
            await self._wait_for_data()
        if scope.cancelled_caught:
            held.make_room()

    def _note_read(self, count: int) -> None:
        connection = self._served.connection
        connection.read(self._stream, count)
        if connection.outbox.unsent_bytes:
            self._served.flush()

    async def _wait_for_data(self) -> None:
        if self._receiver is not None:
            raise trio.BusyResourceError("another task receives from this call")
        self._receiver = trio.lowlevel.current_task()

        def give_up(_raise_cancel: object) -> trio.lowlevel.Abort:
            self._receiver = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(give_up)

    async def open(self) -> None:
        """Send the headers of the answer now. Raises CallEnded."""
        self._open()
        self._served.flush()

    def _open(self) -> None:
        if self._stream.is_closed:
            raise CallEnded(self.path)
        if not self._has_headers:
            self._has_headers = True
            self._served.connection.outbox.headers(self._stream, GRPC_HEADERS)

    async def send(self, message: bytes) -> None:
        """Send a message, after the headers if it is the first. Returns once the windows took it.

        Raises CallEnded: the client is gone.
        """
        self._open()
        stream, outbox = self._stream, self._served.connection.outbox
        is_sent = outbox.data(stream, PREFIX.pack(0, len(message)), message, trio.current_time())
        self._served.flush()
        if is_sent:
            return
        self._served.hasten()
        if self._senders is None:
            self._senders = trio.lowlevel.ParkingLot()
        await self._wait_until_taken(self._senders, len(message))
        if stream.is_closed:
            raise CallEnded(self.path)

    async def _wait_until_taken(self, senders: trio.lowlevel.ParkingLot, count: int) -> None:
        """Wait until nothing is pending, and hold so much meanwhile."""
        answers = self._served.answers
        answers.add(self, count)
        try:
            while self._stream.pending is not None:
                await senders.park()
        finally:
            answers.take(self, count)

    async def finish(self) -> None:
        """Wait until all was sent: the task that sent the last part may have been cancelled."""
        pending = self._stream.pending
        if pending is not None and self._senders is not None:
            await self._wait_until_taken(self._senders, sum(map(len, pending)))

    # What the connection tells.

    def take(self, data: bytes) -> None:
        """Take a part of the request's body."""
        if data:
            if self._stream.is_closed:
                return  # by a frame that came in the same read
            self._reader.feed(data)
            self._served.held.add(self, len(data))
        self._wake_receiver()

    def _wake_receiver(self) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            trio.lowlevel.reschedule(receiver)

    def sent(self) -> None:
        """Note that all pending bytes were sent."""
        if self._senders is not None:
            self._senders.unpark_all()

    def cancel(self) -> None:
        """Note that the client is gone."""
        self._served.held.let_go(self)
        self.scope.cancel()

    # What all connections together hold.

    def give_back(self) -> None:
        """Give back the window that was kept: there is room again."""
        self._wake_receiver()

    def give_up(self, reason: str) -> None:
        """End the connection."""
        self._served.give_up(reason)

    def end(self, code: int, message: str) -> None:
        """End the answer with a status, unless the client is gone."""
        connection, stream = self._served.connection, self._stream
        self._served.held_bytes -= self._ahead_bytes
        self._ahead_bytes = 0
        if stream.is_closed:
            return
        if stream.pending is not None:
            connection.outbox.forget(stream)  # it was ended while it sent: nothing counts the rest
        now = trio.current_time()
        if self._has_headers:
            connection.end(stream, trailers(code, message), now)
        else:
            connection.answer(stream, trailers_only(code, message), now)
        self._served.flush()
        if not connection.streams:
            self._served.hasten()  # from now on it is idle


def _joined(fields: Fields) -> dict[str, str]:
    """Return headers by their names; several values of a name are joined."""
    found: dict[str, str] = {}
    for name_bytes, value_bytes in fields:
        name, value = name_bytes.decode(), value_bytes.decode("utf-8", "replace")
        found[name] = f"{found[name]},{value}" if name in found else value
    return found
