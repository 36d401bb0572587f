"""A group's entries over the network, each once and in order, from whichever member answers."""

from __future__ import annotations

import logging
import math
import random
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence

import trio

from dledger.client.client_errors import GroupUnreachable
from dledger.client.known_members import KnownMember, KnownMembers
from dledger.client.leader_search import FIRST_PAUSE_S, LONGEST_PAUSE_S, jittered
from dledger.client.node_connection import NodeConnection, dial
from dledger.entry import Entry
from dledger.errors import DLedgerError, MessageMalformed, OutsideLog
from dledger.network.network import TCP, Network
from dledger.network.tls import GroupTls
from dledger.wire.client_protocol import Operation, decode_entries_answer

logger = logging.getLogger(__name__)

# A member holds a question for the next entry so long. Then it is asked whether it still hears a
# leader: one that is cut off would say for ever that there is nothing new.
HOLD_MS = 1_000
# It has so much longer to send what may be a mebibyte.
MARGIN_S = 2.0

# A member that is left has this time to answer what others have asked it.
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
    """The entries of an answer, which begin with `first`. Raises MessageMalformed, OutsideLog."""
    entries = decode_entries_answer(value, payload)
    if entries and entries[0].index < first:
        raise MessageMalformed(f"entry {entries[0].index}, where {first} was asked for")
    if entries and entries[0].index > first:
        raise OutsideLog("entry", first, entries[0].index, entries[-1].index)
    return entries


def held_entries(status: object) -> tuple[int, int] | None:
    """The first and the last entry that a member can give, by its status; None: it says nothing."""
    match status:
        case {"first_index": int(first), "committed": int(committed), "durable": int(durable)}:
            return first, min(committed, durable)
        case _:
            return None


class ReadingConnection:
    """A connection to some member, for all that follow the log; another one once it fails.

    Args:
        nursery: carries the connections.
        timeout_s: how long the first answer may take. Later outages are waited for without end,
            and logged once they have lasted as long.
    """

    def __init__(
        self,
        members: KnownMembers,
        tls: GroupTls | None,
        nursery: trio.Nursery,
        timeout_s: float,
        network: Network = TCP,
    ) -> None:
        self._network = network
        self._members = members
        self._tls = tls
        self._nursery = nursery
        self._timeout_s = timeout_s
        self._turn = trio.Lock()
        self._current: NodeConnection | None = None
        self._heard = False  # a member has answered: group and addresses are right
        self._problems: dict[KnownMember | str, str] = {}

    async def entries(self, first: int) -> Sequence[Entry]:
        """Committed entries from `first` on, at least one: waits for it as long as it takes.

        Raises OutsideLog if no member that can be reached has it any more; GroupUnreachable where
        no member has ever answered and the time for that is over.
        """
        outside: dict[str, OutsideLog] = {}
        limit_s = math.inf if self._heard else self._timeout_s
        with trio.move_on_after(limit_s) as patience:
            while True:
                connection = await self._reach(outside)
                if connection.node_id in outside:
                    raise outside[connection.node_id]  # no other member can be reached
                try:
                    with trio.fail_after(HOLD_MS / 1000 + MARGIN_S):
                        value, payload = await connection.ask(Operation.ENTRIES, [first, HOLD_MS])
                        self._heard, patience.deadline = True, math.inf
                        if entries := entries_in_answer(first, value, payload):
                            return entries
                        known = await connection.who_leads()
                    self._members.learn(known.index, known.addresses)
                    if known.leader is not None:
                        continue  # there is nothing new
                except OutsideLog as error:
                    # Its log may begin with a snapshot that it was sent; others may have more.
                    outside[connection.node_id] = await _with_range(error, connection)
                except (DLedgerError, trio.TooSlowError) as error:
                    self._problems[connection.node_id] = (
                        f"{connection.node_id}: {str(error) or 'no answer'}"
                    )
                    connection.close("it did not answer as it should")
                connection.leave(LEAVE_S)
        raise GroupUnreachable(f"no member answered within {limit_s:g} s ({self._problem})")

    @property
    def _problem(self) -> str:
        return "; ".join(self._problems.values()) or "nothing was heard yet"

    async def _reach(self, avoided: Collection[str]) -> NodeConnection:
        """A connection to a member, to one of `avoided` only if there is no other."""
        pause_s, began, told = FIRST_PAUSE_S, trio.current_time(), False
        async with self._turn:
            while True:
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
        """A new connection, those we know trouble of tried after the others."""
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
                continue
            self._nursery.start_soon(connection.run)
            return connection
        return None


async def _with_range(error: OutsideLog, connection: NodeConnection) -> OutsideLog:
    """The same error with all that the member holds, where it says so."""
    try:
        with trio.fail_after(MARGIN_S):
            status, _ = await connection.ask(Operation.STATUS)
    except (DLedgerError, trio.TooSlowError):
        return error  # it names what one answer held
    held = held_entries(status)
    return error if held is None else OutsideLog(error.what, error.asked, *held)
