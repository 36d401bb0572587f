"""A client's connection to one node: many requests at once, answered in any order."""

from __future__ import annotations

import math
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple

import outcome
import trio

from dledger.client.client_errors import (
    ClientRefused,
    ConnectionLost,
    CredentialsRefused,
    GroupUnreachable,
    WrongGroup,
    answered_error,
)
from dledger.config import Address
from dledger.core.patience import Patience
from dledger.entry import MAX_BODY_BYTES
from dledger.errors import EntryTooLarge, MessageMalformed, NotPermitted, ProofNeeded
from dledger.network.host_connection import RECEIVE_BYTES
from dledger.network.introduction import welcome_of
from dledger.network.network import TCP, Network
from dledger.network.plain_socket import NO_DESCRIPTOR, plain_descriptor, write_now
from dledger.network.tls import ENDED_EARLY, GroupTls, Stream, TlsRefused, handshake_refused
from dledger.query_errors import OperationUnknown
from dledger.unwrapping_nursery import unwrapping_nursery
from dledger.wire.client_protocol import (
    ADDED,
    MAX_OPEN_BYTES,
    MAX_OPEN_REQUESTS,
    OPERATIONS_FIELD,
    Leadership,
    Operation,
    Request,
    decode_leadership,
    encode_request,
)
from dledger.wire.frame import Frame, FrameDecoder
from dledger.wire.handshake import Caller, Hello, Refused, encode_hello
from dledger.wire.proof import Shown, Shows, shows_nothing

CONNECT_TIMEOUT_S = 2.0

# How often the client checks for silence of a node that owes an answer.
LOOK_S = 0.1

# Requests in flight over one connection; further ones wait. Half of a node's limit.
MOST_REQUESTS = MAX_OPEN_REQUESTS // 2
MOST_BYTES = MAX_OPEN_BYTES // 2

# A healthy node answers these without delay. The others may take any time.
PROMPT = frozenset(
    (
        Operation.APPEND,
        Operation.SESSION_OPEN,
        Operation.SESSION_APPEND,
        Operation.SESSION_KEEP_ALIVE,
        Operation.SESSION_CLOSE,
        Operation.QUERY,
    )
)


# A connection whose user counts no more has this time to answer the other requests in flight.
LEAVE_S = 2.0


class _Open:
    __slots__ = ("prompt", "size", "task")

    def __init__(self, task: trio.lowlevel.Task, size: int, prompt: bool) -> None:
        self.task: trio.lowlevel.Task | None = task  # None: the caller has given up
        self.size = size
        self.prompt = prompt


class _NoAnswer(NamedTuple):
    sent: bool


