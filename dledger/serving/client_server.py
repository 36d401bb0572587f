"""Answers the clients of a node. The requests of one connection are served concurrently.

Appends have no task of their own: they are submitted as they arrive, and answered when they are
applied. A request that waits for something else (an entry, a leader, a change of the members) has
one. `ClientTurns` calls everything that takes time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

import trio

from dledger.core.membership.configuration_change import Change, Transition
from dledger.core.membership.configuration_codec import NumberedConfiguration, encode_configuration
from dledger.entry import Body, Entry
from dledger.errors import ClientAppendsOff, DLedgerError, MessageMalformed
from dledger.network.conversation import Conversation
from dledger.network.plain_socket import NO_DESCRIPTOR, plain_descriptor, write_now
from dledger.network.tls import Stream
from dledger.query_errors import OperationUnknown, TooManyWaiting
from dledger.serving.client_turns import client_turns
from dledger.serving.permit import Permit
from dledger.serving.served_queries import QueryLine, ReadableNode, ServedQueries
from dledger.serving.served_watches import ServedWatches
from dledger.sessions.session_errors import SessionsOff
from dledger.sessions.session_gate import SessionGate, answers_of
from dledger.status import Status
from dledger.store.snapshot_folder import Snapshot
from dledger.unwrapping_nursery import unwrapping_nursery
from dledger.waits.iterators import RoleChanges
from dledger.waits.pending_appends import Appended, Done, Outcome
from dledger.watch_errors import TooManyWatches
from dledger.wire.change_protocol import decode_change
from dledger.wire.client_protocol import (
    APPENDING,
    MAX_ENTRIES_BYTES,
    MAX_OPEN_BYTES,
    MAX_OPEN_REQUESTS,
    MAX_WAIT_MS,
    OPERATIONS_FIELD,
    READING,
    Leadership,
    Operation,
    Request,
    RequestUnknown,
    decode_request,
    encode_answer,
    encode_appended,
    encode_entries,
    encode_error,
    encode_leadership,
    split_bodies,
)
from dledger.wire.frame import Frame
from dledger.wire.query_protocol import Query, decode_query
from dledger.wire.session_protocol import (
    SESSION_OPERATIONS,
    decode_session_request,
    encode_session_answers,
)


class ClientAnswers:
    """The requests of one connection, from their arrival until their answers are sent.

    At most MAX_OPEN_REQUESTS are open. Their bytes and those of the answers may exceed
    MAX_OPEN_BYTES only by the answers to open requests. Beyond either bound the node stops reading
    from the client.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._open = 0
        self._open_bytes = 0
        self._outbox: list[bytes] = []
        self._outbox_bytes = 0
        self._leaving = 0  # open requests whose answers wait to be sent
        self._writing = False
        self._closed = False
        # A plain stream is written to directly if that saves the wake-up of a task.
        self._fileno = plain_descriptor(stream)
        self._wake = trio.lowlevel.ParkingLot()
        self._room = trio.lowlevel.ParkingLot()

    async def wait_room(self, size: int) -> None:
        while self._open and (
            self._open >= MAX_OPEN_REQUESTS
            or self._open_bytes + self._outbox_bytes + size > MAX_OPEN_BYTES
        ):
            await self._room.park()

    def begin(self, size: int) -> None:
        """Count a request of `size` bytes as open, until `answer`."""
        self._open += 1
        self._open_bytes += size

    def answer(self, size: int, frame: bytes) -> None:
        """Send the answer to a request of `size` bytes."""
        if self._closed:
            return
        self._open_bytes -= size
        if (
            self._open == 1
            and not self._outbox
            and not self._writing
            and self._fileno != NO_DESCRIPTOR
        ):
            # No other answer waits: writing here saves a wake-up of the writing task.
            frame = frame[write_now(self._fileno, frame) :]
            if not frame:
                self._open = 0
                self._room.unpark_all()
                return
        self._leaving += 1
        self._outbox.append(frame)
        self._outbox_bytes += len(frame)
        self._wake.unpark()

    def close(self) -> None:
        """Drop later answers: the client is gone."""
        self._closed = True

    async def write(self, scope: trio.CancelScope) -> None:
        """Send all waiting answers in one write; cancel `scope` when the connection breaks."""
        try:
            while True:
                while self._outbox:
                    frames, self._outbox = self._outbox, []
                    count, self._leaving = self._leaving, 0
                    self._writing = True
                    await self._stream.send_all(frames[0] if count == 1 else b"".join(frames))
                    self._writing = False
                    self._open -= count
                    self._outbox_bytes -= sum(map(len, frames))
                    self._room.unpark_all()
                await self._wake.park()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            scope.cancel()


