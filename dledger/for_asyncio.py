"""The library for programs that run asyncio.

    async with dledger.for_asyncio.open_node(config, machine) as node:
        appended = await node.append(b"hello")

    async with dledger.for_asyncio.connect("n0=10.0.0.1:20911", group="orders") as log:
        appended = await log.append(b"hello")

A bridge over `dledger.blocking`: the node's own loop runs in a thread beside asyncio's. Cancelling
a call gives up the wait, not the append. Errors are those of the same calls in `dledger`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from dledger import blocking
from dledger.asyncio_block import entered_in_thread
from dledger.client.known_members import Peers
from dledger.config import NodeConfig
from dledger.entry import Body, Entry
from dledger.network.tls import GroupTls
from dledger.network.tls_config import TlsConfig
from dledger.sessions.session import DEFAULT_TIMEOUT_S, DEFAULT_TTL_S, SessionAppended
from dledger.state_machine import StateMachine
from dledger.status import Status
from dledger.store.snapshot_folder import Snapshot
from dledger.waits.pending_appends import Appended

T = TypeVar("T")


class AsyncioSession:
    """A session: each append happens once. See docs/sessions.md."""

    def __init__(self, session: blocking.BlockingSession) -> None:
        self._session = session

    async def append(self, body: bytes, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> SessionAppended:
        """As Session.append."""
        return await asyncio.wrap_future(self._session.append_soon(body, timeout_s=timeout_s))


class AsyncioNode:
    """A running member. Made by `open_node`."""

    def __init__(self, node: blocking.BlockingNode) -> None:
        self._node = node

    async def append(self, body: Body) -> Appended:
        """As Node.append."""
        return await asyncio.wrap_future(self._node.append_soon(body))

    async def append_many(self, bodies: Sequence[Body]) -> list[Appended]:
        """As Node.append_many."""
        return await asyncio.wrap_future(self._node.append_many_soon(bodies))

    async def read(self, look: Callable[[], T]) -> T:
        """A linearizable read: wait as Node.read does, then `look` at the state machine.

        `look` runs in the node's thread, where no entry is applied meanwhile; it should copy what
        it returns.
        """
        return await asyncio.wrap_future(self._node.read_soon(look))

    async def status(self) -> Status:
        """As Node.status."""
        return await asyncio.to_thread(self._node.status)

    async def transfer_leadership(self, target: str | None = None) -> str:
        """As Node.transfer_leadership."""
        return await asyncio.to_thread(self._node.transfer_leadership, target)

    async def snapshot(self) -> Snapshot:
        """As Node.snapshot."""
        return await asyncio.to_thread(self._node.snapshot)

    @asynccontextmanager
    async def session(
        self, *, ttl_s: float = DEFAULT_TTL_S, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> AsyncIterator[AsyncioSession]:
        """As Node.session."""
        async with entered_in_thread(
            self._node.session(ttl_s=ttl_s, timeout_s=timeout_s)
        ) as session:
            yield AsyncioSession(session)


class AsyncioLog:
    """A group's log over the network. Made by `connect`."""

    def __init__(self, log: blocking.BlockingLog) -> None:
        self._log = log

    async def append(self, body: bytes, *, timeout_s: float | None = None) -> Appended:
        """As RemoteLog.append."""
        return await asyncio.wrap_future(self._log.append_soon(body, timeout_s=timeout_s))

    async def append_many(
        self, bodies: Sequence[bytes], *, timeout_s: float | None = None
    ) -> list[Appended]:
        """As RemoteLog.append_many."""
        return await asyncio.to_thread(self._log.append_many, bodies, timeout_s=timeout_s)

    async def read(self, index: int, *, timeout_s: float | None = None) -> Entry:
        """As RemoteLog.read."""
        return await asyncio.to_thread(self._log.read, index, timeout_s=timeout_s)

    async def tail(self, first: int = 0, *, follow: bool = True) -> AsyncIterator[Entry]:
        """As RemoteLog.tail."""
        entries = self._log.tail_soon(first, follow=follow)
        while (entry := await asyncio.wrap_future(entries())) is not None:
            yield entry

    async def status(self, node_id: str | None = None) -> dict[str, object]:
        """As RemoteLog.status."""
        return await asyncio.to_thread(self._log.status, node_id)

    @asynccontextmanager
    async def session(
        self, *, ttl_s: float = DEFAULT_TTL_S, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> AsyncIterator[AsyncioSession]:
        """As RemoteLog.session."""
        async with entered_in_thread(
            self._log.session(ttl_s=ttl_s, timeout_s=timeout_s)
        ) as session:
            yield AsyncioSession(session)


@asynccontextmanager
async def connect(
    peers: Peers,
    *,
    group: str,
    tls: GroupTls | TlsConfig | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> AsyncIterator[AsyncioLog]:
    """Open a group's log over the network, during a block. As dledger.connect."""
    block = blocking.connect(peers, group=group, tls=tls, timeout_s=timeout_s)
    async with entered_in_thread(block) as log:
        yield AsyncioLog(log)


@asynccontextmanager
async def open_node(config: NodeConfig, machine: StateMachine) -> AsyncIterator[AsyncioNode]:
    """Open a member of a group during a block. Raises as dledger.open_node."""
    async with entered_in_thread(blocking.open_node(config, machine)) as node:
        yield AsyncioNode(node)
