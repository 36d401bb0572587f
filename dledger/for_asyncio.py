"""The library for programs that run asyncio.

    async with dledger.for_asyncio.open_node(config, machine) as node:
        appended = await node.append(b"hello")

    async with dledger.for_asyncio.connect("n0=10.0.0.1:20911", group="orders") as log:
        appended = await log.append(b"hello")

The node's own loop runs in a thread beside asyncio's. Calls cross by futures: none keeps a thread
of asyncio's. To cancel a call gives up the wait, not the append. Errors are those of the same calls
in `dledger`; CallMisplaced is raised in a process that was forked since. If the node has to stop by
itself, the block is cancelled, and raises the reason.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from dledger.asyncio_block import opened_loop
from dledger.asyncio_forms import (
    awaits,
    given_up,
    iterates_in_asyncio,
    iterator_in_asyncio,
    opens_in_asyncio,
)
from dledger.blocking import (
    loop_of_group,
    loop_of_host,
    loop_of_log,
    loop_of_node,
)
from dledger.client.group_client import GroupClient
from dledger.client.known_members import Peers
from dledger.client.remote_log import RemoteLog
from dledger.config import NodeConfig
from dledger.core.membership.configuration_codec import NumberedConfiguration
from dledger.entry import Body
from dledger.form_parts import (
    as_it_is,
    node_do,
    node_within,
    only_look,
    read_and_look,
    read_stale_and_look,
    session_do,
    session_within,
)
from dledger.forms import at_once
from dledger.handed_over import HandedOver
from dledger.loop_thread import LoopThread
from dledger.network.tls import GroupTls
from dledger.network.tls_config import TlsConfig
from dledger.node.host import Host, HostConfig
from dledger.node.node import Node
from dledger.sessions.session import DEFAULT_TIMEOUT_S, Session
from dledger.state_machine import StateMachine
from dledger.status import RoleChange
from dledger.waits.pending_appends import Appended

T = TypeVar("T")


class AsyncioSession:
    """A session: each append happens once. See docs/sessions.md.

    Appends are made in the order of the calls.
    """

    def __init__(self, loop: LoopThread[Any], session: Session) -> None:
        self._loop = loop
        self._inner = session
        self.id = session.id

    append = awaits(Session.append)
    append_many = awaits(Session.append_many)
    settle = awaits(Session.settle)
    entries_from = awaits(Session.entries_from)

    @property
    def unsettled(self) -> int:
        """As Session.unsettled."""
        return self._inner.unsettled

    do = awaits(session_do)
    within = opens_in_asyncio(session_within, as_it_is)


class AsyncioNode:
    """A running member. Made by `open_node`, and by `AsyncioHost.open_node`."""

    def __init__(self, loop: LoopThread[Any], node: Node) -> None:
        self._loop = loop
        self._inner = node
        self._handed_over = HandedOver(loop, node)

    # --- appending ------------------------------------------------------------------------------

    async def append(self, body: Body) -> Appended:
        """As Node.append."""
        self._loop.check_waitable()
        return await given_up(self._handed_over.add_one(body))

    async def append_many(self, bodies: Sequence[Body]) -> list[Appended]:
        """As Node.append_many."""
        self._loop.check_waitable()
        return await given_up(self._handed_over.add(bodies))

    do = awaits(node_do)
    within = opens_in_asyncio(node_within, as_it_is)
    session = opens_in_asyncio(Node.session, AsyncioSession)

    # --- reading --------------------------------------------------------------------------------

    read = awaits(read_and_look)
    read_stale = awaits(read_stale_and_look)
    look = awaits(only_look)
    committed = iterates_in_asyncio(Node.committed)
    entries = awaits(at_once(Node.entries))
    entries_from = awaits(Node.entries_from)
    wait_applied = awaits(Node.wait_applied)
    wait_appliable = awaits(Node.wait_appliable)

    # --- looking after it -----------------------------------------------------------------------

    status = awaits(at_once(Node.status))
    role_changes = iterates_in_asyncio(Node.role_changes)
    snapshot = awaits(Node.snapshot)
    transfer_leadership = awaits(Node.transfer_leadership)
    forget_leader = awaits(at_once(Node.forget_leader))
    change = awaits(Node.change)
    reconfigure = awaits(at_once(Node.reconfigure))
    reload_tls = awaits(at_once(Node.reload_tls))

    @property
    def term(self) -> int:
        """As Node.term."""
        return self._inner.term

    @property
    def role(self) -> RoleChange:
        """As Node.role."""
        return self._inner.role

    @property
    def is_ready_leader(self) -> bool:
        """As Node.is_ready_leader."""
        return self._inner.is_ready_leader

    @property
    def configuration(self) -> NumberedConfiguration:
        """As Node.configuration."""
        return self._inner.configuration


class AsyncioLog:
    """A group's log over the network. Made by `connect`."""

    def __init__(self, loop: LoopThread[Any], log: RemoteLog) -> None:
        self._loop = loop
        self._inner = log

    append = awaits(RemoteLog.append)
    append_many = awaits(RemoteLog.append_many)
    read = awaits(RemoteLog.read)
    tail = iterates_in_asyncio(RemoteLog.tail)
    query = awaits(RemoteLog.query)
    watch = iterates_in_asyncio(RemoteLog.watch)
    status = awaits(RemoteLog.status)

    session = opens_in_asyncio(RemoteLog.session, AsyncioSession)


