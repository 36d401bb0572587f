"""The library with blocking calls, for programs that do not use trio.

    with dledger.blocking.open_node(config, machine) as node:
        appended = node.append(b"hello")
        future = node.append_soon(b"more")

    with dledger.blocking.connect("n0=10.0.0.1:20911", group="orders") as log:
        appended = log.append(b"hello")

A trio loop runs in a thread of its own; `with` starts and ends it. Calls may come from any thread,
from signal handlers and from callbacks; one that waits raises CallMisplaced where it would wait for
itself, and so does each call in a process that was forked since. Every error is that of the same
call in `dledger`, plus TimeoutError where a call has `timeout_s` and the class says nothing else:
that gives up the wait, not the append.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, TypeVar

from dledger.client.group_client import GroupClient
from dledger.client.known_members import Peers
from dledger.client.remote_log import RemoteLog
from dledger.client.remote_log import connect as connect_in_trio
from dledger.config import NodeConfig
from dledger.core.membership.configuration_codec import NumberedConfiguration
from dledger.entry import Body
from dledger.errors import LogClosed
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
from dledger.forms import at_once, iterates, iterator_of, opens, soon, waits
from dledger.handed_over import HandedOver, TooManyCalls
from dledger.loop_thread import CallCutOff, CallMisplaced, LoopThread
from dledger.network.tls import GroupTls
from dledger.network.tls_config import TlsConfig
from dledger.node.host import Host, HostConfig
from dledger.node.host import open_host as open_host_in_trio
from dledger.node.host import open_node as open_node_in_trio
from dledger.node.node import Node
from dledger.sessions.session import DEFAULT_TIMEOUT_S, Session
from dledger.state_machine import StateMachine
from dledger.status import RoleChange
from dledger.waits.pending_appends import Appended

__all__ = [
    "BlockingGroup",
    "BlockingHost",
    "BlockingLog",
    "BlockingNode",
    "BlockingSession",
    "CallCutOff",
    "CallMisplaced",
    "TooManyCalls",
    "connect",
    "open_group",
    "open_host",
    "open_node",
]

T = TypeVar("T")


class BlockingSession:
    """A session: each append happens once. See docs/sessions.md.

    Appends of `append_soon` are made in the order of the calls.
    """

    def __init__(self, loop: LoopThread[Any], session: Session) -> None:
        self._loop = loop
        self._inner = session
        self.id = session.id

    append = waits(Session.append)
    append_soon = soon(Session.append)
    append_many = waits(Session.append_many)
    append_many_soon = soon(Session.append_many)
    settle = waits(Session.settle)
    entries_from = waits(Session.entries_from)

    @property
    def unsettled(self) -> int:
        """As Session.unsettled."""
        return self._inner.unsettled

    do = waits(session_do)
    within = opens(session_within, as_it_is)


class BlockingNode:
    """A running member. Made by `open_node`, and by `BlockingHost.open_node`."""

    def __init__(self, loop: LoopThread[Any], node: Node) -> None:
        self._loop = loop
        self._inner = node
        self._handed_over = HandedOver(loop, node)

    # --- appending ------------------------------------------------------------------------------

    def append(self, body: Body, *, timeout_s: float | None = None) -> Appended:
        """As Node.append."""
        return self.append_many((body,), timeout_s=timeout_s)[0]

    def append_many(
        self, bodies: Sequence[Body], *, timeout_s: float | None = None
    ) -> list[Appended]:
        """As Node.append_many."""
        self._loop.check_waitable()
        return self._handed_over.add(bodies).result(timeout_s)

    def append_soon(self, body: Body) -> Future[Appended]:
        """Append one entry; return a future of its outcome. Raises as `append_many_soon`."""
        return self._handed_over.add_one(body)

    def append_many_soon(self, bodies: Sequence[Body]) -> Future[list[Appended]]:
        """Append adjacent entries; return a future of their outcome.

        Many threads may call it: simultaneous submissions share one turn. Raises TooManyCalls.
        """
        return self._handed_over.add(bodies)

    do = waits(node_do)
    within = opens(node_within, as_it_is)
    session = opens(Node.session, BlockingSession)

    # --- reading --------------------------------------------------------------------------------

    def read(self, look: Callable[[], T], *, timeout_s: float | None = None) -> T:
        """A linearizable read: wait as Node.read does, then `look` at the state machine.

        `look` runs in the loop's thread, where no entry is applied meanwhile; it should copy what
        it returns.
        """
        self._loop.check_waitable()
        return self.read_soon(look).result(timeout_s)

    read_soon = soon(read_and_look)
    read_stale = waits(read_stale_and_look)
    look = waits(only_look)
    committed = iterates(Node.committed)
    entries = waits(at_once(Node.entries))
    entries_from = waits(Node.entries_from)
    wait_applied = waits(Node.wait_applied)
    wait_appliable = waits(Node.wait_appliable)

    # --- looking after it -----------------------------------------------------------------------

    status = waits(at_once(Node.status))
    role_changes = iterates(Node.role_changes)
    snapshot = waits(Node.snapshot)
    transfer_leadership = waits(Node.transfer_leadership)
    forget_leader = waits(at_once(Node.forget_leader))
    change = waits(Node.change)
    reconfigure = waits(at_once(Node.reconfigure))
    reload_tls = waits(at_once(Node.reload_tls))

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


class BlockingLog:
    """A group's log over the network. Made by `connect`."""

    def __init__(self, loop: LoopThread[Any], log: RemoteLog) -> None:
        self._loop = loop
        self._inner = log

    append = waits(RemoteLog.append)
    append_soon = soon(RemoteLog.append)
    append_many = waits(RemoteLog.append_many)
    append_many_soon = soon(RemoteLog.append_many)
    read = waits(RemoteLog.read)
    read_soon = soon(RemoteLog.read)
    tail = iterates(RemoteLog.tail)
    query = waits(RemoteLog.query)
    query_soon = soon(RemoteLog.query)
    watch = iterates(RemoteLog.watch)
    status = waits(RemoteLog.status)

    session = opens(RemoteLog.session, BlockingSession)


