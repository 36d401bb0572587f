"""What the blocking and the asyncio forms share.

These are the loops that they open, and calls that trio objects do not need: under trio a program
looks at its machine, and opens blocks, itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Any, TypeVar

from dledger.client.group_client import GroupClient
from dledger.client.known_members import Peers
from dledger.client.remote_log import RemoteLog
from dledger.client.remote_log import connect as connect_in_trio
from dledger.config import NodeConfig
from dledger.errors import LogClosed
from dledger.loop_thread import LoopThread
from dledger.network.tls import GroupTls
from dledger.network.tls_config import TlsConfig
from dledger.node.host import Host, HostConfig
from dledger.node.host import open_host as open_host_in_trio
from dledger.node.host import open_node as open_node_in_trio
from dledger.node.node import Node
from dledger.sessions.session import DEFAULT_TIMEOUT_S, Session
from dledger.state_machine import StateMachine
from dledger.wire.proof import Credentials

T = TypeVar("T")


async def session_do(session: Session, call: Callable[[Session], Awaitable[T]]) -> T:
    """Run a trio coroutine function in the loop's thread, and wait for its result.

    For the objects of `dledger.machines`:
    `session.do(lambda session: visits.through(session).add(1))`.
    """
    return await call(session)


def session_within(
    session: Session, make: Callable[[Session], AbstractAsyncContextManager[T]]
) -> AbstractAsyncContextManager[T]:
    """Keep a trio context manager open in the loop's thread during a block:
    `session.within(lambda session: LockCalls(locks, session).hold("door"))`.
    """
    return make(session)


async def node_do(node: Node, call: Callable[[Node], Awaitable[T]]) -> T:
    """Run a trio coroutine function in the loop's thread, and wait for its result."""
    return await call(node)


def node_within(
    node: Node, make: Callable[[Node], AbstractAsyncContextManager[T]]
) -> AbstractAsyncContextManager[T]:
    """Keep a trio context manager open in the loop's thread during a block."""
    return make(node)


def as_it_is(_loop: LoopThread[Any], opened: T) -> T:
    """Return the opened object itself, for `within`: it has no form of its own."""
    return opened


async def read_and_look(node: Node, look: Callable[[], T]) -> T:
    """Wait as Node.read does, then return what `look` reads from the state machine.

    The read is linearizable. `look` runs in the loop's thread, where no entry is applied meanwhile;
    it should copy what it returns.
    """
    await node.read()
    return look()


async def read_stale_and_look(node: Node, look: Callable[[], T], *, max_lag_s: float) -> T:
    """Return what `look` reads from the state machine, which may be as old as Node.read_stale
    allows.
    """
    node.read_stale(max_lag_s=max_lag_s)
    return look()


async def only_look(_node: Node, look: Callable[[], T]) -> T:
    """Return what `look` reads from the state machine as it is on this member, without a wait."""
    return look()


# --- the loops ------------------------------------------------------------------------------------


def connect(
    peers: Peers,
    *,
    group: str,
    tls: GroupTls | TlsConfig | None = None,
    credentials: Credentials | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> LoopThread[RemoteLog]:
    """Open a group's log over the network, during a block. Raises as dledger.connect."""
    make = partial(
        connect_in_trio,
        peers,
        group=group,
        tls=tls,
        credentials=credentials,
        timeout_s=timeout_s,
    )
    return LoopThread(make, f"dledger client of {group}", closed=partial(LogClosed, group))


def open_group(
    group: str,
    peers: Peers,
    tls: GroupTls | TlsConfig | None = None,
    credentials: Credentials | None = None,
) -> LoopThread[GroupClient]:
    """Open a client of a group for tools and scripts, during a block. See dledger.GroupClient."""
    return LoopThread(
        lambda: nullcontext(GroupClient(group, peers, tls, credentials)), f"dledger {group}"
    )


def open_node(config: NodeConfig, machine: StateMachine) -> LoopThread[Node]:
    """Open a member of a group during a block. Raises as dledger.open_node."""
    return LoopThread(partial(open_node_in_trio, config, machine), f"dledger {config.node_id}")


def open_host(config: HostConfig) -> LoopThread[Host]:
    """Open a host during a block. Raises as dledger.open_host."""
    return LoopThread(partial(open_host_in_trio, config), f"dledger {config.address}")
