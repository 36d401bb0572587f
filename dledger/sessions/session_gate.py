"""The leader's side of client sessions: turns commands into entries with the leader's time."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

import trio

from dledger.body_check import checked_lengths
from dledger.entry import Body
from dledger.errors import DLedgerError, InvariantBroken
from dledger.sessions.session_clock import SessionClock
from dledger.sessions.session_entry import SessionCommand, encode_command, encode_expire, escaped
from dledger.sessions.with_sessions import SessionAnswer, WithSessions
from dledger.waits.call_waits import wait_appended
from dledger.waits.pending_appends import Appended, Done

logger = logging.getLogger(__name__)

# How often a leader looks for expired sessions. Their ttl is measured in minutes.
EXPIRY_INTERVAL_S = 1.0


class LeadingNode(Protocol):
    @property
    def term(self) -> int: ...

    @property
    def is_ready_leader(self) -> bool: ...

    def submit_envelopes(
        self, bodies: Sequence[Body], done: Done, at_once: bool = False
    ) -> None: ...


class SessionGate:
    """Appends commands of sessions to the log of a node whose machine is a WithSessions."""

    def __init__(self, node: LeadingNode, machine: WithSessions) -> None:
        self._node = node
        self._machine = machine
        self._clock = SessionClock()

    def escaped(self, bodies: Sequence[Body]) -> Sequence[Body]:
        """Encode bodies of plain appends for the log. Raises ReservedBody, BodyInvalid."""
        checked_lengths(bodies)
        return escaped(bodies)

    def submit(self, command: SessionCommand, done: Done) -> None:
        """Append the entries of a command without a task, as `Node.submit`.

        `answers_of` converts the outcome.
        """
        bodies = encode_command(command, self._now_ms(), self._machine.limits)
        self._node.submit_envelopes(bodies, done)

    async def carry_out(self, command: SessionCommand) -> list[SessionAnswer]:
        """Append the entries of a command. Raises as `Node.append_many`."""
        return await self._append(encode_command(command, self._now_ms(), self._machine.limits))

    async def run(self) -> None:
        """End unused sessions while this node leads, until cancelled."""
        while True:
            await trio.sleep(EXPIRY_INTERVAL_S)
            if self._node.is_ready_leader:
                await self._expire()

    async def _expire(self) -> None:
        now_ms, due_ms = self._now_ms(), self._machine.table.next_expiry_ms()
        if due_ms is None or now_ms < due_ms:
            return
        try:
            await self._append([encode_expire(now_ms)])
        except DLedgerError as error:
            # The next leader, or this one later, finds the same sessions.
            logger.debug("sessions were not ended: %s", error)

    def _now_ms(self) -> int:
        table = self._machine.table
        return self._clock.now_ms(trio.current_time(), self._node.term, table.time_ms)

    async def _append(self, bodies: Sequence[Body]) -> list[SessionAnswer]:
        return answers_of(await wait_appended(self._node.submit_envelopes, bodies))


def answers_of(appended: Sequence[Appended]) -> list[SessionAnswer]:
    answers = [entry.result for entry in appended]
    checked = [answer for answer in answers if isinstance(answer, SessionAnswer)]
    if len(checked) != len(answers):
        raise InvariantBroken("an entry of a session has no answer")
    return checked
