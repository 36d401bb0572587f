"""Reads a group's entries over the network, each once and in order, from any member."""

from __future__ import annotations

import logging
import math
import random
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence

import trio

from dledger.client.client_errors import ClientRefused, GroupUnreachable, refused_by_all
from dledger.client.known_members import KnownMember, KnownMembers
from dledger.client.leader_search import FIRST_PAUSE_S, LONGEST_PAUSE_S, jittered
from dledger.client.node_connection import NodeConnection, dial
from dledger.entry import Entry
from dledger.errors import DLedgerError, LogClosed, MessageMalformed, OtherLoop, OutsideLog
from dledger.home_loop import HomeLoop
from dledger.network.network import TCP, Network
from dledger.network.tls import GroupTls
from dledger.patient_limit import patient_limit
from dledger.wire.client_protocol import Operation, decode_entries_answer

logger = logging.getLogger(__name__)

# A member holds a request for the next entry this long. Then the client asks whether it still hears
# a leader: a member that is cut off would never report a new entry.
HOLD_MS = 1_000
# It has this much longer to send up to a mebibyte.
MARGIN_S = 2.0

# A member that the client leaves has this time to answer the other open requests.
LEAVE_S = 5.0


class RemoteEntries:
    """Every committed entry from one index on. Made by `RemoteLog.tail`.

    It asks for more once the caller has taken all entries: a slow reader holds up no other.
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


def entries_in_answer(first: int, value: object, payload: bytes) -> list[Entry]:
    """Decode the entries of an answer; they begin with `first`.

    Raises MessageMalformed, OutsideLog.
    """
    entries = decode_entries_answer(value, payload)
    if entries and entries[0].index < first:
        raise MessageMalformed(f"entry {entries[0].index} instead of {first}")
    if entries and entries[0].index > first:
        raise OutsideLog("entry", first, entries[0].index, entries[-1].index)
    return entries


def held_entries(status: object) -> tuple[int, int] | None:
    """Return a member's first and last committed entry by its status; None if it has neither."""
    match status:
        case {"first_index": int(first), "committed": int(committed), "durable": int(durable)}:
            return first, min(committed, durable)
        case _:
            return None


class ReadingConnection:
    """A connection to any member, shared by all readers of the log; replaced when it fails.

    Args:
        nursery: carries the connections.
        timeout_s: how long the first answer may take. Later outages are waited out without limit,
            and logged once they have lasted this long.
    """

    def __init__(
        self,
        members: KnownMembers,
        tls: GroupTls | None,
        nursery: trio.Nursery,
        timeout_s: float,
        network: Network = TCP,
    ) -> None:
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
        self._heard = False  # a member has answered: group and addresses are right
        self._problems: dict[KnownMember | str, str] = {}

    def end(self) -> None:
        """The log is closed: `entries` raises LogClosed from now on."""
        self._home.end()

    async def entries(self, first: int) -> Sequence[Entry]:
        """Wait for committed entries from `first` on, and return at least one.

        Raises OutsideLog if no reachable member holds the first one any more; GroupUnreachable if
        no member has ever answered and the time for that is over; ClientRefused as soon as all
        members refuse this client for good.
        """
        outside: dict[str, OutsideLog] = {}
        limit_s = math.inf if self._heard else self._timeout_s
        with patient_limit(limit_s) as limit:
            while True:
                connection = await self._reach(outside)
                if connection.node_id in outside:
                    raise outside[connection.node_id]  # no other member can be reached
                try:
                    with trio.fail_after(HOLD_MS / 1000 + MARGIN_S):
                        value, payload = await connection.ask(Operation.ENTRIES, [first, HOLD_MS])
                        self._heard, limit.deadline = True, math.inf
                        if entries := entries_in_answer(first, value, payload):
                            return entries
                        known = await connection.who_leads()
                    self._members.learn(known.index, known.addresses)
                    if known.leader is not None:
                        continue  # there is nothing new
                except OutsideLog as error:
                    # Its log may begin after a snapshot that it received; others may hold more.
                    outside[connection.node_id] = await _with_range(error, connection)
                except (DLedgerError, trio.TooSlowError) as error:
                    self._problems[connection.node_id] = (
                        f"{connection.node_id}: {str(error) or 'no answer'}"
                    )
                    connection.close("its answer was overdue or malformed")
                connection.leave(LEAVE_S)
        raise GroupUnreachable(f"no member answered within {limit_s:g} s ({self._problem})")

    @property
    def _problem(self) -> str:
        return "; ".join(self._problems.values()) or "no answer yet"

    async def _reach(self, avoided: Collection[str]) -> NodeConnection:
        """Return a connection to a member; to one of `avoided` only if there is no other."""
        pause_s, began, told = FIRST_PAUSE_S, trio.current_time(), False
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
                await trio.sleep(jittered(pause_s))
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

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
                connection = await dial(self._members.group, *known, self._tls, self._network)
            except GroupUnreachable as error:
                # The next one; if none answers, all of them again after a pause.
                self._problems[known] = error.problem
                if isinstance(error, ClientRefused):
                    refusals.append(error)
                continue
            if self._home.is_over:
                connection.close("the log was closed")
                await connection.run()  # closes its socket
                self._home.check()
            self._nursery.start_soon(connection.run)
            return connection
        if len(refusals) == len(members) and not self._heard:
            raise refused_by_all(refusals)
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
