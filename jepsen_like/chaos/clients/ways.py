"""The ways by which clients reach a group: the port of a member, or the client of the library."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import trio

from dledger.client.remote_log import RemoteLog
from dledger.config import parse_address
from dledger.errors import DLedgerError
from dledger.sessions.session import Session
from dledger.sessions.session_errors import SessionExpired
from jepsen_like.chaos.outcomes import Outcome, failed, ok, outcome_of, unknown
from jepsen_like.chaos.service import Call
from jepsen_like.chaos.wire import PIECE_BYTES, Messages, WireBroken, call_message, parse_outcome
from jepsen_like.history.operation import EventType


@dataclass
class MemberWay:
    """Over a connection to the port of one member.

    Args:
        member: the one that is asked; with `follows` it changes.
        in_session: whether appends are made in a session, which reaches the leader from any member.
        follows: whether to turn to the leader that a member names when it refuses an append.
    """

    ports: Mapping[str, str]
    member: str
    timeout_s: float
    in_session: bool = False
    follows: bool = False
    _stream: trio.SocketStream | None = None
    _messages: Messages = field(default_factory=Messages)

    async def carry_out(self, call: Call) -> Outcome:
        """Make one call, in time. A read without an answer changed nothing: it failed."""
        sent = False
        try:
            with trio.fail_after(self.timeout_s):
                if self._stream is None:
                    await self._connect()
                assert self._stream is not None
                sent = True
                await self._stream.send_all(call_message(call, in_session=self.in_session))
                outcome, leader = await self._receive(self._stream)
        except (trio.TooSlowError, OSError, trio.BrokenResourceError, WireBroken) as error:
            await self.close()
            if self.follows:
                self._go_on_from(None)
            reason = f"{self.member}: {type(error).__name__} {error}".rstrip()
            return unknown(reason) if sent and not call.is_read else failed(reason)
        if outcome.type is EventType.FAIL and self.follows and not call.is_read:
            self._go_on_from(leader)
            if self.member == leader:
                await self.close()
        return outcome

    def _go_on_from(self, leader: str | None) -> None:
        names = sorted(self.ports)
        after = names[(names.index(self.member) + 1) % len(names)]
        self.member = leader if leader is not None and leader in self.ports else after

    async def _connect(self) -> None:
        host, port = parse_address("ports", self.ports[self.member])
        self._messages = Messages()
        self._stream = await trio.open_tcp_stream(host, port)

    async def _receive(self, stream: trio.SocketStream) -> tuple[Outcome, str | None]:
        while (message := self._messages.next()) is None:
            piece = await stream.receive_some(PIECE_BYTES)
            if not piece:
                raise WireBroken("the member closed the connection")
            self._messages.feed(piece)
        return parse_outcome(message)

    async def close(self) -> None:
        if self._stream is not None:
            await trio.aclose_forcefully(self._stream)
            self._stream = None


@dataclass
class LogWay:
    """Over `dledger.connect`, as programs outside of the group append.

    With `in_session` each append is made once, whatever is lost.
    """

    log: RemoteLog
    timeout_s: float
    in_session: bool = False
    member: str | None = None
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    _session: Session | None = None

    async def carry_out(self, call: Call) -> Outcome:
        """Make one call, in time. It cannot be a read: RemoteLog reads entries, not states."""
        assert not call.is_read
        try:
            if self.in_session and self._session is None:
                session = self.log.session(timeout_s=self.timeout_s)
                self._session = await self._stack.enter_async_context(session)
            appending = self._session or self.log
            return ok((await appending.append(call.entry, timeout_s=self.timeout_s)).result)
        except DLedgerError as error:
            if isinstance(error, SessionExpired) or getattr(error, "ended", False):
                await self.close()
            return outcome_of(error)

    async def close(self) -> None:
        self._session = None
        await self._stack.aclose()
        self._stack = AsyncExitStack()


# Carries out the calls of one client, one after another.
Way = MemberWay | LogWay
