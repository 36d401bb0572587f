"""Reads a group's entries and changes over the network, each once and in order, from any member."""

from __future__ import annotations

import logging
import math
import random
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeVar

import trio

from dledger.changes import Path
from dledger.client.client_errors import (
    AnswerUnreadable,
    ClientRefused,
    CredentialsRefused,
    GroupUnreachable,
    refused_by_all,
)
from dledger.client.known_members import KnownMember, KnownMembers
from dledger.client.node_connection import NodeConnection, dial
from dledger.entry import Entry
from dledger.errors import (
    DLedgerError,
    LogClosed,
    MessageMalformed,
    NodeClosing,
    NotPermitted,
    OtherLoop,
    OutcomeUnknown,
    OutsideLog,
    ReadUnavailable,
    Rejected,
)
from dledger.home_loop import HomeLoop
from dledger.network.network import TCP, Network
from dledger.network.tls import GroupTls
from dledger.patient_limit import patient_limit
from dledger.pauses import Pauses
from dledger.query_errors import (
    OperationUnknown,
    QueryFailed,
    QueryInvalid,
    QueryUnknown,
    TooManyWaiting,
)
from dledger.watch_errors import (
    TooManyWatches,
    WatchCompacted,
    WatchesOff,
    WatchInvalid,
    WatchTooLarge,
)
from dledger.wire.client_protocol import Operation, askable, decode_entries_answer
from dledger.wire.proof import Shows, shows_nothing
from dledger.wire.query_protocol import Queried, Query, decode_queried, encode_query
from dledger.wire.watch_protocol import Watch, Watched, WatchEvent, decode_watched, encode_watch

T = TypeVar("T")

logger = logging.getLogger(__name__)

# A member holds a request for the next entry this long. Then the client asks whether it still hears
# a leader: a member that is cut off would never report a new entry.
HOLD_MS = 1_000
# The member has this much longer to send up to a mebibyte.
MARGIN_S = 2.0

# A member that the client leaves has this time to answer the other open requests.
LEAVE_S = 5.0

# Errors of one member; another one may do better.
_LACKING = (
    WatchCompacted,
    WatchesOff,
    TooManyWatches,
    TooManyWaiting,
    OperationUnknown,
    QueryUnknown,
)
# Errors that every member would answer.
_OF_ALL = (WatchTooLarge, WatchInvalid, QueryFailed, QueryInvalid, NotPermitted)


class RemoteEntries:
    """Every committed entry from one index on. Made by `RemoteLog.tail`.

    It asks for more once the caller has taken all entries: a slow reader delays no other one.
    """

    def __init__(self, first: int, more: Callable[[int], Awaitable[Sequence[Entry]]]) -> None:
        self._next = first
        self._more = more
        self._ready: deque[Entry] = deque()

    def __aiter__(self) -> RemoteEntries:
        return self

    async def __anext__(self) -> Entry:
        if not self._ready:
            self._ready.extend(await self._more(self._next))
            if not self._ready:
                raise StopAsyncIteration
        entry = self._ready.popleft()
        self._next = entry.index + 1
        return entry


class RemoteWatch:
    """The changes of a path after one entry. Made by `RemoteLog.watch`."""

    def __init__(
        self, path: Path, after: int | None, more: Callable[[Watch], Awaitable[Watched]]
    ) -> None:
        self._path = path
        self._after = after
        self._more = more
        self._ready: deque[WatchEvent] = deque()

    def __aiter__(self) -> RemoteWatch:
        return self

    async def __anext__(self) -> WatchEvent:
        while not self._ready:
            watched = await self._more(Watch(self._path, self._after, HOLD_MS))
            self._after = watched.upto
            self._ready.extend(watched.events)
        return self._ready.popleft()


def entries_in_answer(first: int, value: object, payload: bytes) -> list[Entry]:
    """Decode the entries of an answer, which begin with `first`.

    Raises MessageMalformed, OutsideLog.
    """
    entries = decode_entries_answer(value, payload)
    if entries and entries[0].index < first:
        raise MessageMalformed(f"entry {entries[0].index} instead of {first}")
    if entries and entries[0].index > first:
        raise OutsideLog("entry", first, entries[0].index, entries[-1].index)
    return entries


