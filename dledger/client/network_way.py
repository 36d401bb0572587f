"""Carries a session's commands to the leader over the network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dledger.client.client_errors import AnswerUnreadable, GroupUnreachable
from dledger.entry import Entry
from dledger.errors import LogClosed, MessageMalformed, NodeClosing
from dledger.sessions.session_entry import SessionCommand
from dledger.sessions.with_sessions import SessionAnswer
from dledger.wire.client_protocol import MAX_WAIT_MS, Operation, decode_entries_answer
from dledger.wire.session_protocol import decode_session_answers, encode_command


class AsksLeader(Protocol):
    """A connection to the leader."""

    async def reach(self) -> object:
        """As in LeaderConnection."""
        ...

    async def ask(
        self, operation: Operation, numbers: Sequence[int], payload: bytes
    ) -> tuple[object, bytes]:
        """As in LeaderConnection."""
        ...


class NetworkWay:
    """A SessionWay over a connection."""

    def __init__(self, leader: AsksLeader) -> None:
        self._leader = leader

    async def reach(self) -> None:
        """As in SessionWay."""
        await self._leader.reach()

    async def carry_out(self, command: SessionCommand) -> list[SessionAnswer]:
        """As in SessionWay."""
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
        """As in SessionWay."""
        wait_ms = max(0, min(round(1000 * wait_s), MAX_WAIT_MS))
        try:
            answer = await self._leader.ask(Operation.ENTRIES, [first, wait_ms], b"")
            return decode_entries_answer(*answer)
        except MessageMalformed as error:
            raise AnswerUnreadable(error.problem) from error
