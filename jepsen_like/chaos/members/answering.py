"""Answers calls on a member, as an application over a node does."""

from __future__ import annotations

from typing import Any

from dledger.errors import DLedgerError
from dledger.node.node import Node
from dledger.sessions.session import Session
from jepsen_like.chaos.outcomes import Outcome, failed, ok, outcome_of
from jepsen_like.chaos.service import Call, Described


class Answering:
    """Carries out calls on one member, as docs/library.md tells applications to do it."""

    def __init__(self, node: Node, machine: Any, service: Described) -> None:
        self.node = node
        self.machine = machine
        self.service = service

    async def append(self, call: Call, session: Session | None) -> Outcome:
        try:
            if session is not None:
                return ok((await session.append(call.entry)).result)
            return ok((await self.node.append(call.entry)).result)
        except DLedgerError as error:
            return outcome_of(error)

    async def read(self, call: Call) -> Outcome:
        """Answer a read from the state of this member.

        One that raises has changed nothing, whatever the error.
        """
        try:
            await self.node.read()
        except DLedgerError as error:
            return failed(f"{type(error).__name__}: {error}")
        return ok(self.service.query(self.machine, call))
