"""A plain client of a running group: finds the leader, appends, reads entries, asks for status."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import NamedTuple

import trio

from dledger.change_protocol import ChangeRequest, encode_change
from dledger.client_protocol import (
    MAX_WAIT_MS,
    Operation,
    Request,
    decode_entries_answer,
    encode_request,
)
from dledger.config import Address, parse_address
from dledger.core.configuration_change import Change, Transition
from dledger.core.configuration_codec import NumberedConfiguration, decode_configuration
from dledger.entry import BEFORE_FIRST_INDEX, Entry
from dledger.errors import (
    DLedgerError,
    EntryTooLarge,
    MessageMalformed,
    OutcomeUnknown,
    Rejected,
)
from dledger.frame import Frame, FrameDecoder
from dledger.handshake import Caller, Hello, check_welcome, encode_hello
from dledger.host_connection import RECEIVE_BYTES
from dledger.network_way import NetworkWay
from dledger.session_errors import SessionsOff
from dledger.sessions import DEFAULT_TIMEOUT_S, DEFAULT_TTL_S, Session, open_session
from dledger.tls import ENDED_EARLY, GroupTls, Stream, group_tls
from dledger.tls_config import TlsConfig

CONNECT_TIMEOUT_S = 2.0

# A leader that has not answered for so long may be frozen or cut off: another may lead. Two of the
# longest elections.
ANSWER_TIMEOUT_S = 2.0
# Asking every member who leads takes no longer than this; a frozen one takes CONNECT_TIMEOUT_S.
FIND_LEADER_TIMEOUT_S = 5.0

# Between two attempts to find a leader: a tenth of the shortest election.
_RETRY_S = 0.05


class GroupUnreachable(Rejected):
    """No member could be asked, or none of them leads; nothing was appended."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"{problem}; check that the nodes run and that the addresses are right")


class ConnectionLost(OutcomeUnknown):
    """The connection broke while an append was on its way."""

    def __init__(self, node_id: str) -> None:
        self.node_id = node_id
        super().__init__(
            f"the connection to {node_id} broke before it answered; "
            "read the log to learn what became of the append"
        )


class RemoteError(DLedgerError):
    """An error that a node answered: its class name, its fields, its text."""

    def __init__(self, name: str, fields: Mapping[str, object], text: str) -> None:
        self.name = name
        self.fields = fields
        self.retry_safe = fields.get("retry_safe") is True
        super().__init__(text)


class NodeConnection:
    """One connection to one node; one request at a time."""

    def __init__(self, node_id: str, stream: Stream) -> None:
        self.node_id = node_id
        self._stream = stream
        self._decoder = FrameDecoder()
        self._request_id = 0

    async def hello(self, group: str) -> None:
        """Introduce ourselves. Raises MessageMalformed when the node does not want us."""
        await self._stream.send_all(encode_hello(Hello(Caller.CLIENT, group, self.node_id)))
        check_welcome(await self._frame())

    async def ask(
        self, operation: Operation, numbers: Sequence[int] = (), payload: bytes = b""
    ) -> tuple[object, bytes]:
        """The value and payload of the answer. Raises RemoteError, MessageMalformed, OSError."""
        self._request_id += 1
        request = Request(self._request_id, operation, numbers, payload)
        await self._stream.send_all(encode_request(request))
        frame = await self._frame()
        if len(frame.header) == 3 and frame.header[1] == "ok":
            return frame.header[2], frame.payload
        if len(frame.header) == 5 and isinstance(frame.header[3], dict):
            raise RemoteError(str(frame.header[2]), frame.header[3], str(frame.header[4]))
        raise MessageMalformed("an answer of another shape")

    async def _frame(self) -> Frame:
        while True:
            data = await self._stream.receive_some(RECEIVE_BYTES)
            if not data:
                raise trio.BrokenResourceError("the node closed the connection")
            if frames := self._decoder.feed(bytes(data)):
                return frames[0]


