"""Keeps a client's connection to the leader, and leaves a leader that stops answering."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from dledger.client.client_errors import AnswerUnreadable, ClientRefused, GroupUnreachable
from dledger.client.known_members import KnownMembers
from dledger.client.leader_search import LeaderSearch
from dledger.client.node_connection import LOOK_S, NodeConnection
from dledger.entry import Entry
from dledger.errors import (
    LeadershipLost,
    LogClosed,
    MessageMalformed,
    NodeClosed,
    NodeClosing,
    NotLeader,
    OtherLoop,
)
from dledger.home_loop import HomeLoop
from dledger.network.network import TCP, Network
from dledger.network.tls import GroupTls
from dledger.pauses import Pauses
from dledger.sessions.session_entry import SessionCommand
from dledger.sessions.with_sessions import SessionAnswer
from dledger.wire.client_protocol import MAX_WAIT_MS, Operation, askable, decode_entries_answer
from dledger.wire.proof import Shows, shows_nothing
from dledger.wire.session_protocol import decode_session_answers, encode_command

# A leader that owes an answer and has been silent for this long may be frozen or cut off: the
# client asks the other members whether one of them leads by now. Not shorter than the shortest
# election, and longer than a busy leader's slowest sync.
SILENCE_S = 0.4
# The client closes the connection after this, even if no other member leads: a router may have
# dropped it. Several elections, so that a leader that is merely slow is not left needlessly.
ANSWER_TIMEOUT_S = 5.0
# A caller that waits for a leader gets the reason after this time, and may ask again.
FIND_LEADER_TIMEOUT_S = 5.0

# A member that no longer leads has this time to answer the other requests in flight.
LEAVE_S = 2.0


class LeaderConnection:
    """A connection to the leader for many tasks. `run` keeps it open.

    Args:
        nursery: runs the connections; they end with its scope.
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
        self._home = HomeLoop(
            lambda: OtherLoop(f"the log of group {members.group}"), lambda: LogClosed(members.group)
        )
        self._search = LeaderSearch(members, tls, nursery, network, shows)
        self._current: NodeConnection | None = None
        self._waiting = 0
        self._wanted = trio.lowlevel.ParkingLot()
        self._found = trio.lowlevel.ParkingLot()
        self._above_term = -1
        # The result of the last search, until the next one may begin.
        self._refused: ClientRefused | None = None

    @property
    def problem(self) -> str:
        """The reason why there is no leader, as far as the client knows."""
        return self._search.problem

    async def reach(self) -> NodeConnection:
        """Return the connection to the leader, at once if there is one.

        Raises GroupUnreachable, OtherLoop, LogClosed; ClientRefused if all members refuse this
        client for good.
        """
        self._home.check()
        connection = self._current
        if connection is not None and not connection.left:
            return connection
        if (refused := self._refused) is not None:
            await trio.lowlevel.checkpoint()  # meanwhile the next search may begin
            raise refused.again()
        self._waiting += 1
        self._wanted.unpark()
        try:
            with trio.move_on_after(FIND_LEADER_TIMEOUT_S):
                while True:
                    await self._found.park()
                    self._home.check()
                    if self._refused is not None:
                        raise self._refused.again()
                    connection = self._current
                    if connection is not None and not connection.left:
                        return connection
        finally:
            self._waiting -= 1
        raise GroupUnreachable(f"no leader within {FIND_LEADER_TIMEOUT_S:g} s: {self.problem}")

    async def ask(
        self, operation: Operation, numbers: Sequence[int], payload: bytes = b""
    ) -> tuple[object, bytes]:
        """Send a request to the leader, once. Raises as `reach` and `NodeConnection.ask`.

        Cancelling gives up only the wait.
        """
        return await self.ask_on(await self.reach(), operation, numbers, payload)

    async def ask_on(
        self,
        connection: NodeConnection,
        operation: Operation,
        numbers: Sequence[int],
        payload: bytes = b"",
    ) -> tuple[object, bytes]:
        """Send a request over a connection from `reach`. Raises as `NodeConnection.ask`."""
        try:
            return await connection.ask(operation, numbers, payload)
        except (NotLeader, LeadershipLost, NodeClosing, NodeClosed):
            # It gets no more requests; those in flight are still answered.
            connection.leave(LEAVE_S)
            raise

    # --- keeping it ---------------------------------------------------------------------------

    async def run(self) -> None:
        """Find a leader whenever a call waits for one, until it is cancelled."""
        try:
            await self._keep_finding()
        finally:
            self._home.end()
            self._found.unpark_all()

    async def _keep_finding(self) -> None:
        pauses = Pauses()
        while True:
            while not self._waiting:
                await self._wanted.park()
            try:
                useful = await self._serve_terms()
            except ClientRefused as error:
                self._refused, useful = error, False
                self._found.unpark_all()
            if useful:
                pauses.restart()
            else:
                # The connection answered nothing: perhaps a process accepts and closes.
                await pauses.pause()
            self._refused = None

    async def _serve_terms(self) -> bool:
        """Find a leader, and keep connections to it and its successors until one is left.

        Returns whether any of them answered. Raises ClientRefused.
        """
        useful = False
        connection: NodeConnection | None
        connection, term = await self._search.run(self._above_term)
        while connection is not None:
            self._current, before = connection, connection.answers
            self._found.unpark_all()
            left, (connection, term) = connection, await self._keep(connection, term)
            useful = useful or left.answers > before
        self._above_term = term
        return useful

    async def _keep(
        self, connection: NodeConnection, term: int
    ) -> tuple[NodeConnection, int] | tuple[None, int]:
        """Wait until the connection is left.

        Returns the next connection and its term if another member leads; else None and the term
        that the next leader's term must exceed.
        """
        while True:
            await connection.wait_asked()
            if connection.left:
                # After a break its member may still lead in that term; after a refusal never,
                # unless it is one of our user.
                lost = connection.leaving and not connection.is_unproven
                return None, term if lost else term - 1
            quiet_s = SILENCE_S - connection.silence_s()
            if quiet_s > 0:
                with trio.move_on_after(min(quiet_s, LOOK_S)):
                    await connection.wait_left()
                continue
            found = await self._look_elsewhere(connection, term)
            if found is not None:
                connection.close("another member leads now")
                return found

    async def _look_elsewhere(
        self, connection: NodeConnection, term: int
    ) -> tuple[NodeConnection, int] | None:
        """Ask the others while the leader is silent; return the connection to a newer leader."""
        found: tuple[NodeConnection, int] | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_wait_heard, connection, nursery.cancel_scope)
            found = await self._search.run(term)
            nursery.cancel_scope.cancel()
        return found