class NodeConnection:
    """One connection to one node, made by `dial`. `run` reads and writes it."""

    def __init__(self, node_id: str, stream: Stream, decoder: FrameDecoder) -> None:
        self.node_id = node_id
        self.ended = False
        self.answers = 0  # how many requests it answered without an error
        self._stream = stream
        self._decoder = decoder
        self._reason = "the connection broke"
        self._open: dict[int, _Open] = {}
        self._open_bytes = 0
        self._prompt = 0  # open requests of the kinds in PROMPT
        self._last_id = 0
        self._last_sent = 0
        self._outbox: list[bytes] = []
        self._writing = False
        # A plain stream is written to directly if that saves the wake-up of a task.
        self._fileno = plain_descriptor(stream)
        self._wake = trio.lowlevel.ParkingLot()
        self._room = trio.lowlevel.ParkingLot()
        self._news = trio.lowlevel.ParkingLot()
        self._watched = False
        self._known: frozenset[object] | None = None  # operations that the node knows
        self.leaving = False  # no new requests; answers may still arrive
        self.is_unproven = False  # the node wants a proof on a new connection
        self._patience = Patience(LOOK_S, trio.current_time())
        self._waits_since = math.inf
        self._scope = trio.CancelScope()

    # --- asking -------------------------------------------------------------------------------

    async def ask(
        self, operation: Operation, numbers: Sequence[int] = (), payload: bytes = b""
    ) -> tuple[object, bytes]:
        """Send a request; return the answer's value and payload. Cancelling gives up only the wait.

        Raises the error that the node answered, as an object of its class (`answered_error`);
        GroupUnreachable if the connection ended before the request left, ConnectionLost if it ended
        before the answer came; EntryTooLarge for more than a frame holds; OperationUnknown for a
        request that the node's version does not know.
        """
        if operation in ADDED:
            await self._check_known(operation)
        await trio.lowlevel.checkpoint_if_cancelled()
        while self._is_full(len(payload)) and not self.left:
            await self._room.park()
        if self.left:
            raise GroupUnreachable(f"{self.node_id}: {self._reason}")
        self._last_id += 1
        request_id = self._last_id
        try:
            frame = encode_request(Request(request_id, operation, numbers, payload))
        except MessageMalformed as error:
            raise EntryTooLarge(len(payload), MAX_BODY_BYTES) from error
        opened = _Open(trio.lowlevel.current_task(), len(payload), operation in PROMPT)
        self._add(request_id, opened)
        self._send(frame)
        if self._room and not self._is_full(0):
            self._room.unpark()  # the next request checks whether there is room for it, too

        def abandon(_: object) -> trio.lowlevel.Abort:
            opened.task = None
            return trio.lowlevel.Abort.SUCCEEDED

        answer: Frame | _NoAnswer = await trio.lowlevel.wait_task_rescheduled(abandon)
        if isinstance(answer, Frame):
            try:
                return _result_of(answer)
            except ProofNeeded:
                self.is_unproven = True
                self.leave(LEAVE_S)  # the next connection proves it, or is refused
                raise
        if answer.sent:
            raise ConnectionLost(self.node_id, self._reason)
        raise GroupUnreachable(f"{self.node_id}: {self._reason}")

    async def _check_known(self, operation: Operation) -> None:
        """Check that the node knows the operation: an earlier version would end the connection."""
        if self._known is None:
            try:
                status, _ = await self.ask(Operation.STATUS)
            except NotPermitted:  # a version that judges rights knows all that were added before
                self._known = ADDED
            else:
                named = status.get(OPERATIONS_FIELD) if isinstance(status, dict) else None
                self._known = frozenset(named if isinstance(named, list) else ())
        if operation not in self._known:
            raise OperationUnknown(self.node_id, operation.value)

    async def who_leads(self, above_term: int = -1, wait_ms: int = 0) -> Leadership:
        """Ask for the leader, waiting up to `wait_ms` for one of a term above `above_term`.

        Raises as `ask`, and MessageMalformed; CredentialsRefused for a user without any right.
        """
        try:
            value, _ = await self.ask(Operation.LEADER, [above_term + 1, wait_ms])
        except NotPermitted as error:
            raise CredentialsRefused(f"{self.node_id}: {error}") from error
        return decode_leadership(value)

    def _is_full(self, size: int) -> bool:
        count = len(self._open)
        return count >= MOST_REQUESTS or (count > 0 and self._open_bytes + size > MOST_BYTES)

    def _add(self, request_id: int, opened: _Open) -> None:
        self._open[request_id] = opened
        self._open_bytes += opened.size
        if opened.prompt:
            self._prompt += 1
            if self._prompt == 1:
                self._waits_since = self._time()
                if not self._watched:
                    self._news.unpark_all()

    def _send(self, frame: bytes) -> None:
        if len(self._open) == 1 and not (
            self._outbox or self._writing or self._fileno == NO_DESCRIPTOR
        ):
            # There is no other frame to join: a direct write saves the wake-up of a task.
            self._last_sent = self._last_id
            frame = frame[write_now(self._fileno, frame) :]
            if not frame:
                return
        self._outbox.append(frame)
        self._wake.unpark()

    # --- silence and leaving ------------------------------------------------------------------

    @property
    def left(self) -> bool:
        return self.ended or self.leaving

    async def wait_asked(self) -> None:
        """Wait until a request of a kind in PROMPT is open, or the connection is left."""
        while not self._prompt and not self.left:
            self._watched = False
            await self._news.park()
        self._watched = True

    async def wait_left(self) -> None:
        while not self.left:
            await self._news.park()

    def silence_s(self) -> float:
        """Return for how long a prompt request has been open without any frame from the node.

        Call this every LOOK_S while one is open: a client that was stopped for longer has not
        listened.
        """
        return self._time() - self._waits_since if self._prompt else 0.0

    def _time(self) -> float:
        now = trio.current_time()
        self._patience.look(now)
        return self._patience.at(now)

    def leave(self, limit_s: float) -> None:
        """Accept no more requests, and close once all are answered, or after `limit_s`."""
        if not self.left:
            self.leaving = True
            self._scope.deadline = trio.current_time() + limit_s
            self._news.unpark_all()
            self._room.unpark_all()
            self._end_if_left()

    def _end_if_left(self) -> None:
        if self.leaving and not self._open:
            self.close()

    # --- the connection -----------------------------------------------------------------------

    async def run(self) -> None:
        """Read and write until the connection breaks, or is closed."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write)
                    self._reason = await self._read()
                    nursery.cancel_scope.cancel()
        finally:
            self._end()
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(self._stream)

    def close(self, reason: str = "it was closed here") -> None:
        if not self.ended:
            self._reason = reason
            self._end()
            self._scope.cancel()

    async def _write(self) -> None:
        try:
            while True:
                while self._outbox:
                    frames, self._outbox = self._outbox, []
                    self._last_sent = self._last_id
                    self._writing = True
                    await self._stream.send_all(frames[0] if len(frames) == 1 else b"".join(frames))
                    self._writing = False
                await self._wake.park()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._scope.cancel()

    async def _read(self) -> str:
        """Resume callers with their answers until the connection ends; return the reason."""
        try:
            while data := await self._stream.receive_some(RECEIVE_BYTES):
                self._take(self._decoder.feed(bytes(data)))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return "the connection broke"
        except MessageMalformed as error:
            return error.problem
        return "the node closed the connection"

    def _take(self, frames: Sequence[Frame]) -> None:
        for frame in frames:
            opened = self._open.pop(_answered_id(frame), None)
            if opened is None:
                raise MessageMalformed("an answer to no open request")
            self._open_bytes -= opened.size
            self._prompt -= opened.prompt
            self.answers += frame.header[1] == "ok"
            if opened.task is not None:
                trio.lowlevel.reschedule(opened.task, outcome.Value(frame))
        if frames:
            self._waits_since = self._time()
            self._room.unpark(count=len(frames))
            self._end_if_left()

    def _end(self) -> None:
        if self.ended:
            return
        self.ended = True
        for request_id, opened in self._open.items():
            if opened.task is not None:
                no_answer = _NoAnswer(sent=request_id <= self._last_sent)
                trio.lowlevel.reschedule(opened.task, outcome.Value(no_answer))
        self._open.clear()
        self._outbox.clear()
        self._open_bytes = self._prompt = 0
        self._room.unpark_all()
        self._news.unpark_all()


def _answered_id(frame: Frame) -> int:
    """Return the id of the request that a frame answers. Raises MessageMalformed."""
    match frame.header:
        case [int(request_id), "ok", _]:
            return request_id
        case [int(request_id), "error", str(), dict(), str()]:
            return request_id
        case _:
            raise MessageMalformed("an answer with wrong fields")


def _result_of(frame: Frame) -> tuple[object, bytes]:
    if frame.header[1] == "ok":
        return frame.header[2], frame.payload
    _, _, name, fields, text = frame.header
    assert isinstance(fields, dict)
    raise answered_error(str(name), {str(key): value for key, value in fields.items()}, str(text))


async def dial(
    group: str,
    node_id: str,
    address: Address,
    tls: GroupTls | None = None,
    network: Network = TCP,
    shows: Shows = shows_nothing,
) -> NodeConnection:
    """Connect to a node, and wait for its welcome; the caller runs `run`.

    Without a `node_id` any member of the group may answer; with TLS the member has proven its name.
    `shows` returns what to prove to a member that asks. Raises GroupUnreachable; ClientRefused,
    CredentialsRefused, WrongGroup if a retry is useless.
    """
    where = f"{node_id} at {address}" if node_id else str(address)
    try:
        with trio.fail_after(CONNECT_TIMEOUT_S):
            stream = await network.dial(address)
            try:
                secure = stream if tls is None else await tls.dialled(stream, node_id)
                name, decoder = await _introduced(group, node_id, secure, shows())
            except BaseException:
                await trio.aclose_forcefully(stream)
                raise
    except MessageMalformed as error:
        problem = f"{where}: {error.problem}"
        if isinstance(error, Refused) and error.lasting and error.challenge is not None:
            raise CredentialsRefused(problem) from error
        if isinstance(error, Refused) and error.lasting and error.groups:
            raise WrongGroup(problem, group, error.groups) from error
        if isinstance(error, Refused | TlsRefused) and not error.lasting:
            raise GroupUnreachable(problem) from error
        raise ClientRefused(problem) from error
    except trio.TooSlowError as error:
        raise GroupUnreachable(f"{where}: silent for {CONNECT_TIMEOUT_S:g} s") from error
    except (OSError, trio.BrokenResourceError) as error:
        if tls is None or isinstance(error, OSError):
            raise GroupUnreachable(f"{where}: {_described(error)}") from error
        # A member checks the certificate after its caller has finished the handshake.
        refused = handshake_refused(error, ENDED_EARLY)
        kind = ClientRefused if refused.lasting else GroupUnreachable
        raise kind(f"{where}: {refused.problem}") from error
    return NodeConnection(name, secure, decoder)


async def _introduced(
    group: str, node_id: str, stream: Stream, shown: Shown | None
) -> tuple[str, FrameDecoder]:
    """Send the hello; return the answering node's name. Raises MessageMalformed if it refuses."""
    hello = Hello(Caller.CLIENT, group, node_id)
    await stream.send_all(encode_hello(hello))
    decoder = FrameDecoder()
    frames = await welcome_of(stream, hello, shown, partial(_frames, stream, decoder))
    match frames:
        case [Frame([_, str(name)], _)]:
            return name, decoder
        case _:
            raise MessageMalformed("a welcome with wrong fields")


async def _frames(stream: Stream, decoder: FrameDecoder) -> list[Frame]:
    while True:
        data = await stream.receive_some(RECEIVE_BYTES)
        if not data:
            raise trio.BrokenResourceError("the node closed the connection")
        if frames := decoder.feed(bytes(data)):
            return frames


def _described(error: BaseException) -> str:
    cause: BaseException = error.__cause__ or error
    while isinstance(cause, BaseExceptionGroup):  # one for each address of the host name
        cause = cause.exceptions[-1]
    if isinstance(cause, OSError) and cause.errno is not None:
        return os.strerror(cause.errno).lower()
    return str(error) or type(error).__name__


@asynccontextmanager
async def connect_node(
    group: str,
    node_id: str,
    address: Address,
    tls: GroupTls | None = None,
    shows: Shows = shows_nothing,
) -> AsyncIterator[NodeConnection]:
    """Keep a connection to one node during a block. Raises as `dial`."""
    connection = await dial(group, node_id, address, tls, shows=shows)
    async with unwrapping_nursery() as nursery:
        nursery.start_soon(connection.run)
        try:
            yield connection
        finally:
            connection.close()