@asynccontextmanager
async def connect_node(
    group: str, node_id: str, address: Address, tls: GroupTls | None = None
) -> AsyncIterator[NodeConnection]:
    """A connection to one node, which with TLS has proven to be it. Raises GroupUnreachable."""
    async with AsyncExitStack() as stack:
        try:
            with trio.fail_after(CONNECT_TIMEOUT_S):
                stream = await trio.open_tcp_stream(*address)
                await stack.enter_async_context(stream)
                secure = stream if tls is None else await tls.dialled(stream, node_id)
                connection = NodeConnection(node_id, secure)
                await connection.hello(group)
        except (OSError, trio.TooSlowError, trio.BrokenResourceError) as error:
            reason = str(error) or type(error).__name__
            if tls is not None and isinstance(error, trio.BrokenResourceError):
                reason = ENDED_EARLY
            raise GroupUnreachable(f"{node_id} at {address}: {reason}") from error
        except MessageMalformed as error:
            raise GroupUnreachable(f"{node_id} at {address}: {error.problem}") from error
        yield connection


class WrittenSnapshot(NamedTuple):
    """A snapshot that a member has: the last entry in it, its bytes, its path over there."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    term: int
    size: int
    path: str


class GroupClient:
    """Talks to a group of which some members' addresses are known.

    It learns the others from them, so all that it was told at first may leave while it lives. For
    a group that speaks TLS it needs a certificate; raises ConfigInvalid for one of no use.
    """

    def __init__(
        self, group: str, peers: Mapping[str, str], tls: GroupTls | TlsConfig | None = None
    ) -> None:
        self._group = group
        self._tls = group_tls(tls)
        self._first = {p: parse_address(f"peers.{p}", a) for p, a in peers.items()}
        self._addresses = self._first
        self._configuration = BEFORE_FIRST_INDEX  # the one that the addresses are of

    def learn(self, index: int, addresses: Mapping[str, str]) -> None:
        """Entry `index` says that these are the members."""
        if index > self._configuration and addresses:
            self._configuration = index
            members = {p: parse_address(f"peers.{p}", a) for p, a in addresses.items()}
            # Those named at first are asked last: one of them may run though it left.
            self._addresses = members | {
                peer: address for peer, address in self._first.items() if peer not in members
            }

    async def status(self, node_id: str) -> dict[str, object]:
        """One node's status. Raises GroupUnreachable."""
        async with self._connect(node_id) as connection:
            value, _ = await connection.ask(Operation.STATUS)
            if not isinstance(value, dict):
                raise MessageMalformed("a status of another shape")
            self._learn_from(value.get("members"))
            return value

    def _learn_from(self, members: object) -> None:
        match members:
            case {"index": int(index), "addresses": dict(addresses)}:
                self.learn(index, addresses)
            case _:
                return  # of a node that says nothing about it

    async def leader_status(self, timeout_s: float) -> dict[str, object]:
        """The status of whoever leads. Raises GroupUnreachable."""
        async with self._leader(timeout_s) as connection:
            node_id = connection.node_id
        return await self.status(node_id)

    async def ready_leader(self) -> str | None:
        """The member that leads and may serve, if one does now."""
        return (await self._ready_leader())[0]

    async def append(self, bodies: Sequence[bytes], timeout_s: float) -> list[tuple[int, int, int]]:
        """Append through the leader: (index, term, pos) of each entry.

        Raises GroupUnreachable (nothing was appended), ConnectionLost (unknown), RemoteError.
        """
        sizes = [len(body) for body in bodies]
        async with self._leader(timeout_s) as connection:
            try:
                rows, _ = await connection.ask(Operation.APPEND, sizes, b"".join(bodies))
            except (OSError, trio.BrokenResourceError) as error:
                raise ConnectionLost(connection.node_id) from error
        if not isinstance(rows, list):
            raise MessageMalformed("an append's answer of another shape")
        return [(row[0], row[1], row[2]) for row in rows]

    def session(
        self, *, ttl_s: float = DEFAULT_TTL_S, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> AbstractAsyncContextManager[Session]:
        """A session: its appends happen once, whichever leader answers. See docs/sessions.md.

        Args:
            ttl_s: the session ends when the group has not heard of it for so long.
            timeout_s: how long to try to begin it.

        Raises NotAppendedInTime, SessionsOff.
        """
        return open_session(NetworkWay(LeaderConnection(self)), ttl_s, timeout_s)

    async def transfer(self, target: str | None, timeout_s: float) -> str:
        """Hand leadership to `target`, or to the member with the longest log; the new leader.

        Raises GroupUnreachable, RemoteError (TransferFailed: the old leader goes on).
        """
        async with self._leader(timeout_s) as connection:
            payload = (target or "").encode()
            try:
                leader, _ = await connection.ask(Operation.TRANSFER, payload=payload)
            except (OSError, trio.BrokenResourceError) as error:
                problem = f"the connection to {connection.node_id} broke; see who leads now"
                raise GroupUnreachable(problem) from error
        return str(leader)

    async def snapshot(self, node_id: str) -> WrittenSnapshot:
        """Have one member write a snapshot of its state now.

        Raises GroupUnreachable, RemoteError (SnapshotUnavailable: there is none, and why).
        """
        async with self._connect(node_id) as connection:
            try:
                row, _ = await connection.ask(Operation.SNAPSHOT)
            except (OSError, trio.BrokenResourceError) as error:
                raise GroupUnreachable(f"the connection to {node_id} broke") from error
        if not isinstance(row, list) or len(row) != len(WrittenSnapshot._fields):
            raise MessageMalformed("a snapshot's answer of another shape")
        return WrittenSnapshot._make(row)

    async def change(
        self,
        changes: Sequence[Change],
        transition: Transition = Transition.AUTO,
        expected: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> NumberedConfiguration:
        """Change who belongs to the group, see `Node.change`; the configuration in force then.

        Waits `timeout_s` for a leader, and then for as long as the leader needs to bring new
        voters up to date. Raises GroupUnreachable, ConnectionLost (unknown), RemoteError (its
        name is the class of the leader's error).
        """
        request = encode_change(ChangeRequest(changes, transition, expected))
        async with self._leader(timeout_s) as connection:
            try:
                _, payload = await connection.ask(*request)
            except (OSError, trio.BrokenResourceError) as error:
                raise ConnectionLost(connection.node_id) from error
        numbered = decode_configuration(payload)
        self.learn(numbered.index, numbered.configuration.addresses)
        return numbered

    async def entries(self, first: int, *, wait_ms: int = 0) -> list[Entry]:
        """Committed entries from `first`, from any node that answers. Raises GroupUnreachable."""
        problems = []
        for node_id in list(self._addresses):
            try:
                async with self._connect(node_id) as connection:
                    rows, payload = await connection.ask(
                        Operation.ENTRIES, [first, min(wait_ms, MAX_WAIT_MS)]
                    )
                    return decode_entries_answer(rows, payload)
            except (GroupUnreachable, OSError, trio.BrokenResourceError) as error:
                problems.append(str(error))
        raise GroupUnreachable("no node answers: " + "; ".join(problems))

    def _connect(self, node_id: str) -> AbstractAsyncContextManager[NodeConnection]:
        return connect_node(self._group, node_id, self._addresses[node_id], self._tls)

    @asynccontextmanager
    async def _leader(self, timeout_s: float) -> AsyncIterator[NodeConnection]:
        async with AsyncExitStack() as stack:
            deadline = trio.current_time() + timeout_s
            while True:
                node_id, problems = await self._ready_leader()
                if node_id is not None:
                    yield await stack.enter_async_context(self._connect(node_id))
                    return
                if trio.current_time() >= deadline:
                    reason = "; ".join(problems) or "no node leads"
                    raise GroupUnreachable(f"no leader within {timeout_s:g} s: {reason}")
                await trio.sleep(_RETRY_S)

    async def _ready_leader(self) -> tuple[str | None, list[str]]:
        problems = []
        for node_id in list(self._addresses):
            try:
                status = await self.status(node_id)
            except (GroupUnreachable, OSError, trio.BrokenResourceError) as error:
                problems.append(str(error))
                continue
            if status.get("ready"):
                return node_id, []
        return None, problems


class RefusedByNode(Rejected):
    """A member refused; nothing was done. `name` and `fields` are those of its error."""

    def __init__(self, error: RemoteError) -> None:
        self.name = error.name
        self.fields = error.fields
        super().__init__(str(error))


class UnknownToNode(OutcomeUnknown):
    """A member cannot tell what became of it. `name` and `fields` are those of its error."""

    def __init__(self, error: RemoteError) -> None:
        self.name = error.name
        self.fields = error.fields
        super().__init__(str(error))


class LeaderConnection:
    """Keeps a connection to whoever leads, for one request at a time."""

    def __init__(self, client: GroupClient) -> None:
        self._client = client
        self._turn = trio.Lock()
        self._stack: AsyncExitStack | None = None
        self._connection: NodeConnection | None = None
        self._hint: str | None = None  # whom the last one we asked takes for the leader

    async def reach(self) -> None:
        """Connect to the leader, unless there is a connection. Raises GroupUnreachable."""
        async with self._turn:
            await self._connected()

    async def ask(
        self, operation: Operation, numbers: Sequence[int], payload: bytes = b""
    ) -> tuple[object, bytes]:
        """One attempt to have the leader do something.

        Raises Rejected (EntryTooLarge, SessionsOff, RefusedByNode, GroupUnreachable: it was not
        done) or OutcomeUnknown (ConnectionLost, UnknownToNode).
        """
        async with self._turn:
            connection = await self._connected()
            node_id = connection.node_id
            try:
                with trio.fail_after(ANSWER_TIMEOUT_S):
                    return await connection.ask(operation, numbers, payload)
            except RemoteError as error:
                leader = error.fields.get("leader")
                self._hint = leader if isinstance(leader, str) else None
                await self.close()
                raise _typed(error) from error
            except (OSError, trio.BrokenResourceError, trio.TooSlowError) as error:
                await self.close()
                raise ConnectionLost(node_id) from error
            except BaseException:
                await self.close()  # an answer that nobody waits for may still come
                raise

    async def close(self) -> None:
        """Close the connection, if there is one."""
        stack, self._stack, self._connection = self._stack, None, None
        if stack is not None:
            with trio.CancelScope(shield=True):
                await stack.aclose()

    async def _connected(self) -> NodeConnection:
        if self._connection is None:
            with trio.move_on_after(FIND_LEADER_TIMEOUT_S):
                try:
                    await self._connect()
                except MessageMalformed as error:
                    raise GroupUnreachable(error.problem) from error
        if self._connection is None:
            raise GroupUnreachable(f"no leader answered within {FIND_LEADER_TIMEOUT_S:g} s")
        return self._connection

    async def _connect(self) -> None:
        leader, self._hint = self._hint, None
        if leader is None or leader not in self._client._addresses:
            leader = await self._client.ready_leader()
        if leader is None:
            raise GroupUnreachable("no node leads")
        async with AsyncExitStack() as stack:
            connect = self._client._connect(leader)
            self._connection = await stack.enter_async_context(connect)
            self._stack = stack.pop_all()


def _typed(error: RemoteError) -> Rejected | OutcomeUnknown:
    """A member's error as one of ours."""
    match error.name, error.fields:
        case "EntryTooLarge", {"body_bytes": int(size), "limit_bytes": int(limit)}:
            return EntryTooLarge(size, limit)
        case "SessionsOff", _:
            return SessionsOff()
        case _:
            return RefusedByNode(error) if error.retry_safe else UnknownToNode(error)