class AsyncioGroup:
    """A group for tools and scripts: see GroupClient. Made by `open_group`."""

    def __init__(self, loop: LoopThread[Any], client: GroupClient) -> None:
        self._loop = loop
        self._inner = client

    ask_members = awaits(GroupClient.ask_members)
    status = awaits(GroupClient.status)
    leader_status = awaits(GroupClient.leader_status)
    ready_leader = awaits(GroupClient.ready_leader)
    append = awaits(GroupClient.append)
    transfer = awaits(GroupClient.transfer)
    snapshot = awaits(GroupClient.snapshot)
    change = awaits(GroupClient.change)
    entries = awaits(GroupClient.entries)
    query = awaits(GroupClient.query)
    watch = opens_in_asyncio(GroupClient.watch, iterator_in_asyncio)

    @property
    def members(self) -> dict[str, str]:
        """As GroupClient.members."""
        return self._inner.members

    @property
    def members_are_told(self) -> bool:
        """As GroupClient.members_are_told."""
        return self._inner.members_are_told

    session = opens_in_asyncio(GroupClient.session, AsyncioSession)


class AsyncioHost:
    """Members of many groups in one process. Made by `open_host`."""

    def __init__(self, loop: LoopThread[Any], host: Host) -> None:
        self._loop = loop
        self._inner = host

    reload_tls = awaits(at_once(Host.reload_tls))

    # A member that ends by itself ends its block with its error, and no other member.
    open_node = opens_in_asyncio(Host.open_node, AsyncioNode)


@asynccontextmanager
async def connect(
    peers: Peers,
    *,
    group: str,
    tls: GroupTls | TlsConfig | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> AsyncIterator[AsyncioLog]:
    """Open a group's log over the network, during a block. As dledger.connect."""
    loop = loop_of_log(peers, group, tls, timeout_s)
    async with opened_loop(loop) as log:
        yield AsyncioLog(loop, log)


@asynccontextmanager
async def open_group(
    group: str, peers: Peers, tls: GroupTls | TlsConfig | None = None
) -> AsyncIterator[AsyncioGroup]:
    """A client for tools and scripts, during a block. As dledger.GroupClient."""
    loop = loop_of_group(group, peers, tls)
    async with opened_loop(loop) as client:
        yield AsyncioGroup(loop, client)


@asynccontextmanager
async def open_node(config: NodeConfig, machine: StateMachine) -> AsyncIterator[AsyncioNode]:
    """Open a member of a group during a block. Raises as dledger.open_node."""
    loop = loop_of_node(config, machine)
    async with opened_loop(loop) as node:
        yield AsyncioNode(loop, node)


@asynccontextmanager
async def open_host(config: HostConfig) -> AsyncIterator[AsyncioHost]:
    """Open a host during a block. Raises as dledger.open_host."""
    loop = loop_of_host(config)
    async with opened_loop(loop) as host:
        yield AsyncioHost(loop, host)