# Limit on requests of one connection that wait in a task of their own.
MAX_WAITING = 64
# Limit on watches, in addition: a program may have one for each of its own clients.
MAX_WATCHES_OF_CONNECTION = 256


class ServedNode(ReadableNode, Protocol):
    @property
    def sessions(self) -> SessionGate | None: ...

    def status(self) -> Status: ...

    @property
    def machine_name(self) -> str: ...

    @property
    def configuration(self) -> NumberedConfiguration: ...

    def role_changes(self) -> RoleChanges: ...

    def submit(self, bodies: Sequence[Body], done: Done) -> None: ...

    async def transfer_leadership(self, target: str | None = None) -> str: ...

    async def snapshot(self) -> Snapshot: ...

    async def change(
        self,
        changes: Sequence[Change],
        *,
        expected: int | None = None,
        transition: Transition = Transition.AUTO,
    ) -> NumberedConfiguration: ...

    def entries(self, first: int, max_bytes: int) -> list[Entry]: ...

    async def wait_appliable(self, index: int) -> None: ...

    @property
    def queries(self) -> ServedQueries: ...

    @property
    def watches(self) -> ServedWatches: ...


class ClientServer:
    def __init__(self, node: ServedNode) -> None:
        self._node = node

    async def serve(self, conversation: Conversation, permit: Permit) -> None:
        """Answer one client until it leaves. Raises MessageMalformed."""
        answers = ClientAnswers(conversation.stream)
        try:
            async with unwrapping_nursery() as nursery:
                nursery.start_soon(answers.write, nursery.cancel_scope)
                client = _Client(self._node, answers, permit, nursery)
                turns = client_turns()
                while await conversation.wait():
                    for frame in await turns.take(conversation.cut):
                        await answers.wait_room(len(frame.payload))
                        await turns.take(client.take, frame)
                nursery.cancel_scope.cancel()
        finally:
            answers.close()


class _Client:
    def __init__(
        self, node: ServedNode, answers: ClientAnswers, permit: Permit, nursery: trio.Nursery
    ) -> None:
        self._permit = permit
        self._node = node
        self._answers = answers
        self._nursery = nursery
        self._waiting = 0
        self._watching = 0
        self._queries: QueryLine | None = None

    def take(self, frame: Frame) -> None:
        """Answer a request, or start its task. Raises MessageMalformed."""
        try:
            request = decode_request(frame)
        except RequestUnknown as unknown:
            error = OperationUnknown(self._node.config.node_id, unknown.operation)
            self._answers.begin(len(frame.payload))
            self._answers.answer(len(frame.payload), encode_error(unknown.request_id, error))
            return
        self._answers.begin(len(request.payload))
        try:
            config = self._node.config
            if request.operation in APPENDING and not config.client_appends:
                raise ClientAppendsOff(config.group, self._node.machine_name)
            self._permit.check(request.operation)
            match request.operation:
                case Operation.APPEND:
                    done = partial(self._done, request, encode_appended)
                    self._node.submit(split_bodies(request), done)
                case operation if operation in SESSION_OPERATIONS:
                    if self._node.sessions is None:
                        raise SessionsOff
                    done = partial(self._done, request, _encode_session)
                    self._node.sessions.submit(decode_session_request(request), done)
                case Operation.STATUS:
                    status = self._node.status().as_dict()
                    status[OPERATIONS_FIELD] = [str(operation) for operation in Operation]
                    self._answer(request, encode_answer(request.request_id, status))
                case Operation.QUERY:
                    self._query(request, decode_query(request))
                case Operation.WATCH:
                    if self._watching >= MAX_WATCHES_OF_CONNECTION:
                        raise TooManyWatches(self._watching, "this connection")
                    self._watching += 1
                    self._nursery.start_soon(self._watch, request)
                case operation:
                    self._begin(request, _WORK[operation])
        except DLedgerError as error:
            self._answer(request, encode_error(request.request_id, error))

    def _done(
        self, request: Request, encode: Callable[[int, list[Appended]], bytes], outcome: Outcome
    ) -> None:
        """Answer an append. Called in a turn of the node: it must not raise."""
        try:
            if isinstance(outcome, DLedgerError):
                raise outcome
            frame = encode(request.request_id, outcome)
        except DLedgerError as error:
            frame = encode_error(request.request_id, error)
        self._answer(request, frame)

    def _answer(self, request: Request, frame: bytes) -> None:
        self._answers.answer(len(request.payload), frame)

    def _query(self, request: Request, query: Query) -> None:
        queries, send = self._node.queries, partial(self._answer, request)
        queries.check_known(query)
        if not query.stale:
            if self._queries is None:
                self._queries = QueryLine(queries, self._nursery.start_soon)
            self._queries.add(request.request_id, query, send)
        elif queries.is_behind(query):
            self._begin(request, partial(_query_later, query))
        else:
            send(queries.answer(request.request_id, query))

    async def _watch(self, request: Request) -> None:
        try:
            frame = await self._node.watches.answer(request)
            self._permit.check(request.operation)  # it has waited
        except DLedgerError as error:
            frame = encode_error(request.request_id, error)
        self._watching -= 1
        self._answer(request, frame)

    def _begin(self, request: Request, work: Work) -> None:
        if self._waiting >= MAX_WAITING:
            raise TooManyWaiting(self._waiting)
        self._waiting += 1
        self._nursery.start_soon(self._work_on, request, work)

    async def _work_on(self, request: Request, work: Work) -> None:
        try:
            frame = await work(self._node, request)
            if request.operation in READING:  # it has waited; others have done something
                self._permit.check(request.operation)
        except DLedgerError as error:
            frame = encode_error(request.request_id, error)
        self._waiting -= 1
        self._answer(request, frame)