def held_entries(status: object) -> tuple[int, int] | None:
    match status:
        case {"first_index": int(first), "committed": int(committed), "durable": int(durable)}:
            return first, min(committed, durable)
        case _:
            return None


class ReadingConnection:
    """A connection to any member, shared by all readers of the log; replaced when it fails.

    Args:
        nursery: runs the connections.
        timeout_s: how long the first answer may take. Later outages are waited out without limit,
            and logged once they have lasted this long.
        shows: returns what to prove to members that ask.
    """

    def __init__(
        self,
        members: KnownMembers,
        tls: GroupTls | None,
        nursery: trio.Nursery,
        timeout_s: float,
        network: Network = TCP,
        shows: Shows = shows_nothing,
    ) -> None:
        self._shows = shows
        self._home = HomeLoop(
            lambda: OtherLoop(f"the log of group {members.group}"), lambda: LogClosed(members.group)
        )
        self._network = network
        self._members = members
        self._tls = tls
        self._nursery = nursery
        self._timeout_s = timeout_s
        self._turn = trio.Lock()
        self._current: NodeConnection | None = None
        self._heard = False  # whether a member has answered: then group and addresses are right
        self._problems: dict[KnownMember | str, str] = {}

    def end(self) -> None:
        """Close: calls raise LogClosed from now on."""
        self._home.end()

    async def entries(self, first: int) -> Sequence[Entry]:
        """Wait for committed entries from `first` on, and return at least one.

        Raises OutsideLog if no reachable member holds the first one any more; else as `_ask`.
        """

        def take(value: object, payload: bytes) -> Sequence[Entry] | None:
            return entries_in_answer(first, value, payload) or None

        return await self._ask(Operation.ENTRIES, [askable(first), HOLD_MS], b"", take, None)

    async def changes(self, watch: Watch) -> Watched:
        """Wait for changes, or for the information that there are none up to a later entry.

        Raises WatchCompacted if no reachable member has them any more, and other errors that all
        of them answer; WatchTooLarge, WatchInvalid; else as `entries`.
        """

        def take(value: object, payload: bytes) -> Watched | None:
            watched = decode_watched(watch, value, payload)
            told = watched.events or watched.leader is not None or watched.upto != watch.after
            return watched if told else None

        return await self._ask(*encode_watch(watch), take, None)

    async def query(self, query: Query, limit_s: float) -> Queried:
        """Ask any member, until one answers. Raises as RemoteLog.query."""
        return await self._ask(*encode_query(query), decode_queried, limit_s)

    async def query_on(self, member: KnownMember, query: Query, limit_s: float) -> Queried:
        """Ask one member, over a connection of its own. Raises as RemoteLog.query."""
        self._home.check()  # before any use of the loop, as in `_ask`
        problem, pauses = "no answer yet", Pauses()
        request = encode_query(query)
        with patient_limit(limit_s):
            while True:
                try:
                    connection = await self._dial(member)
                    try:
                        return decode_queried(*await connection.ask(*request))
                    finally:
                        connection.close()
                except ClientRefused:
                    raise
                except (GroupUnreachable, ReadUnavailable, NodeClosing, OutcomeUnknown) as error:
                    problem = str(error)
                except MessageMalformed as error:
                    raise AnswerUnreadable(error.problem) from error
                await pauses.pause()
        raise GroupUnreachable(f"no answer of {member.node_id} within {limit_s:g} s ({problem})")

    async def _ask(
        self,
        operation: Operation,
        numbers: Sequence[int],
        payload: bytes,
        take: Callable[[object, bytes], T | None],
        limit_s: float | None,
    ) -> T:
        """Ask one member after the other, until `take` returns a result of an answer.

        Without a limit in seconds the first answer may take the log's timeout, and later outages
        are waited out.

        Raises the error that all reachable members answer; GroupUnreachable if no member has ever
        answered within the limit; ClientRefused as soon as all members refuse this client for good.
        """
        self._home.check()
        lacking: dict[str, Rejected] = {}
        follows = limit_s is None
        if limit_s is None:
            limit_s = math.inf if self._heard else self._timeout_s
        pauses = Pauses()
        with patient_limit(limit_s) as limit:
            while True:
                connection = await self._reach(lacking)
                if connection.node_id in lacking:
                    raise lacking[connection.node_id]  # no other member can be reached
                try:
                    with trio.fail_after(HOLD_MS / 1000 + MARGIN_S):
                        answer = await connection.ask(operation, numbers, payload)
                        self._heard = True
                        if follows:
                            limit.deadline = math.inf
                        if (found := take(*answer)) is not None:
                            return found
                        known = await connection.who_leads()
                    self._members.learn(known.index, known.addresses)
                    if known.leader is not None:
                        continue  # no news yet
                except OutsideLog as error:
                    # Its log may begin after a snapshot that it received; others may hold more.
                    lacking[connection.node_id] = await _with_range(error, connection)
                except _LACKING as error:
                    lacking[connection.node_id] = error
                except _OF_ALL:
                    raise
                except (DLedgerError, trio.TooSlowError) as error:
                    problem = str(error) or "no answer"
                    self._problems[connection.node_id] = f"{connection.node_id}: {problem}"
                    if isinstance(error, Rejected) and not isinstance(error, GroupUnreachable):
                        # The member answers, and has some rest; others may wait for it.
                        await pauses.pause()
                    else:
                        connection.close("its answer was overdue or malformed")
                connection.leave(LEAVE_S)
        raise GroupUnreachable(f"no member answered within {limit_s:g} s ({self._problem})")

    @property
    def _problem(self) -> str:
        return "; ".join(self._problems.values()) or "no answer yet"

    async def _reach(self, avoided: Collection[str]) -> NodeConnection:
        """Return a connection to a member; to one of `avoided` only if there is no other."""
        pauses, began, told = Pauses(), trio.current_time(), False
        async with self._turn:
            while True:
                self._home.check()
                current = self._current
                if current is not None and not current.left and current.node_id not in avoided:
                    return current
                found = await self._dial_any(avoided, () if current is None else (current.node_id,))
                if found is not None:
                    self._current = found
                    return found
                if self._heard and not told and trio.current_time() - began >= self._timeout_s:
                    told = True
                    logger.warning(
                        "no member of group %s answers, trying on: %s",
                        self._members.group,
                        self._problem,
                    )
                await pauses.pause()

    async def _dial(self, known: KnownMember) -> NodeConnection:
        connection = await dial(self._members.group, *known, self._tls, self._network, self._shows)
        if self._home.is_over:
            connection.close("the log was closed")
            await connection.run()  # closes its socket
            self._home.check()
        self._nursery.start_soon(connection.run)
        return connection

    async def _dial_any(
        self, avoided: Collection[str], last: Collection[str]
    ) -> NodeConnection | None:
        """Open a connection; members with known problems are tried last. Raises ClientRefused."""
        refusals: list[ClientRefused] = []
        members = list(self._members.all)
        random.shuffle(members)
        members.sort(key=lambda known: (known.node_id in avoided, known.node_id in last))
        self._problems.clear()
        for known in members:
            try:
                return await self._dial(known)
            except GroupUnreachable as error:
                # Try the next member; if none answers, `_reach` tries all again after a pause.
                self._problems[known] = error.problem
                if isinstance(error, ClientRefused):
                    refusals.append(error)
        if len(refusals) == len(members):
            refused = refused_by_all(refusals)
            if not self._heard or isinstance(refused, CredentialsRefused):
                raise refused
        return None


async def _with_range(error: OutsideLog, connection: NodeConnection) -> OutsideLog:
    """Return the error with the range of entries that the member holds, if it reports one."""
    try:
        with trio.fail_after(MARGIN_S):
            status, _ = await connection.ask(Operation.STATUS)
    except (DLedgerError, trio.TooSlowError):
        return error  # it names the range of one answer
    held = held_entries(status)
    return error if held is None else OutsideLog(error.what, error.asked, *held)
