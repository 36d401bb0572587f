"""The library for programs that run asyncio.

    async with dledger.for_asyncio.open_node(config, machine) as node:
        appended = await node.append(b"hello")

    async with dledger.for_asyncio.connect("n0=10.0.0.1:20911", group="orders") as log:
        appended = await log.append(b"hello")

The node's own loop runs in a thread beside asyncio's. Calls cross by futures, and none occupies a
thread of asyncio's executor. Cancelling a call gives up the wait, not the append. Errors are those
of the same calls in `dledger`; CallMisplaced is raised in a process that was forked since. If the
node has to stop by itself, the block is cancelled, and raises the reason.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from dledger import form_parts as parts
from dledger.asyncio_block import opened_loop
from dledger.asyncio_forms import (
    awaits,
    given_up,
    iterates_in_asyncio,
    iterator_in_asyncio,
    opens_in_asyncio,
)
from dledger.client.group_client import GroupClient
from dledger.client.remote_log import RemoteLog
from dledger.core.membership.configuration_codec import NumberedConfiguration
from dledger.entry import Body
from dledger.forms import Form, at_once, seen
from dledger.handed_over import HandedOver
from dledger.loop_thread import LoopThread
from dledger.node.host import Host
from dledger.node.node import Node
from dledger.sessions.session import Session
from dledger.status import RoleChange
from dledger.waits.pending_appends import Appended

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class AsyncioSession(Form[Session]):
    """A session: each append happens once. See docs/sessions.md.

    Appends are made in the order of the calls.
    """

    def __init__(self, loop: LoopThread[Any], session: Session) -> None:
        super().__init__(loop, session)
        self.id = session.id

    append = awaits(Session.append)
    append_many = awaits(Session.append_many)
    settle = awaits(Session.settle)
    entries_from = awaits(Session.entries_from)

    unsettled: int = seen(Session.unsettled)

    do = awaits(parts.session_do)
    within = opens_in_asyncio(parts.session_within, parts.as_it_is)


class AsyncioNode(Form[Node]):
    """A running member. Made by `open_node`, and by `AsyncioHost.open_node`."""

    def __init__(self, loop: LoopThread[Any], node: Node) -> None:
        super().__init__(loop, node)
        self._handed_over = HandedOver(loop, node)

    # --- appending ------------------------------------------------------------------------------

    async def append(self, body: Body) -> Appended:
        """Append one entry and wait until it is committed and applied here. Raises as
        Node.append.
        """
        self._loop.check_waitable()
        return await given_up(self._handed_over.add_one(body))

    async def append_many(self, bodies: Sequence[Body]) -> list[Appended]:
        """Append adjacent entries and wait until they are committed and applied here. Raises as
        Node.append_many.
        """
        self._loop.check_waitable()
        return await given_up(self._handed_over.add(bodies))

    do = awaits(parts.node_do)
    within = opens_in_asyncio(parts.node_within, parts.as_it_is)
    session = opens_in_asyncio(Node.session, AsyncioSession)

    # --- reading --------------------------------------------------------------------------------

    read = awaits(parts.read_and_look)
    read_stale = awaits(parts.read_stale_and_look)
    look = awaits(parts.only_look)
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
    reload_users = awaits(at_once(Node.reload_users))

    term: int = seen(Node.term)
    role: RoleChange = seen(Node.role)
    is_ready_leader: bool = seen(Node.is_ready_leader)
    configuration: NumberedConfiguration = seen(Node.configuration)


class AsyncioLog(Form[RemoteLog]):
    """A group's log over the network. Made by `connect`."""

    append = awaits(RemoteLog.append)
    append_many = awaits(RemoteLog.append_many)
    read = awaits(RemoteLog.read)
    tail = iterates_in_asyncio(RemoteLog.tail)
    query = awaits(RemoteLog.query)
    watch = iterates_in_asyncio(RemoteLog.watch)
    status = awaits(RemoteLog.status)

    session = opens_in_asyncio(RemoteLog.session, AsyncioSession)


class AsyncioGroup(Form[GroupClient]):
    """A group for tools and scripts: see GroupClient. Made by `open_group`."""

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

    members: dict[str, str] = seen(GroupClient.members)
    members_are_told: bool = seen(GroupClient.members_are_told)

    session = opens_in_asyncio(GroupClient.session, AsyncioSession)


class AsyncioHost(Form[Host]):
    """Members of many groups in one process. Made by `open_host`."""

    reload_tls = awaits(at_once(Host.reload_tls))
    reload_users = awaits(at_once(Host.reload_users))

    # A member that ends by itself ends its block with its error, and no other member.
    open_node = opens_in_asyncio(Host.open_node, AsyncioNode)


def _opens(
    make: Callable[P, LoopThread[T]], form: Callable[[LoopThread[Any], T], R]
) -> Callable[P, AbstractAsyncContextManager[R]]:
    @wraps(make, assigned=("__name__", "__qualname__", "__doc__"))
    @asynccontextmanager
    async def call(*args: P.args, **kwargs: P.kwargs) -> AsyncIterator[R]:
        loop = make(*args, **kwargs)
        async with opened_loop(loop) as opened:
            yield form(loop, opened)

    return call


connect = _opens(parts.connect, AsyncioLog)
open_group = _opens(parts.open_group, AsyncioGroup)
open_node = _opens(parts.open_node, AsyncioNode)
open_host = _opens(parts.open_host, AsyncioHost)
