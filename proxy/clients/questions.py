"""Operators' questions about consumers of this proxy, which brokers pass on (203, 307, 309).

Brokers know this proxy by a producer group. What only the client knows, it is asked by its stream,
and answers by the nonce of the question. Clients of some languages never answer.
Source: RocketMQ's proxy, GrpcClientChannel and ProxyRelayService.
"""

import logging
from collections.abc import Awaitable, Callable
from itertools import islice
from secrets import token_hex
from typing import Final, NoReturn

import trio

from dledger.declared_error import DeclaredError
from dledger_mq.connection.client import Client
from proxy.access import SUB, Access, group_need, topic_need
from proxy.clients.sessions import Session, Sessions
from proxy.messages.delivered_message import delivered
from proxy.statuses import Refused
from proxy.wire.messages_pb2 import (
    ClientType,
    Code,
    PrintThreadStackTraceCommand,
    TelemetryCommand,
    VerifyMessageCommand,
)
from remoting.bodies.heartbeat import PROXIES_GROUP, ConsumeType, SubscriptionData
from remoting.message.errors import CompressionMissing, MessageMalformed
from remoting.message.record import decode_record
from remoting.net.connection import Connection
from remoting.net.starts_tasks import StartsTasks
from remoting.wire.codes import PROTOCOL_VERSION, RequestCode, ResponseCode
from remoting.wire.command import Command
from remoting.wire.loose_json import JsonValue, compact_json
from remoting.wire.quoted import quoted

_log = logging.getLogger(__name__)

# The broker waits two seconds longer, and RocketMQ's tools fifteen seconds for both.
ANSWER_S: Final = 8.0

# Questions without an answer. Operators ask one at a time; a tool asks all members of a group.
MOST_AT_ONCE: Final = 64
MOST_OF_CLIENT: Final = 4

# Stacks of some thousand threads. What goes beyond is cut.
MAX_STACKS_BYTES: Final = 512 * 1024

# Members, and subscriptions of one, that an answer shows.
MAX_TOLD: Final = 1000

_MAX_REMARK_CHARACTERS: Final = 300

# The names that RocketMQ's tools know. The client in JavaScript says HTTP.
_LANGUAGES: Final = frozenset({"CPP", "DOTNET", "GO", "HTTP", "JAVA", "PHP", "PYTHON", "RUST"})

_RESULTS: Final = {
    Code.OK: "CR_SUCCESS",
    Code.FAILED_TO_CONSUME_MESSAGE: "CR_LATER",
    Code.MESSAGE_CORRUPTED: "CR_RETURN_NULL",
}

Answers = Callable[[Session, Command], Awaitable[bytes]]


class _NoAnswer(DeclaredError):
    """A broker's question is answered with this code."""

    code: int
    text: str
    _template = "{text}"


class _Waiting:
    """A question that a client was asked.

    Attributes:
        session: whose answer counts.
        outcome: its answer; None if it is gone.
        is_over: set when there is an outcome.
    """

    def __init__(self, session: Session) -> None:
        self.session: Final = session
        self.outcome: TelemetryCommand | None = None
        self.is_over: Final = trio.Event()


