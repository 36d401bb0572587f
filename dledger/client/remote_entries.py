"""A group's entries over the network, each once and in order, from whichever member answers."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence

import trio

from dledger.client.client_errors import GroupUnreachable
from dledger.client.known_members import KnownMembers
from dledger.client.leader_search import FIRST_PAUSE_S, LONGEST_PAUSE_S, jittered
from dledger.client.node_connection import NodeConnection, dial
from dledger.entry import Entry
from dledger.errors import DLedgerError, MessageMalformed, OutsideLog
from dledger.network.network import TCP, Network
from dledger.network.tls import GroupTls
from dledger.wire.client_protocol import Operation, decode_entries_answer

# A member holds a question for the next entry so long. Then it is asked whether it still hears a
# leader: one that is cut off would say for ever that there is nothing new.
HOLD_MS = 1_000
# It has so much longer to send what may be a mebibyte.
MARGIN_S = 2.0

# A member that is left has this time to answer what others have asked it.
LEAVE_S = 5.0


class RemoteEntries:
    """Every committed entry from one index on. Made by `RemoteLog.tail`.

    It asks for more when all is taken that it has: a slow reader holds up nobody.
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


class ReadingConnection:
    """A connection to some member, for all that follow the log; another one once it fails.

    Args:
        nursery: carries the connections.
    """

    def __init__(
        self,
        members: KnownMembers,
        tls: GroupTls | None,
        nursery: trio.Nursery,
        network: Network = TCP,
    ) -> None:
        self._network = network
        self._members = members
        self._tls = tls
        self._nursery = nursery
        self._turn = trio.Lock()
        self._current: NodeConnection | None = None

    async def entries(self, first: int) -> Sequence[Entry]:
        """Committed entries from `first` on, at least one: waits for it as long as it takes.

        Raises OutsideLog if no member that can be reached has it any more.
        """
        outside: dict[str, OutsideLog] = {}
        while True:
            connection = await self._reach(outside)
            if connection.node_id in outside:
                raise outside[connection.node_id]  # nobody else can be reached
            try:
                with trio.fail_after(HOLD_MS / 1000 + MARGIN_S):
                    value, payload = await connection.ask(Operation.ENTRIES, [first, HOLD_MS])
                    if entries := entries_in_answer(first, value, payload):
                        return entries
                    known = await connection.who_leads()
                self._members.learn(known.index, known.addresses)
                if known.leader is not None:
                    continue  # there is nothing new
            except OutsideLog as error:
                # Its log may begin with a snapshot that it was sent; others may have more.
                outside[connection.node_id] = error
            except (DLedgerError, trio.TooSlowError):
                connection.close("it did not answer as it should")
            connection.leave(LEAVE_S)

    async def _reach(self, avoided: Collection[str]) -> NodeConnection:
        """A connection to a member, to one of `avoided` only if there is no other."""
        pause_s = FIRST_PAUSE_S
        async with self._turn:
            while True:
                current = self._current
                if current is not None and not current.left and current.node_id not in avoided:
                    return current
                found = await self._dial_any(avoided, () if current is None else (current.node_id,))
                if found is not None:
                    self._current = found
                    return found
                await trio.sleep(jittered(pause_s))
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _dial_any(
        self, avoided: Collection[str], last: Collection[str]
    ) -> NodeConnection | None:
        """A new connection, those we know trouble of tried after the others."""
        members = list(self._members.all)
        random.shuffle(members)
        members.sort(key=lambda known: (known.node_id in avoided, known.node_id in last))
        for known in members:
            try:
                connection = await dial(self._members.group, *known, self._tls, self._network)
            except GroupUnreachable:
                continue  # the next one; if nobody answers, all of them again after a pause
            self._nursery.start_soon(connection.run)
            return connection
        return None
