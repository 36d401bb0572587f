"""A group's log over the network, for programs outside the group.

async with dledger.connect("n0=10.0.0.1:20911,n1=10.0.0.2:20911", group="orders") as log:
    appended = await log.append(b"hello")
    async for entry in log.tail(0):
        print(entry.index, entry.body)
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import trio

from dledger.body_check import checked_lengths
from dledger.changes import PathPart
from dledger.client.client_errors import (
    AnswerOverdue,
    AnswerUnreadable,
    ClientRefused,
    ConnectionLost,
    GroupUnreachable,
    TooManyBodies,
)
from dledger.client.known_members import KnownMembers, Peers
from dledger.client.leader_connection import LeaderConnection, NetworkWay
from dledger.client.node_connection import NodeConnection, connect_node
from dledger.client.remote_entries import (
    HOLD_MS,
    ReadingConnection,
    RemoteEntries,
    RemoteWatch,
    entries_in_answer,
    held_entries,
)
from dledger.entry import MAX_BODY_BYTES, Entry
from dledger.errors import (
    ConfigInvalid,
    Discarded,
    DiskFull,
    LeadershipMoving,
    LogClosed,
    LogFull,
    MessageMalformed,
    NodeClosing,
    NotLeader,
    OutcomeUnknown,
    OutsideLog,
    ProofNeeded,
    ReadUnavailable,
)
from dledger.network.network import TCP, Network
from dledger.network.tls import GroupTls, group_tls
from dledger.network.tls_config import TlsConfig
from dledger.patient_limit import patient_limit
from dledger.pauses import Pauses
from dledger.sessions.session import (
    DEFAULT_TIMEOUT_S,
    DEFAULT_TTL_S,
    NotAppendedInTime,
    Session,
    open_session,
)
from dledger.trio_only import require_trio
from dledger.unwrapping_nursery import unwrapping_nursery
from dledger.waits.pending_appends import Appended
from dledger.wire.client_protocol import (
    MAX_BODIES,
    MAX_ENTRIES_BYTES,
    READING,
    Operation,
    askable,
    decode_appended,
)
from dledger.wire.proof import Credentials, Shows, shows_nothing, shows_of
from dledger.wire.query_protocol import Queried, Query, decode_queried, encode_query
from dledger.wire.watch_protocol import Watch, encode_watch

# These errors pass by themselves, or with another leader. A retry after others is useless.
_PASSING = (
    GroupUnreachable,
    NotLeader,
    LeadershipMoving,
    LogClosed,
    LogFull,
    DiskFull,
    NodeClosing,
    ProofNeeded,
    Discarded,
)
# A year: a larger limit, or an infinite one, counts as no limit.
LONGEST_LAG_S = 366 * 86_400.0

_PASSING_FOR_READS = (*_PASSING, OutcomeUnknown, ReadUnavailable)


class RemoteLog:
    """The log of a group. Made by `connect`; all its tasks share one connection to the leader.

    Calls wait for a leader, and retry requests that certainly did not happen, until `timeout_s` is
    over. An append that may have happened is not retried; a `session` does that safely.
    """

    def __init__(
        self,
        members: KnownMembers,
        tls: GroupTls | None,
        leader: LeaderConnection,
        reading: ReadingConnection,
        timeout_s: float,
        shows: Shows = shows_nothing,
    ) -> None:
        self._shows = shows
        self._members = members
        self._tls = tls
        self._leader = leader
        self._reading = reading
        self._timeout_s = timeout_s

    # --- appending ----------------------------------------------------------------------------

    async def append(self, body: bytes, *, timeout_s: float | None = None) -> Appended:
        """Append one entry; returns once it is on a quorum's disks and applied by the leader.

        Its `result` is that of the leader's state machine, with tuples as lists; None if the result
        is not made of plain values, or larger than 16 KiB. Cancelling gives up the wait, not the
        append.

        Raises:
            Rejected: it was not appended and never will be: NotAppendedInTime with the reason, or
                an error that waiting cannot cure (such as EntryTooLarge, ClientRefused,
                WrongGroup).
            OutcomeUnknown: it may be in the log, or not: ConnectionLost, LeadershipLost,
                AnswerOverdue, and others.
        """
        return (await self.append_many((body,), timeout_s=timeout_s))[0]

    async def append_many(
        self, bodies: Sequence[bytes], *, timeout_s: float | None = None
    ) -> list[Appended]:
        """Append adjacent entries. Raises as `append`, for all of them, and TooManyBodies."""
        if not bodies:
            await trio.lowlevel.checkpoint()
            return []
        sizes = checked_lengths(bodies, positioned=False)
        if len(sizes) > MAX_BODIES or (len(sizes) > 1 and sum(sizes) > MAX_BODY_BYTES):
            raise TooManyBodies(len(sizes), sum(sizes), MAX_BODIES, MAX_BODY_BYTES)
        payload = bodies[0] if len(sizes) == 1 else b"".join(bodies)
        value, results = await self.ask_leader(Operation.APPEND, sizes, payload, timeout_s)
        try:
            appended = decode_appended(value, results)
        except MessageMalformed as error:
            raise AnswerUnreadable(error.problem) from error
        if len(appended) != len(sizes):
            raise AnswerUnreadable(f"{len(appended)} entries for {len(sizes)} bodies")
        return appended

    def session(
        self, *, ttl_s: float = DEFAULT_TTL_S, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> AbstractAsyncContextManager[Session]:
        """Open a session: its appends happen once, whichever leader answers. See docs/sessions.md.

        Args:
            ttl_s: the session ends when it is not used for this long.
            timeout_s: how long to try to begin it.

        Raises NotAppendedInTime, SessionsOff.
        """
        return open_session(NetworkWay(self._leader), ttl_s, timeout_s)

    # --- reading ------------------------------------------------------------------------------

    async def read(self, index: int, *, timeout_s: float | None = None) -> Entry:
        """Return the committed entry at `index`, from the leader.

        Raises GroupUnreachable; OutsideLog with the range of the log if it does not hold the entry
        (yet, or any more).
        """
        while True:
            try:
                entries = await self._from_leader(index, 1, timeout_s)
            except OutsideLog as error:
                outside = error
            else:
                if entries:
                    return entries[0]
                outside = OutsideLog("entry", index, 0, index - 1)
            status, _ = await self.ask_leader(Operation.STATUS, (), b"", timeout_s)
            held = held_entries(status)
            if held is None:
                raise outside  # a member that does not report its range
            if not held[0] <= index <= held[1]:
                raise OutsideLog("entry", index, *held)
            # The entry was committed between the two requests.

    def tail(self, first: int = 0, *, follow: bool = True) -> RemoteEntries:
        """Iterate over every committed entry from `first` on (no-ops too), each once and in order.

        With `follow` new entries follow without end, from any member; if that member is lost, or
        knows no leader, another one continues with the next entry. Without it, the iteration ends
        at the leader's commit index. At most one answer (1 MiB) is fetched ahead. For one task at a
        time; leaving the loop early needs no clean-up.

        Raises OutsideLog if the log begins after `first`; GroupUnreachable if no member has ever
        answered within the log's `timeout_s` (a wrong address, a wrong name of the group), and
        without `follow` whenever no leader answers in time. Once a member has answered, outages are
        waited out, and logged as a warning.
        """
        return RemoteEntries(first, self._reading.entries if follow else self._from_leader)

    async def query(
        self,
        name: str,
        *arguments: object,
        on: str | None = None,
        stale: bool = False,
        max_lag_s: float | None = None,
        after: int | None = None,
        timeout_s: float | None = None,
    ) -> Queried:
        """Call a query of the state machine, which its class marks by `@dledger.query`.

        The state includes every entry that was acknowledged before the call (ReadIndex, Raft thesis
        6.4): the leader answers, and writes nothing. A query changes nothing, so it is tried again
        on other members until the time is over.

        Args:
            name: of the method; one of an object of `dledger.machines` is "prices.get".
            arguments: plain values (None, bool, int, float, str, bytes, lists, dicts), 64 KiB in
                all. Tuples become lists. The result is of the same kind, 1 MiB at most.
            on: the member that shall answer, over a connection of its own.
            stale: any member answers at once, from the state that it has.
            max_lag_s: as in Node.read_stale: how old that state may be. Implies `stale`.
            after: the state includes this entry: the index of a write, to read one's own writes.
            timeout_s: how long to try; the log's by default.

        Raises QueryUnknown, QueryFailed (the method raised), QueryInvalid, OperationUnknown (a
        member of an earlier version); GroupUnreachable when the time is over, with the reason.
        """
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        lag_ms = None if max_lag_s is None else _lag_ms(max_lag_s)
        is_stale = stale or lag_ms is not None
        query = Query(name, arguments, is_stale, lag_ms, after, HOLD_MS)
        if on is not None:
            member = self._members.find(on)
            if member is None:
                raise GroupUnreachable(f"{on} is not one of the members that are known")
            return await self._reading.query_on(member, query, limit_s)
        if is_stale:
            return await self._reading.query(query, limit_s)
        answer = await self.ask_leader(*encode_query(query), timeout_s)
        try:
            return decode_queried(*answer)
        except MessageMalformed as error:
            raise AnswerUnreadable(error.problem) from error

    def watch(self, *path: PathPart, after: int | None = None) -> RemoteWatch:
        """Iterate over the changes under a path that the state machine reports (`dledger.Changes`).

        Without `after` the first event is a WatchedState, the present state; ValueSet and
        ValueDeleted follow. With the index of an entry, the changes after that entry follow: each
        once, in the order of the log, and only committed ones. Any member serves them; if it is
        lost, or knows no leader, another one continues. At most one answer (1 MiB, or the changes
        of one entry) is fetched ahead. For one task at a time; leaving the loop early needs no
        clean-up.

        Members keep the newest changes (`NodeConfig.watch_history_bytes`). In place of older ones a
        machine with a method `watched` gives a WatchedState, and the changes after it.

        Raises WatchCompacted if it has none; WatchesOff, WatchInvalid, WatchTooLarge,
        TooManyWatches, OperationUnknown; GroupUnreachable as `tail`. See docs/query-and-watch.md.
        """
        encode_watch(Watch(path, after, 0))
        return RemoteWatch(path, after, self._reading.changes)

    async def _from_leader(
        self, first: int, max_bytes: int = MAX_ENTRIES_BYTES, timeout_s: float | None = None
    ) -> list[Entry]:
        numbers = [askable(first), 0, max_bytes]
        value, payload = await self.ask_leader(Operation.ENTRIES, numbers, b"", timeout_s)
        try:
            return entries_in_answer(first, value, payload)
        except MessageMalformed as error:
            raise AnswerUnreadable(error.problem) from error

    async def status(self, node_id: str | None = None) -> dict[str, object]:
        """Return the status of a member, or of the leader, as in `Node.status`. Raises Rejected."""
        if node_id is not None:
            return await member_status(self._members, node_id, self._tls, self._shows)
        value, _ = await self.ask_leader(Operation.STATUS, (), b"", None)
        return _learned(self._members, value)

    # --- asking -------------------------------------------------------------------------------

    async def ask_leader(
        self,
        operation: Operation,
        numbers: Sequence[int],
        payload: bytes,
        timeout_s: float | None,
    ) -> tuple[object, bytes]:
        """Send a request to the leader, and retry it while it certainly was not carried out.

        Raises as `append`; for requests that change nothing, GroupUnreachable at worst.
        """
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        passing = _PASSING_FOR_READS if operation in READING else _PASSING
        connection: NodeConnection | None = None
        problem, pauses, on_its_way = "", Pauses(), False
        with patient_limit(limit_s):
            while True:
                connection = None
                try:
                    connection = await self._leader.reach()
                    on_its_way = True
                    return await self._leader.ask_on(connection, operation, numbers, payload)
                except (ClientRefused, LogClosed):
                    raise
                except passing as error:
                    on_its_way = False
                    problem = str(error)
                if connection is not None and not connection.left:
                    await pauses.pause()
        if connection is None:
            problem = f"no leader: {self._leader.problem}"
        if operation in READING:
            raise GroupUnreachable(f"no answer within {limit_s:g} s ({problem})")
        if on_its_way:
            raise AnswerOverdue(limit_s)
        raise NotAppendedInTime(limit_s, problem)

    async def ask_leader_long(
        self, operation: Operation, numbers: Sequence[int], payload: bytes, timeout_s: float
    ) -> tuple[object, bytes]:
        """Send a request to the leader; the limit ends with its acceptance, and the answer may take
        any time.

        Raises the error that the leader answers; GroupUnreachable if no leader is found in time.
        """
        deadline, pauses = trio.current_time() + timeout_s, Pauses()
        while True:
            connection: NodeConnection | None = None
            with patient_limit(deadline - trio.current_time()):
                while connection is None:
                    try:
                        connection = await self._leader.reach()
                    except ClientRefused:
                        raise
                    except GroupUnreachable:
                        continue  # wait for the rest of the time
            if connection is None:
                raise GroupUnreachable(f"no leader within {timeout_s:g} s: {self._leader.problem}")
            try:
                return await self._leader.ask_on(connection, operation, numbers, payload)
            except _PASSING:
                if trio.current_time() >= deadline:
                    raise
            if not connection.left:
                await pauses.pause()


def _lag_ms(max_lag_s: float) -> int:
    """Return the greatest lag in milliseconds. Nothing is newer than now: a negative one is 0."""
    return math.ceil(1000 * min(max_lag_s, LONGEST_LAG_S)) if max_lag_s > 0 else 0


@asynccontextmanager
async def connect(
    peers: Peers,
    *,
    group: str,
    tls: GroupTls | TlsConfig | None = None,
    credentials: Credentials | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> AsyncIterator[RemoteLog]:
    """Open a group's log over the network, during a block. See docs/client-of-the-log.md.

    Args:
        peers: some members: `{"n0": "host:port"}`, `"n0=host:port,n1=host:port"`, or addresses
            alone, in a text or a sequence. The members that answer name the others.
        group: the name of the group.
        tls: certificates, for a group that speaks TLS; members need their names then.
        credentials: the user to be, for a group that asks for users; see docs/security.md.
        timeout_s: how long each call tries by default.

    Nothing is connected before the first call. Raises ConfigInvalid, NotInTrio.
    """
    require_trio("connect")
    members, shows = KnownMembers(group, peers), shows_of(credentials)
    async with open_log(members, checked_tls(members, tls), timeout_s, shows=shows) as log:
        yield log


@asynccontextmanager
async def open_log(
    members: KnownMembers,
    tls: GroupTls | None,
    timeout_s: float,
    network: Network = TCP,
    shows: Shows = shows_nothing,
) -> AsyncIterator[RemoteLog]:
    """Open a log with shared `members`, and with `network` to dial."""
    async with unwrapping_nursery() as nursery:
        leader = LeaderConnection(members, tls, nursery, network, shows)
        nursery.start_soon(leader.run)
        reading = ReadingConnection(members, tls, nursery, timeout_s, network, shows)
        try:
            yield RemoteLog(members, tls, leader, reading, timeout_s, shows)
        finally:
            reading.end()
            nursery.cancel_scope.cancel()


def checked_tls(members: KnownMembers, tls: GroupTls | TlsConfig | None) -> GroupTls | None:
    """Load the TLS contexts of these files. Raises ConfigInvalid."""
    if tls is not None and not all(known.node_id for known in members.all):
        raise ConfigInvalid("peers", "with TLS, name the members: n0=host:port")
    return group_tls(tls)


@asynccontextmanager
async def connect_member(
    members: KnownMembers, node_id: str, tls: GroupTls | None, shows: Shows = shows_nothing
) -> AsyncIterator[NodeConnection]:
    """Keep a new connection to one member during a block. Raises GroupUnreachable."""
    known = members.find(node_id)
    if known is None:
        raise GroupUnreachable(f"{node_id} is not one of the members that are known")
    async with connect_node(members.group, *known, tls, shows) as connection:
        try:
            yield connection
        except ConnectionLost as error:
            raise GroupUnreachable(f"the connection to {node_id} broke") from error


async def member_status(
    members: KnownMembers, node_id: str, tls: GroupTls | None, shows: Shows = shows_nothing
) -> dict[str, object]:
    """Ask one member for its status, over a new connection. Raises GroupUnreachable."""
    async with connect_member(members, node_id, tls, shows) as connection:
        value, _ = await connection.ask(Operation.STATUS)
    return _learned(members, value)


def _learned(members: KnownMembers, value: object) -> dict[str, object]:
    """Check a member's status, and learn the others from it. Raises GroupUnreachable."""
    if not isinstance(value, dict):
        raise GroupUnreachable("a member answered a malformed status")
    match value.get("members"):
        case {"index": int(index), "addresses": dict(addresses)}:
            members.learn(index, addresses)
        case _:
            pass  # the node does not name its group's members
    return value