class BlockingGroup:
    """A group for tools and scripts: see GroupClient. Made by `open_group`."""

    def __init__(self, loop: LoopThread[Any], client: GroupClient) -> None:
        self._loop = loop
        self._inner = client

    ask_members = waits(GroupClient.ask_members)
    status = waits(GroupClient.status)
    leader_status = waits(GroupClient.leader_status)
    ready_leader = waits(GroupClient.ready_leader)
    append = waits(GroupClient.append)
    transfer = waits(GroupClient.transfer)
    snapshot = waits(GroupClient.snapshot)
    change = waits(GroupClient.change)
    entries = waits(GroupClient.entries)
    query = waits(GroupClient.query)
    watch = opens(GroupClient.watch, iterator_of)

    @property
    def members(self) -> dict[str, str]:
        """As GroupClient.members."""
        return self._inner.members

    @property
    def members_are_told(self) -> bool:
        """As GroupClient.members_are_told."""
        return self._inner.members_are_told

    session = opens(GroupClient.session, BlockingSession)


class BlockingHost:
    """Members of many groups in one process. Made by `open_host`."""

    def __init__(self, loop: LoopThread[Any], host: Host) -> None:
        self._loop = loop
        self._inner = host

    reload_tls = waits(at_once(Host.reload_tls))

    # A member that ends by itself ends its block with its error, and no other member.
    open_node = opens(Host.open_node, BlockingNode)


@contextmanager
def connect(
    peers: Peers,
    *,
    group: str,
    tls: GroupTls | TlsConfig | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Iterator[BlockingLog]:
    """Open a group's log over the network, during a `with` block. As dledger.connect."""
    loop = loop_of_log(peers, group, tls, timeout_s)
    with _opened(loop) as log:
        yield BlockingLog(loop, log)


@contextmanager
def open_group(
    group: str, peers: Peers, tls: GroupTls | TlsConfig | None = None
) -> Iterator[BlockingGroup]:
    """A client for tools and scripts, during a `with` block. As dledger.GroupClient."""
    loop = loop_of_group(group, peers, tls)
    with _opened(loop) as client:
        yield BlockingGroup(loop, client)


@contextmanager
def open_node(config: NodeConfig, machine: StateMachine) -> Iterator[BlockingNode]:
    """Open a member of a group during a `with` block. Raises as dledger.open_node."""
    loop = loop_of_node(config, machine)
    with _opened(loop) as node:
        yield BlockingNode(loop, node)


@contextmanager
def open_host(config: HostConfig) -> Iterator[BlockingHost]:
    """Open a host during a `with` block. Raises as dledger.open_host."""
    loop = loop_of_host(config)
    with _opened(loop) as host:
        yield BlockingHost(loop, host)


# --- what both forms share ------------------------------------------------------------------------


def loop_of_log(
    peers: Peers, group: str, tls: GroupTls | TlsConfig | None, timeout_s: float
) -> LoopThread[RemoteLog]:
    """A thread for `connect`."""
    make = partial(connect_in_trio, peers, group=group, tls=tls, timeout_s=timeout_s)
    return LoopThread(make, f"dledger client of {group}", closed=partial(LogClosed, group))


def loop_of_group(
    group: str, peers: Peers, tls: GroupTls | TlsConfig | None
) -> LoopThread[GroupClient]:
    """A thread for `open_group`."""
    return LoopThread(lambda: nullcontext(GroupClient(group, peers, tls)), f"dledger {group}")


def loop_of_node(config: NodeConfig, machine: StateMachine) -> LoopThread[Node]:
    """A thread for `open_node`."""
    return LoopThread(partial(open_node_in_trio, config, machine), f"dledger {config.node_id}")


def loop_of_host(config: HostConfig) -> LoopThread[Host]:
    """A thread for `open_host`."""
    return LoopThread(partial(open_host_in_trio, config), f"dledger {config.address}")


@contextmanager
def _opened(loop: LoopThread[T]) -> Iterator[T]:
    opened = loop.open()
    try:
        yield opened
    finally:
        loop.close()