class Questions:
    """Answers brokers.

    Args:
        client: its connections with brokers.
        sessions: knows the consumers, and which can be asked.
        access: asked whether a client may see a message.
        nursery: where clients are asked.
    """

    def __init__(
        self, client: Client, sessions: Sessions, access: Access, nursery: StartsTasks
    ) -> None:
        self._sessions = sessions
        self._access = access
        self._nursery = nursery
        self._waiting: dict[str, _Waiting] = {}
        sessions.on_end.append(self._gone)
        client.add_producer(PROXIES_GROUP, None)
        client.answer(RequestCode.GET_CONSUMER_CONNECTION_LIST, self._members)
        client.answer(
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            lambda connection, command: self._begin(self._running_info, connection, command),
        )
        client.answer(
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            lambda connection, command: self._begin(self._consume, connection, command),
        )

    def answered(self, session: Session, command: TelemetryCommand) -> None:
        """Take a client's answer; drop it if no question to this client waits for it."""
        match command.WhichOneof("command"):
            case "thread_stack_trace":
                nonce = command.thread_stack_trace.nonce
            case "verify_message_result":
                nonce = command.verify_message_result.nonce
            case _:
                return
        waiting = self._waiting.get(nonce)
        if waiting is not None and waiting.session is session:
            del self._waiting[nonce]
            waiting.outcome = command
            waiting.is_over.set()

    def _gone(self, session: Session) -> None:
        for waiting in self._waiting.values():
            if waiting.session is session:
                waiting.is_over.set()

    def _members(self, connection: Connection, command: Command) -> None:
        """Answer which consumers of a group this proxy has (203)."""
        group = command.fields.get("consumerGroup", "")
        found = self._sessions.consumers_of(group)[:MAX_TOLD]
        if not found:
            connection.send(command.reply(ResponseCode.CONSUMER_NOT_ONLINE))
            return
        newest = max(found, key=lambda one: one.heard_s)
        body: dict[str, JsonValue] = {
            "connectionSet": [_connection(one) for one in found],
            "consumeType": _consume_type(newest),
            "subscriptions": _subscriptions(newest),
        }
        connection.send(command.reply(body=compact_json(body).encode()))

    def _begin(self, answers: Answers, connection: Connection, command: Command) -> None:
        """Answer a question about one client, which may be asked."""
        session = self._sessions.find(command.fields.get("clientId", ""))
        group = command.fields.get("consumerGroup", "")
        if session is None or not group or session.group != group:
            connection.send(command.reply(ResponseCode.CONSUMER_NOT_ONLINE))
            return
        self._nursery.start_soon(self._answer, answers, session, connection, command)

    async def _answer(
        self, answers: Answers, session: Session, connection: Connection, command: Command
    ) -> None:
        try:
            reply = command.reply(body=await answers(session, command))
        except _NoAnswer as error:
            reply = command.reply(error.code, remark=error.text[:_MAX_REMARK_CHARACTERS])
        except Refused as refused:
            reply = command.reply(
                ResponseCode.NO_PERMISSION, remark=refused.text[:_MAX_REMARK_CHARACTERS]
            )
        connection.send(reply)

    async def _running_info(self, session: Session, command: Command) -> bytes:
        """Return RocketMQ's ConsumerRunningInfo (307); the client is asked for stacks alone."""
        metadata = {} if session.caller is None else session.caller.metadata
        info: dict[str, JsonValue] = {
            "mqTable": {},
            "properties": {
                "PROP_CLIENT_VERSION": metadata.get("x-mq-client-version", "")[:64],
                "PROP_CONSUMER_START_TIMESTAMP": str(session.since_ms),
                "PROP_CONSUME_TYPE": _consume_type(session),
            },
            "statusTable": {},
            "subscriptionSet": _subscriptions(session),
            "userConsumerInfo": {},
        }
        if command.fields.get("jstackEnable") == "true":
            nonce = token_hex(16)
            asked = PrintThreadStackTraceCommand(nonce=nonce)
            told = await self._ask(
                session, nonce, TelemetryCommand(print_thread_stack_trace_command=asked)
            )
            if not told.thread_stack_trace.thread_stack_trace:
                _refuse(told)
            info["jstack"] = _cut(told.thread_stack_trace.thread_stack_trace)
        return compact_json(info).encode()

    async def _consume(self, session: Session, command: Command) -> bytes:
        """Have a client consume a message (309); return its ConsumeMessageDirectlyResult."""
        try:
            record, _end = decode_record(command.body)
            message = delivered(record, is_given=False)
        except (MessageMalformed, CompressionMissing) as error:
            raise _NoAnswer(ResponseCode.SYSTEM_ERROR, str(error)) from error
        if session.caller is not None:
            needs = [topic_need(record.topic, SUB), group_need(session.group)]
            await self._access.require(session.caller, record.topic, needs)
        began = trio.current_time()
        nonce = token_hex(16)
        asked = VerifyMessageCommand(nonce=nonce, message=message)
        told = await self._ask(session, nonce, TelemetryCommand(verify_message_command=asked))
        result = _RESULTS.get(told.status.code)
        if result is None:
            _refuse(told)
        body: dict[str, JsonValue] = {
            "autoCommit": True,
            "consumeResult": result,
            "order": False,
            "remark": told.status.message[:_MAX_REMARK_CHARACTERS] or None,
            "spentTimeMills": round((trio.current_time() - began) * 1000),
        }
        return compact_json(body).encode()

    async def _ask(
        self, session: Session, nonce: str, question: TelemetryCommand
    ) -> TelemetryCommand:
        """Raises _NoAnswer."""
        who = f"client {session.client_id:.120}"
        if not session.has_stream:
            raise _NoAnswer(ResponseCode.SYSTEM_ERROR, f"{who} has no stream to be asked by")
        of_client = sum(one.session is session for one in self._waiting.values())
        if len(self._waiting) >= MOST_AT_ONCE or of_client >= MOST_OF_CLIENT:
            raise _NoAnswer(
                ResponseCode.SYSTEM_BUSY,
                f"{of_client} questions to {who} and {len(self._waiting)} to all wait for answers: "
                "ask later",
            )
        waiting = self._waiting[nonce] = _Waiting(session)
        try:
            session.tell(question)
            with trio.move_on_after(ANSWER_S):
                await waiting.is_over.wait()
        finally:
            self._waiting.pop(nonce, None)
        if waiting.outcome is not None:
            return waiting.outcome
        if waiting.is_over.is_set():
            raise _NoAnswer(ResponseCode.SYSTEM_ERROR, f"{who} left before it answered")
        _log.info("%s has not answered an operator's question", quoted(who))
        raise _NoAnswer(
            ResponseCode.CONSUME_MSG_TIMEOUT, f"{who} has not answered in {ANSWER_S:g} s"
        )


def _refuse(told: TelemetryCommand) -> NoReturn:
    """Pass on that a client cannot do what it was asked."""
    code = told.status.code
    name = Code.Name(code) if code in Code.values() else str(code)
    raise _NoAnswer(
        ResponseCode.SYSTEM_ERROR, f"the client answers {name}: {told.status.message:.200}"
    )


def _cut(text: str) -> str:
    data = text.encode()
    if len(data) <= MAX_STACKS_BYTES:
        return text
    kept = data[:MAX_STACKS_BYTES].decode(errors="ignore")
    return f"{kept}\n... cut: the client has sent {len(data)} bytes\n"


def _consume_type(session: Session) -> str:
    is_push = session.kind in (ClientType.PUSH_CONSUMER, ClientType.LITE_PUSH_CONSUMER)
    return (ConsumeType.CONSUME_PASSIVELY if is_push else ConsumeType.CONSUME_ACTIVELY).name


def _connection(session: Session) -> JsonValue:
    caller = session.caller
    language = "" if caller is None else caller.metadata.get("x-mq-language", "")
    return {
        "clientAddr": "" if caller is None else caller.host,
        "clientId": session.client_id,
        "language": language if language in _LANGUAGES else "OTHER",
        "version": PROTOCOL_VERSION,
    }


def _subscriptions(session: Session) -> list[JsonValue]:
    return [
        SubscriptionData(
            one.topic, one.expression or "*", "SQL92" if one.is_sql else "TAG"
        ).to_json()
        for one in islice(session.subscriptions, MAX_TOLD)
    ]
