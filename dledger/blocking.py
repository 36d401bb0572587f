"""The library with blocking calls, for programs that do not use trio.

    with dledger.blocking.open_node(config, machine) as node:
        appended = node.append(b"hello")
        future = node.append_soon(b"more")

    with dledger.blocking.connect("n0=10.0.0.1:20911", group="orders") as log:
        appended = log.append(b"hello")

A trio loop runs in a thread of its own; `with` starts and ends it. Calls may come from any thread,
from signal handlers and from callbacks. A call that would wait for its own thread raises
CallMisplaced, and so does each call in a process that was forked since. Otherwise a call raises the
errors of the same call in `dledger`. With `timeout_s` it also raises TimeoutError, unless its class
says otherwise: that gives up the wait, not the append.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from dledger import form_parts as parts
from dledger.client.group_client import GroupClient
from dledger.client.remote_log import RemoteLog
from dledger.core.membership.configuration_codec import NumberedConfiguration
from dledger.entry import Body
from dledger.forms import Form, at_once, iterates, iterator_of, opens, seen, soon, waits
from dledger.handed_over import HandedOver, TooManyCalls
from dledger.loop_thread import CallCutOff, CallMisplaced, LoopThread
from dledger.node.host import Host
from dledger.node.node import Node
from dledger.sessions.session import Session
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

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class BlockingSession(Form[Session]):
    """A session: each append happens once. See docs/sessions.md.

    Appends of `append_soon` are made in the order of the calls.
    """

    def __init__(self, loop: LoopThread[Any], session: Session) -> None:
        super().__init__(loop, session)
        self.id = session.id

    append = waits(Session.append)
    append_soon = soon(Session.append)
    append_many = waits(Session.append_many)
    append_many_soon = soon(Session.append_many)
    settle = waits(Session.settle)
    entries_from = waits(Session.entries_from)

    unsettled: int = seen(Session.unsettled)

    do = waits(parts.session_do)
    within = opens(parts.session_within, parts.as_it_is)


class BlockingNode(Form[Node]):
    """A running member. Made by `open_node`, and by `BlockingHost.open_node`."""

    def __init__(self, loop: LoopThread[Any], node: Node) -> None:
        super().__init__(loop, node)
        self._handed_over = HandedOver(loop, node)

    # --- appending ------------------------------------------------------------------------------

    def append(self, body: Body, *, timeout_s: float | None = None) -> Appended:
        """Append one entry and wait until it is committed and applied here. Raises as Node.append,
        and TimeoutError.
        """
        return self.append_many((body,), timeout_s=timeout_s)[0]

    def append_many(
        self, bodies: Sequence[Body], *, timeout_s: float | None = None
    ) -> list[Appended]:
        """Append adjacent entries and wait until they are committed and applied here. Raises as
        Node.append_many, and TimeoutError.
        """
        self._loop.check_waitable()
        return self._handed_over.add(bodies).result(timeout_s)

    def append_soon(self, body: Body) -> Future[Appended]:
        """Append one entry; return a future of its outcome. Raises TooManyCalls."""
        return self._handed_over.add_one(body)

    def append_many_soon(self, bodies: Sequence[Body]) -> Future[list[Appended]]:
        """Append adjacent entries; return a future of their outcome.

        Many threads may call it: simultaneous submissions share one turn. Raises TooManyCalls.
        """
        return self._handed_over.add(bodies)

    do = waits(parts.node_do)
    within = opens(parts.node_within, parts.as_it_is)
    session = opens(Node.session, BlockingSession)

    # --- reading --------------------------------------------------------------------------------

    def read(self, look: Callable[[], T], *, timeout_s: float | None = None) -> T:
        """Wait as Node.read does, then return what `look` reads from the state machine.

        The read is linearizable. `look` runs in the loop's thread, where no entry is applied
        meanwhile; it should copy what it returns.
        """
        self._loop.check_waitable()
        return self.read_soon(look).result(timeout_s)

    read_soon = soon(parts.read_and_look)
    read_stale = waits(parts.read_stale_and_look)
    look = waits(parts.only_look)
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
    reload_users = waits(at_once(Node.reload_users))

    term: int = seen(Node.term)
    role: RoleChange = seen(Node.role)
    is_ready_leader: bool = seen(Node.is_ready_leader)
    configuration: NumberedConfiguration = seen(Node.configuration)


class BlockingLog(Form[RemoteLog]):
    """A group's log over the network. Made by `connect`."""

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


class BlockingGroup(Form[GroupClient]):
    """A group for tools and scripts: see GroupClient. Made by `open_group`."""

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

    members: dict[str, str] = seen(GroupClient.members)
    members_are_told: bool = seen(GroupClient.members_are_told)

    session = opens(GroupClient.session, BlockingSession)


class BlockingHost(Form[Host]):
    """Members of many groups in one process. Made by `open_host`."""

    reload_tls = waits(at_once(Host.reload_tls))
    reload_users = waits(at_once(Host.reload_users))

    # A member that ends by itself ends its block with its error, and no other member.
    open_node = opens(Host.open_node, BlockingNode)


def _opens(
    make: Callable[P, LoopThread[T]], form: Callable[[LoopThread[Any], T], R]
) -> Callable[P, AbstractContextManager[R]]:
    @wraps(make, assigned=("__name__", "__qualname__", "__doc__"))
    @contextmanager
    def call(*args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        loop = make(*args, **kwargs)
        opened = loop.open()
        try:
            yield form(loop, opened)
        finally:
            loop.close()

    return call


connect = _opens(parts.connect, BlockingLog)
open_group = _opens(parts.open_group, BlockingGroup)
open_node = _opens(parts.open_node, BlockingNode)
open_host = _opens(parts.open_host, BlockingHost)
