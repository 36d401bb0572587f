"""Answers clients of a node: status, append, entries, transfer. One request at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import trio

from dledger.client_protocol import (
    MAX_ENTRIES_BYTES,
    MAX_WAIT_MS,
    Operation,
    Request,
    decode_request,
    encode_answer,
    encode_entries,
    encode_error,
    split_bodies,
)
from dledger.conversation import Conversation
from dledger.entry import Body, Entry
from dledger.errors import DLedgerError, MessageMalformed
from dledger.pending import Appended
from dledger.session_errors import SessionsOff
from dledger.session_gate import SessionGate
from dledger.session_protocol import (
    SESSION_OPERATIONS,
    decode_session_request,
    encode_session_answers,
)
from dledger.status import Status


class ServedNode(Protocol):
    """What this needs of a node."""

    @property
    def sessions(self) -> SessionGate | None:
        """As in Node."""
        ...

    def status(self) -> Status:
        """As in Node."""
        ...

    async def append_many(self, bodies: Sequence[Body]) -> list[Appended]:
        """As in Node."""
        ...

    async def transfer_leadership(self, target: str | None = None) -> str:
        """As in Node."""
        ...

    def entries(self, first: int, max_bytes: int) -> list[Entry]:
        """As in Node."""
        ...

    async def wait_appliable(self, index: int) -> None:
        """As in Node."""
        ...


class ClientServer:
    """The conversations of a node with its clients."""

    def __init__(self, node: ServedNode) -> None:
        self._node = node

    async def serve(self, conversation: Conversation) -> None:
        """Answer one client until it leaves. Raises MessageMalformed."""
        while frames := await conversation.frames():
            for frame in frames:
                request = decode_request(frame)
                await conversation.stream.send_all(await self._answer(request))

    async def _answer(self, request: Request) -> bytes:
        try:
            if request.operation is Operation.STATUS:
                return encode_answer(request.request_id, self._node.status().as_dict())
            if request.operation is Operation.APPEND:
                return await self._append(request)
            if request.operation in SESSION_OPERATIONS:
                return await self._session(request)
            if request.operation is Operation.TRANSFER:
                return await self._transfer(request)
            return await self._entries(request)
        except DLedgerError as error:
            fields: dict[str, object] = {
                name: value
                for name, value in vars(error).items()
                if isinstance(value, int | str | None)
            }
            fields["retry_safe"] = error.retry_safe
            return encode_error(request.request_id, type(error).__name__, fields, str(error))

    async def _append(self, request: Request) -> bytes:
        appended = await self._node.append_many(split_bodies(request))
        rows = [[entry.index, entry.term, entry.pos] for entry in appended]
        return encode_answer(request.request_id, rows)

    async def _session(self, request: Request) -> bytes:
        if self._node.sessions is None:
            raise SessionsOff
        answers = await self._node.sessions.carry_out(decode_session_request(request))
        return encode_session_answers(request.request_id, answers)

    async def _transfer(self, request: Request) -> bytes:
        target = request.payload.decode("utf-8", "backslashreplace") or None
        leader = await self._node.transfer_leadership(target)
        return encode_answer(request.request_id, leader)

    async def _entries(self, request: Request) -> bytes:
        if len(request.numbers) != 2:
            raise MessageMalformed("entries takes a first index and a wait in ms")
        first, wait_ms = request.numbers
        with trio.move_on_after(min(wait_ms, MAX_WAIT_MS) / 1000):
            await self._node.wait_appliable(first)
        return encode_entries(request.request_id, self._node.entries(first, MAX_ENTRIES_BYTES))
