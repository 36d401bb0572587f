"""The library with blocking calls, for programs that do not use trio.

    with dledger.blocking.open_node(config, machine) as node:
        appended = node.append(b"hello")
        future = node.append_soon(b"more")

    with dledger.blocking.connect("n0=10.0.0.1:20911", group="orders") as log:
        appended = log.append(b"hello")

A trio loop runs in a thread of its own; `with` starts and ends it. Calls may come from any thread
but that one: the state machine must not call its own node. Every error is that of the same call in
`dledger`, plus TimeoutError where a call has `timeout_s`: that gives up the wait, not the append.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from dledger.client.known_members import Peers
from dledger.client.remote_log import RemoteLog
from dledger.client.remote_log import connect as connect_in_trio
from dledger.config import NodeConfig
from dledger.entry import Body, Entry
from dledger.errors import Rejected
from dledger.loop_thread import CallCutOff, LoopThread, answer
from dledger.network.tls import GroupTls
from dledger.network.tls_config import TlsConfig
from dledger.node.node import Node
from dledger.node.open_node import open_node as open_node_in_trio
from dledger.sessions.session import DEFAULT_TIMEOUT_S, DEFAULT_TTL_S, Session, SessionAppended
from dledger.state_machine import StateMachine
from dledger.status import Status
from dledger.store.snapshot_folder import Snapshot
from dledger.waits.pending_appends import Appended, Outcome

T = TypeVar("T")

# Submissions on their way from other threads into the loop. The node's own limits apply after that;
# this one bounds the memory if threads submit faster than the loop takes them.
MAX_HANDED_OVER = 100_000


class TooManyCalls(Rejected):
    """Other threads hand over appends faster than the loop takes them."""

    waiting: int
    _template = "{waiting} submissions wait for the node's thread; slow down, try again"


class BlockingSession:
    """A session: each append happens once. See docs/sessions.md."""

    def __init__(self, loop: LoopThread[Node] | LoopThread[RemoteLog], session: Session) -> None:
        self._loop = loop
        self._session = session

    def append(self, body: bytes, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> SessionAppended:
        """As Session.append."""
        return self.append_soon(body, timeout_s=timeout_s).result()

    def append_soon(
        self, body: bytes, *, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> Future[SessionAppended]:
        """As `append`, but return a future. A session sends one submission at a time, in order."""
        return self._loop.submit(partial(self._session.append, body, timeout_s=timeout_s))

    def append_many(
        self, bodies: Sequence[bytes], *, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> list[SessionAppended]:
        """As Session.append_many."""
        call = partial(self._session.append_many, bodies, timeout_s=timeout_s)
        return self._loop.submit(call).result()

    def settle(self, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> list[SessionAppended]:
        """As Session.settle."""
        return self._loop.submit(partial(self._session.settle, timeout_s=timeout_s)).result()

    def do(self, call: Callable[[Session], Awaitable[T]]) -> T:
        """Run a coroutine function in the loop's thread, and wait for its result.

        For the objects of `dledger.machines`:
        `session.do(lambda session: visits.through(session).add(1))`.
        """
        return self._loop.submit(partial(call, self._session)).result()


class BlockingNode:
    """A running member. Made by `open_node`."""

    def __init__(self, loop: LoopThread[Node], node: Node) -> None:
        self._loop = loop
        self._node = node
        self._handed_over: deque[tuple[Sequence[Body], Future[list[Appended]]]] = deque()
        self._lock = threading.Lock()
        self._submitted: set[Future[list[Appended]]] = set()  # those that have no answer yet
        loop.at_end(self._end_all)

    # --- appending ------------------------------------------------------------------------------

    def append(self, body: Body, *, timeout_s: float | None = None) -> Appended:
        """As Node.append."""
        return self.append_many((body,), timeout_s=timeout_s)[0]

    def append_many(
        self, bodies: Sequence[Body], *, timeout_s: float | None = None
    ) -> list[Appended]:
        """As Node.append_many."""
        return self.append_many_soon(bodies).result(timeout_s)

    def append_soon(self, body: Body) -> Future[Appended]:
        """Append one entry; return a future of its outcome."""
        one: Future[Appended] = Future()
        one.set_running_or_notify_cancel()
        self.append_many_soon((body,)).add_done_callback(partial(_pass_on_first, one))
        return one

    def append_many_soon(self, bodies: Sequence[Body]) -> Future[list[Appended]]:
        """Append adjacent entries; return a future of their outcome.

        Many threads may call it: simultaneous submissions share one turn. Raises TooManyCalls.
        """
        future: Future[list[Appended]] = Future()
        if not bodies:
            future.set_result([])
            return future
        with self._lock:
            waiting = len(self._handed_over)
            if waiting >= MAX_HANDED_OVER:
                raise TooManyCalls(waiting)
            self._handed_over.append((bodies, future))
        if not waiting and not self._loop.soon(self._take_over):
            self._refuse_all()
        return future

    def _take_over(self) -> None:
        """In the loop's thread: submit everything that other threads handed over."""
        with self._lock:
            taken, self._handed_over = self._handed_over, deque()
        for bodies, future in taken:
            if not future.set_running_or_notify_cancel():
                continue
            self._submitted.add(future)
            try:
                self._node.submit(bodies, partial(self._resolve, future))
            except Exception as error:  # the loop would end with it
                self._resolve(future, error)

    def _resolve(self, future: Future[list[Appended]], outcome: Outcome | Exception) -> None:
        self._submitted.discard(future)
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    def _end_all(self) -> None:
        """Fail every open future: the loop has ended, and nothing else would answer them."""
        for future in list(self._submitted):
            answer(future, CallCutOff())
        self._refuse_all()

    def _refuse_all(self) -> None:
        with self._lock:
            taken, self._handed_over = self._handed_over, deque()
        for _, future in taken:
            if future.set_running_or_notify_cancel():
                future.set_exception(self._loop.gone())

    def do(self, call: Callable[[Node], Awaitable[T]]) -> T:
        """Run a coroutine function in the loop's thread. See BlockingSession.do."""
        return self._loop.submit(partial(call, self._node)).result()

    @contextmanager
    def session(
        self, *, ttl_s: float = DEFAULT_TTL_S, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> Iterator[BlockingSession]:
        """As Node.session."""
        make = partial(self._node.session, ttl_s=ttl_s, timeout_s=timeout_s)
        with self._loop.keep_open(make) as session:
            yield BlockingSession(self._loop, session)

    # --- reading --------------------------------------------------------------------------------

    def read(self, look: Callable[[], T], *, timeout_s: float | None = None) -> T:
        """A linearizable read: wait as Node.read does, then `look` at the state machine.

        `look` runs in the loop's thread, where no entry is applied meanwhile; it should copy what
        it returns.
        """
        return self.read_soon(look).result(timeout_s)

    def read_soon(self, look: Callable[[], T]) -> Future[T]:
        """As `read`, but return a future."""

        async def read() -> T:
            await self._node.read()
            return look()

        return self._loop.submit(read)

    def look(self, look: Callable[[], T]) -> T:
        """As `read`, without the wait: `look` sees the state as it is on this member."""

        async def now() -> T:
            return look()

        return self._loop.submit(now).result()

    def committed(self, start: int = 0) -> Iterator[Entry]:
        """As Node.committed: all committed entries from `start`, then new ones, without end."""
        entries = aiter(self._node.committed(start))
        while True:
            yield self._loop.submit(partial(anext, entries)).result()

    # --- looking after it -----------------------------------------------------------------------

    def status(self) -> Status:
        """As Node.status."""
        return self.look(self._node.status)

    def transfer_leadership(self, target: str | None = None) -> str:
        """As Node.transfer_leadership."""
        return self._loop.submit(partial(self._node.transfer_leadership, target)).result()

    def snapshot(self) -> Snapshot:
        """As Node.snapshot."""
        return self._loop.submit(self._node.snapshot).result()


class BlockingLog:
    """A group's log over the network. Made by `connect`."""

    def __init__(self, loop: LoopThread[RemoteLog], log: RemoteLog) -> None:
        self._loop = loop
        self._log = log

    def append(self, body: bytes, *, timeout_s: float | None = None) -> Appended:
        """As RemoteLog.append."""
        return self.append_soon(body, timeout_s=timeout_s).result()

    def append_soon(self, body: bytes, *, timeout_s: float | None = None) -> Future[Appended]:
        """As `append`, but return a future; the calls of all threads share one connection."""
        return self._loop.submit(partial(self._log.append, body, timeout_s=timeout_s))

    def append_many(
        self, bodies: Sequence[bytes], *, timeout_s: float | None = None
    ) -> list[Appended]:
        """As RemoteLog.append_many."""
        call = partial(self._log.append_many, bodies, timeout_s=timeout_s)
        return self._loop.submit(call).result()

    def read(self, index: int, *, timeout_s: float | None = None) -> Entry:
        """As RemoteLog.read."""
        return self._loop.submit(partial(self._log.read, index, timeout_s=timeout_s)).result()

    def tail(self, first: int = 0, *, follow: bool = True) -> Iterator[Entry]:
        """As RemoteLog.tail."""
        following = self.tail_soon(first, follow=follow)
        while (entry := following().result()) is not None:
            yield entry

    def tail_soon(
        self, first: int = 0, *, follow: bool = True
    ) -> Callable[[], Future[Entry | None]]:
        """As `tail`, but return a function that returns a future of the next entry, or None.

        A cancelled future may lose an entry: begin a new tail after the last one you got.
        """
        entries = aiter(self._log.tail(first, follow=follow))
        following: Callable[[], Awaitable[Entry | None]] = partial(anext, entries, None)
        return partial(self._loop.submit, following)

    def status(self, node_id: str | None = None) -> dict[str, object]:
        """As RemoteLog.status."""
        return self._loop.submit(partial(self._log.status, node_id)).result()

    @contextmanager
    def session(
        self, *, ttl_s: float = DEFAULT_TTL_S, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> Iterator[BlockingSession]:
        """As RemoteLog.session."""
        make = partial(self._log.session, ttl_s=ttl_s, timeout_s=timeout_s)
        with self._loop.keep_open(make) as session:
            yield BlockingSession(self._loop, session)


@contextmanager
def connect(
    peers: Peers,
    *,
    group: str,
    tls: GroupTls | TlsConfig | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Iterator[BlockingLog]:
    """Open a group's log over the network, during a `with` block. As dledger.connect."""
    make = partial(connect_in_trio, peers, group=group, tls=tls, timeout_s=timeout_s)
    loop = LoopThread(make, f"dledger client of {group}")
    log = loop.open()
    try:
        yield BlockingLog(loop, log)
    finally:
        loop.close()


@contextmanager
def open_node(config: NodeConfig, machine: StateMachine) -> Iterator[BlockingNode]:
    """Open a member of a group during a `with` block. Raises as dledger.open_node."""
    loop = LoopThread(partial(open_node_in_trio, config, machine), f"dledger {config.node_id}")
    node = loop.open()
    try:
        yield BlockingNode(loop, node)
    finally:
        loop.close()


def _pass_on_first(one: Future[Appended], many: Future[list[Appended]]) -> None:
    error = many.exception()
    if error is not None:
        one.set_exception(error)
    else:
        one.set_result(many.result()[0])