async def _wait_heard(connection: NodeConnection, scope: trio.CancelScope) -> None:
    """Cancel the scope once the connection is no longer silent, or is left."""
    while not connection.left and (silent_s := connection.silence_s()) >= SILENCE_S:
        if silent_s >= ANSWER_TIMEOUT_S:
            connection.close(f"silent for {silent_s:.1f} s")
            break
        with trio.move_on_after(LOOK_S):
            await connection.wait_left()
    scope.cancel()


class NetworkWay:
    def __init__(self, leader: LeaderConnection) -> None:
        self._leader = leader

    async def reach(self) -> None:
        await self._leader.reach()

    async def carry_out(self, command: SessionCommand) -> list[SessionAnswer]:
        try:
            return decode_session_answers(*await self._leader.ask(*encode_command(command)))
        except MessageMalformed as error:
            raise AnswerUnreadable(error.problem) from error
        except LogClosed:
            raise
        except NodeClosing as error:
            # NodeClosing is final for a session of that node. Over the network another node serves.
            raise GroupUnreachable("the leader is closing") from error

    async def entries_from(self, first: int, wait_s: float) -> list[Entry]:
        wait_ms = max(0, min(round(1000 * wait_s), MAX_WAIT_MS))
        try:
            answer = await self._leader.ask(Operation.ENTRIES, [askable(first), wait_ms], b"")
            return decode_entries_answer(*answer)
        except MessageMalformed as error:
            raise AnswerUnreadable(error.problem) from error
