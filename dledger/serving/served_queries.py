"""Answers the queries of clients: one read index for all waiting ones, then one method each."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import trio

from dledger.config import NodeConfig
from dledger.errors import DLedgerError, ReadUnavailable
from dledger.queries import Answer, queries_of
from dledger.query_errors import MAX_SHOWN_QUERIES, QueryFailed, QueryInvalid, QueryUnknown
from dledger.serving.client_turns import client_turns
from dledger.serving.failed_looks import FailedLooks
from dledger.sessions.with_sessions import application_of
from dledger.state_machine import StateMachine
from dledger.status import RoleChange
from dledger.wire.client_protocol import MAX_WAIT_MS, encode_error
from dledger.wire.query_protocol import MAX_NAME_CHARACTERS, Queried, Query, encode_queried

# Takes the frame of an answer.
Send = Callable[[bytes], None]


class ReadableNode(Protocol):
    @property
    def config(self) -> NodeConfig: ...

    @property
    def role(self) -> RoleChange: ...

    def state_index(self) -> int: ...

    async def read(self) -> int: ...

    def read_stale(self, *, max_lag_s: float) -> int: ...

    async def wait_applied(self, index: int) -> None: ...


class ServedQueries:
    def __init__(self, node: ReadableNode, machine: StateMachine) -> None:
        self._node = node
        self._methods = queries_of(application_of(machine))
        self._failed = FailedLooks()

    def check_known(self, query: Query) -> None:
        """Raise QueryUnknown if the state machine has no such query."""
        if query.name not in self._methods:
            known = [name[:MAX_NAME_CHARACTERS] for name in sorted(self._methods)]
            raise QueryUnknown(query.name, known[:MAX_SHOWN_QUERIES])

    def answer(self, request_id: int, query: Query) -> bytes:
        """Call the method now; return the frame of the answer, or of an error.

        The caller has waited for the state that the query needs.
        """
        try:
            return self._answered(request_id, query)
        except DLedgerError as error:
            return encode_error(request_id, error)

    def _answered(self, request_id: int, query: Query) -> bytes:
        if query.max_lag_ms is not None:
            self._node.read_stale(max_lag_s=query.max_lag_ms / 1000)
        index = self._node.state_index()
        if query.after is not None and index < query.after:
            have = f"the state here includes entries up to {index}"
            raise ReadUnavailable(f"{have}, and the query needs entry {query.after}")
        result = self._call(self._methods[query.name], query)
        return encode_queried(request_id, query.name, Queried(result, index, self._name))

    @property
    def _name(self) -> str:
        return self._node.config.node_id

    def _call(self, method: Answer, query: Query) -> object:
        try:
            return method(*query.arguments)
        except Exception as error:
            if isinstance(error, TypeError) and not _takes(method, query.arguments):
                raise QueryInvalid(
                    query.name, f"it does not take these arguments: {error}"
                ) from None
            raise QueryFailed(query.name, self._failed.tell(query.name, error)) from None

    def is_behind(self, query: Query) -> bool:
        """Return whether the state lacks entries that the query needs. Raises as
        Node.state_index.
        """
        return query.after is not None and self._node.state_index() < query.after

    async def wait(self, query: Query) -> None:
        """Wait until the state includes the entries that the query needs, or its time is over."""
        if query.after is not None:
            with trio.move_on_after(min(query.wait_ms, MAX_WAIT_MS) / 1000):
                await self._node.wait_applied(query.after)

    async def read(self) -> DLedgerError | None:
        """Wait until the state is as new as any acknowledged write; return the error if that
        fails.
        """
        try:
            await self._node.read()
        except DLedgerError as error:
            return error
        return None


def _takes(method: Answer, arguments: Sequence[object]) -> bool:
    try:
        inspect.signature(method).bind(*arguments)
    except TypeError:
        return False
    except ValueError:
        return True  # written in C, without a signature
    return True


class QueryLine:
    """The linearizable queries of one connection that wait for a read index.

    All queries that came before it was requested share it, so a thousand queries at once take
    neither a thousand tasks nor a thousand reads.

    Args:
        start: runs a function as a task.
    """

    def __init__(
        self, queries: ServedQueries, start: Callable[[Callable[[], Awaitable[None]]], None]
    ) -> None:
        self._queries = queries
        self._start = start
        self._waiting: list[tuple[int, Query, Send]] = []
        self._runs = False

    def add(self, request_id: int, query: Query, send: Send) -> None:
        """Answer a query after the next read index."""
        self._waiting.append((request_id, query, send))
        if not self._runs:
            self._runs = True
            self._start(self._run)

    async def _run(self) -> None:
        turns = client_turns()
        while self._waiting:
            taken, self._waiting = self._waiting, []
            error = await self._queries.read()
            for request_id, query, send in taken:
                await turns.take(self._answer, request_id, query, send, error)
        self._runs = False

    def _answer(
        self, request_id: int, query: Query, send: Send, error: DLedgerError | None
    ) -> None:
        if error is None:
            send(self._queries.answer(request_id, query))
        else:
            send(encode_error(request_id, error))
