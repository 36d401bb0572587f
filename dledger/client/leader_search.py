"""Asks all members at once for the leader, until one of them leads."""

from __future__ import annotations

import trio

from dledger.client.client_errors import ClientRefused, GroupUnreachable, refused_by_all
from dledger.client.known_members import KnownMember, KnownMembers
from dledger.client.node_connection import NodeConnection, dial
from dledger.errors import DLedgerError, Rejected
from dledger.network.network import TCP, Network
from dledger.network.tls import GroupTls
from dledger.pauses import Pauses
from dledger.wire.client_protocol import Leadership
from dledger.wire.proof import Shows, shows_nothing

# A member that knows no newer leader holds the request this long, in case it cannot learn of one.
HOLD_MS = 1_000
# A member answers within this time, unless it is frozen or unreachable.
ANSWER_S = HOLD_MS / 1000 + 1.0


class LeaderSearch:
    """Finds a connection to the leader.

    A member answers as soon as it is ready to serve, or hears of another leader, so the client does
    not poll. A member that claims to lead is ignored while another one names a leader of a later
    term.

    Args:
        nursery: runs the connections.
        shows: returns what to prove to members that ask.
    """

    def __init__(
        self,
        members: KnownMembers,
        tls: GroupTls | None,
        nursery: trio.Nursery,
        network: Network = TCP,
        shows: Shows = shows_nothing,
    ) -> None:
        self._shows = shows
        self._network = network
        self._members = members
        self._tls = tls
        self._nursery = nursery
        self._problems: dict[KnownMember, str] = {}
        self._refusals: dict[KnownMember, ClientRefused] = {}
        self._asked: set[KnownMember] = set()
        self._newest = -1  # the newest term whose leader is known
        self._found: tuple[NodeConnection, int] | None = None

    @property
    def problem(self) -> str:
        """The reason why there is no leader yet, according to the members."""
        return "; ".join(self._problems.values()) or "no member answered yet"

    async def run(self, above_term: int) -> tuple[NodeConnection, int]:
        """Find a leader of a term above `above_term`; return the connection to it and its term.

        Raises ClientRefused once every known member refuses this client for good.
        """
        self._problems.clear()
        self._refusals.clear()
        self._asked.clear()
        self._found, self._newest = None, -1
        try:
            async with trio.open_nursery() as asking:
                self._ask_members(asking, above_term)
        except BaseException:
            if self._found is not None:
                self._found[0].close()
            raise
        if self._found is None:
            raise refused_by_all(list(self._refusals.values()))
        return self._found

    def _ask_members(self, asking: trio.Nursery, above_term: int) -> None:
        for member in self._members.all:
            # A new member may listen at the address of one that left, so the name counts as well.
            # An address without a name stands for any member that listens there.
            nameless = KnownMember("", member.address)
            if not self._asked.intersection((member, nameless)):
                self._asked.add(member)
                asking.start_soon(self._ask, asking, member, above_term)

    async def _ask(self, asking: trio.Nursery, member: KnownMember, above_term: int) -> None:
        """Ask one member until it leads or is no longer a member."""
        pauses = Pauses()
        while member in self._members.all:
            try:
                connection = await dial(
                    self._members.group, *member, self._tls, self._network, self._shows
                )
                self._nursery.start_soon(connection.run)
                self._refusals.pop(member, None)
                try:
                    await self._ask_on(connection, asking, member, above_term)
                finally:
                    if self._found is None or self._found[0] is not connection:
                        connection.close()
            except GroupUnreachable as error:
                self._problems[member] = error.problem  # GroupUnreachable adds the advice again
                self._refusals.pop(member, None)
                if isinstance(error, ClientRefused):
                    self._refusals[member] = error
                    if self._refusals.keys() >= set(self._members.all):
                        asking.cancel_scope.cancel()
            except Rejected as error:
                self._problems[member] = str(error)
            except (DLedgerError, trio.TooSlowError) as error:
                self._problems[member] = f"{member}: {str(error) or 'no answer'}"
            await pauses.pause()
        self._asked.discard(member)
        self._problems.pop(member, None)
        self._refusals.pop(member, None)
        self._ask_members(asking, above_term)

    async def _ask_on(
        self, connection: NodeConnection, asking: trio.Nursery, member: KnownMember, above_term: int
    ) -> None:
        """Ask until this member leads, or the connection breaks."""
        told = above_term
        while True:
            with trio.fail_after(ANSWER_S):
                known = await connection.who_leads(told, HOLD_MS)
            self._members.learn(known.index, known.addresses)
            self._ask_members(asking, above_term)
            if known.leader is not None:
                self._newest = max(self._newest, known.term)
            if known.ready and known.term > above_term and known.term >= self._newest:
                self._found = self._found or (connection, known.term)
                asking.cancel_scope.cancel()
                return
            self._problems[member] = _told(known)
            if known.leader not in (None, known.member) and known.term > told:
                told = known.term  # this leader is known; ask for a newer one
            else:
                await Pauses().pause()


def _told(known: Leadership) -> str:
    if known.leader is None:
        return f"{known.member} knows no leader"
    if known.leader == known.member:
        return f"{known.member} leads, but is not ready"
    return f"{known.member} takes {known.leader} for the leader"
