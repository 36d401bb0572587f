"""Answers Telemetry, Heartbeat and NotifyClientTermination.

Source: RocketMQ's proxy, ClientActivity.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import trio

from dledger_mq.connection.this_process import now_ms
from proxy.access import PUB, SUB, Access, group_need, topic_need
from proxy.brokers.groups import Groups
from proxy.caller import Caller, represented
from proxy.clients.sessions import Session, Sessions
from proxy.clients.settings import Described, answer, describe
from proxy.names import group_name
from proxy.statuses import OK, Refused
from proxy.wire.messages_pb2 import (
    ClientType,
    Code,
    HeartbeatRequest,
    HeartbeatResponse,
    Language,
    NotifyClientTerminationRequest,
    NotifyClientTerminationResponse,
    Settings,
    TelemetryCommand,
)
from remoting.bodies.access import AskedNeed

Tells = Callable[[TelemetryCommand], Awaitable[None]]
OnSettings = Callable[[Caller, Described], Awaitable[None]]
OnAnswer = Callable[[Session, TelemetryCommand], None]

# The client in JavaScript misses settings that come before the routes of all its topics, and then
# waits for minutes. So it gets them again after these pauses.
_AGAIN_S: Final = (0.1, 0.9)


class Telemetry:
    """Knows clients by their streams and heartbeats.

    Args:
        sessions: where they are kept.
        groups: knows how groups are served.
        access: asked whether clients may do what their settings say.
        on_settings: called with what a client's settings say.
        on_answer: called with what a client answers to a question.
    """

    def __init__(
        self,
        sessions: Sessions,
        groups: Groups,
        access: Access,
        on_settings: OnSettings,
        on_answer: OnAnswer,
    ) -> None:
        self._on_answer = on_answer
        self._sessions = sessions
        self._access = access
        self._groups = groups
        self._on_settings = on_settings

    async def converse(
        self, caller: Caller, commands: AsyncIterator[TelemetryCommand], tell: Tells
    ) -> None:
        """Answer a client's settings, and send it commands, until it ends the stream.

        Raises Refused: settings that cannot be used, which end the stream; (40100) the client is
        another user's.
        """
        await self._access.require_anywhere(caller, ())
        self._check_owner(caller, self._sessions.find(caller.client_id))
        session = self._sessions.heard(caller)
        stream = object()
        known = Described(session.kind, session.group, session.topics, session.subscriptions)
        if not self._access.is_on or not session.has_stream:
            session.attach(stream, caller)
        problem: Exception | None = None
        again = trio.CancelScope()
        try:
            async with trio.open_nursery() as nursery:
                tells = (session, stream, tell, nursery.cancel_scope)
                nursery.start_soon(_tell_all, *tells)
                if session.is_told_by(stream):
                    # It can be asked again; clients tell their settings some minutes later.
                    nursery.start_soon(self._on_settings, caller, known)
                try:
                    async for command in commands:
                        self._sessions.note(session)
                        if command.WhichOneof("command") == "settings":
                            told = await self._settings(caller, session, command.settings)
                            if not session.is_told_by(stream):
                                session.attach(stream, caller)
                                nursery.start_soon(_tell_all, *tells)
                            session.tell(told)
                            if command.settings.user_agent.language == Language.NODE_JS:
                                again.cancel()
                                again = trio.CancelScope()
                                nursery.start_soon(_tell_again, session, told, again)
                            del told
                        elif session.is_told_by(stream):
                            self._on_answer(session, command)
                        # Both may be large, and the next command comes much later.
                        del command
                except Exception as error:
                    problem = error  # not from within the nursery, which would wrap it
                nursery.cancel_scope.cancel()
        finally:
            session.detach(stream)
        if problem is not None:
            raise problem

    async def _settings(
        self, caller: Caller, session: Session, settings: Settings
    ) -> TelemetryCommand:
        described = describe(settings)
        await self._check(caller, described)
        session.user = self._check_owner(caller, session)
        self._sessions.describe(session, described)
        await self._on_settings(caller, described)
        return await answer(settings, described, self._groups)

    async def _check(self, caller: Caller, described: Described) -> None:
        """Check that a client may do what its settings say. Raises Refused (40100)."""
        is_producer = described.kind == ClientType.PRODUCER
        needs = [topic_need(topic, PUB if is_producer else SUB) for topic in described.topics]
        if described.group:
            needs.append(group_need(described.group))
        for topic in described.topics:
            try:
                await self._access.require(caller, topic, needs)
            except Refused as refused:
                if refused.code != Code.TOPIC_NOT_FOUND:
                    raise
            else:
                return
        await self._access.require_anywhere(caller, needs)

    def _check_owner(self, caller: Caller, session: Session | None) -> str | None:
        """Return a caller's user, whose proof was checked; None without access control.

        Raises Refused (40100): a client of this id came with another user. One that knows the id
        could take its stream, and end it.
        """
        if not self._access.is_on:
            return None
        user = represented(caller, now_ms()).user
        if session is not None and session.user not in (None, user):
            raise Refused(
                Code.UNAUTHORIZED,
                f"client id {caller.client_id:.80} is another user's: use an id of your own",
            )
        return user

    async def heartbeat(self, caller: Caller, request: HeartbeatRequest) -> HeartbeatResponse:
        """Note that a client is there, whether or not its settings are known.

        RocketMQ's proxy refuses those without settings, which come after its restart.
        """
        await self._check_call(caller, request)
        self._sessions.heard(caller)
        return HeartbeatResponse(status=OK)

    async def terminate(
        self, caller: Caller, request: NotifyClientTerminationRequest
    ) -> NotifyClientTerminationResponse:
        """Forget a client that leaves. Raises Refused (40003, 40100)."""
        await self._check_call(caller, request)
        self._sessions.end(caller.client_id)
        return NotifyClientTerminationResponse(status=OK)

    async def _check_call(
        self, caller: Caller, request: HeartbeatRequest | NotifyClientTerminationRequest
    ) -> None:
        """Check that a client may use its group, and is the one of that id. Raises Refused."""
        groups = set()
        if request.HasField("group"):
            groups.add(group_name(request.group))
        session = self._sessions.find(caller.client_id)
        needs: list[AskedNeed] = []
        if session is not None and session.group:
            groups.add(session.group)
        elif session is not None:
            needs = [topic_need(topic, PUB) for topic in session.topics]
        needs += map(group_need, sorted(groups))
        await self._access.require_anywhere(caller, needs)
        self._check_owner(caller, session)


async def _tell_all(
    session: Session, stream: object, tell: Tells, conversation: trio.CancelScope
) -> None:
    """Send commands. The conversation ends with the session: its client then begins another."""
    while (commands := await session.commands(stream)) is not None:
        for command in commands:
            await tell(command)
    if session.is_over:
        conversation.cancel()


async def _tell_again(session: Session, told: TelemetryCommand, scope: trio.CancelScope) -> None:
    with scope:
        for pause_s in _AGAIN_S:
            await trio.sleep(pause_s)
            session.tell(told)
