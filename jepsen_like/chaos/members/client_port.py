"""Serves the clients of a run on one member: one call after another on each connection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import trio

from dledger.config import parse_address
from dledger.errors import DLedgerError
from dledger.node.node import Node
from dledger.sessions.session import Session
from jepsen_like.chaos.members.answering import Answering
from jepsen_like.chaos.outcomes import Outcome, outcome_of
from jepsen_like.chaos.service import Call
from jepsen_like.chaos.wire import PIECE_BYTES, Messages, WireBroken, outcome_message, parse_call

# Clients give up sooner; then the connection ends, and with it the session.
SESSION_TIMEOUT_S = 10.0


class ClientPort:
    """The connections of clients to one member."""

    def __init__(self, node: Node, answering: Answering, address: str) -> None:
        self._node = node
        self._answering = answering
        self._address = parse_address("clients", address)

    async def run(self) -> None:
        host, port = self._address
        await trio.serve_tcp(self._serve, port, host=host)

    async def _serve(self, stream: trio.SocketStream) -> None:
        try:
            async with _Connection(self._node, self._answering).opened() as connection:
                await connection.serve(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError, WireBroken):
            return  # the client is gone, and with it the outcome


class _Connection:
    """One client: its session is opened with its first call in one."""

    def __init__(self, node: Node, answering: Answering) -> None:
        self._node = node
        self._answering = answering
        self._stack = AsyncExitStack()
        self._session: Session | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[_Connection]:
        async with self._stack:
            yield self

    async def serve(self, stream: trio.SocketStream) -> None:
        messages = Messages()
        while piece := await stream.receive_some(PIECE_BYTES):
            messages.feed(piece)
            while (message := messages.next()) is not None:
                outcome = await self._outcome(*parse_call(message))
                await stream.send_all(outcome_message(outcome, self._node.role.leader))

    async def _outcome(self, call: Call, in_session: bool) -> Outcome:
        if call.is_read:
            return await self._answering.read(call)
        if in_session and self._session is None:
            begin = partial(self._node.session, timeout_s=SESSION_TIMEOUT_S)
            try:
                self._session = await self._stack.enter_async_context(begin())
            except DLedgerError as error:
                return outcome_of(error)
        return await self._answering.append(call, self._session if in_session else None)
