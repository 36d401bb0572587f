"""Calls that the forms have and trio's objects do not: there a program looks at its machine, and
opens blocks, itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from dledger.loop_thread import LoopThread
from dledger.node.node import Node
from dledger.sessions.session import Session

T = TypeVar("T")


async def session_do(session: Session, call: Callable[[Session], Awaitable[T]]) -> T:
    """Run a coroutine function of trio's in the loop's thread, and wait for its result.

    For the objects of `dledger.machines`:
    `session.do(lambda session: visits.through(session).add(1))`.
    """
    return await call(session)


def session_within(
    session: Session, make: Callable[[Session], AbstractAsyncContextManager[T]]
) -> AbstractAsyncContextManager[T]:
    """Keep a context manager of trio's open in the loop's thread during a block:
    `session.within(lambda session: LockCalls(locks, session).hold("door"))`.
    """
    return make(session)


async def node_do(node: Node, call: Callable[[Node], Awaitable[T]]) -> T:
    """Run a coroutine function of trio's in the loop's thread. See `do` of a session."""
    return await call(node)


def node_within(
    node: Node, make: Callable[[Node], AbstractAsyncContextManager[T]]
) -> AbstractAsyncContextManager[T]:
    """Keep a context manager of trio's open. See `within` of a session."""
    return make(node)


def as_it_is(_loop: LoopThread[Any], opened: T) -> T:
    """What `within` has opened has no form of its own."""
    return opened


async def read_and_look(node: Node, look: Callable[[], T]) -> T:
    """A linearizable read: wait as Node.read does, then `look` at the state machine.

    `look` runs in the loop's thread, where no entry is applied meanwhile; it should copy what it
    returns.
    """
    await node.read()
    return look()


async def read_stale_and_look(node: Node, look: Callable[[], T], *, max_lag_s: float) -> T:
    """As `read`, of a state that may be old: see Node.read_stale."""
    node.read_stale(max_lag_s=max_lag_s)
    return look()


async def only_look(_node: Node, look: Callable[[], T]) -> T:
    """`look` at the state machine as it is on this member, without a wait."""
    return look()