# --- requests with a task of their own ------------------------------------------------------------

Work = Callable[[ServedNode, Request], Awaitable[bytes]]


async def _change(node: ServedNode, request: Request) -> bytes:
    changes, transition, expected = decode_change(request)
    numbered = await node.change(changes, expected=expected, transition=transition)
    return encode_answer(request.request_id, None, encode_configuration(*numbered))


async def _transfer(node: ServedNode, request: Request) -> bytes:
    target = request.payload.decode("utf-8", "backslashreplace") or None
    leader = await node.transfer_leadership(target)
    return encode_answer(request.request_id, leader)


async def _snapshot(node: ServedNode, request: Request) -> bytes:
    written = await node.snapshot()
    row = [written.header.index, written.header.term, written.size_bytes, written.path]
    return encode_answer(request.request_id, row)


async def _entries(node: ServedNode, request: Request) -> bytes:
    match request.numbers:
        case [first, wait_ms]:
            max_bytes = MAX_ENTRIES_BYTES
        case [first, wait_ms, max_bytes]:
            max_bytes = min(max_bytes, MAX_ENTRIES_BYTES)
        case _:
            raise MessageMalformed("entries takes a first index, a wait in ms, perhaps a size")
    with trio.move_on_after(min(wait_ms, MAX_WAIT_MS) / 1000):
        await node.wait_appliable(first)
    return await client_turns().take(_encode_entries, node, request.request_id, first, max_bytes)


def _encode_entries(node: ServedNode, request_id: int, first: int, max_bytes: int) -> bytes:
    return encode_entries(request_id, node.entries(first, max_bytes))


async def _query_later(query: Query, node: ServedNode, request: Request) -> bytes:
    await node.queries.wait(query)
    return await client_turns().take(node.queries.answer, request.request_id, query)


async def _leader(node: ServedNode, request: Request) -> bytes:
    if len(request.numbers) != 2:
        raise MessageMalformed("leader takes a term and a wait in ms")
    least_term, wait_ms = request.numbers
    if wait_ms and not _tells(node, least_term):
        with trio.move_on_after(min(wait_ms, MAX_WAIT_MS) / 1000):
            async for _ in node.role_changes():
                if _tells(node, least_term):
                    break
    return await client_turns().take(_encode_leader, node, request.request_id)


def _encode_leader(node: ServedNode, request_id: int) -> bytes:
    role, member = node.role, node.config.node_id
    index, configuration = node.configuration
    known = Leadership(member, role.leader, role.term, role.ready, index, configuration.addresses)
    return encode_leadership(request_id, known)


def _tells(node: ServedNode, least_term: int) -> bool:
    """Return whether this node knows the leader of `least_term` or later; as the leader, once
    ready.
    """
    role = node.role
    leads = role.ready if role.leader == node.config.node_id else role.leader is not None
    return leads and role.term >= least_term


def _encode_session(request_id: int, appended: list[Appended]) -> bytes:
    return encode_session_answers(request_id, answers_of(appended))


_WORK: dict[Operation, Work] = {
    Operation.CHANGE: _change,
    Operation.TRANSFER: _transfer,
    Operation.SNAPSHOT: _snapshot,
    Operation.ENTRIES: _entries,
    Operation.LEADER: _leader,
}
