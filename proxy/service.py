"""The service `apache.rocketmq.v2.MessagingService`: from a call to what answers it."""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator
from contextlib import aclosing, contextmanager, suppress
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError, Message

from proxy.caller import Caller, caller_of
from proxy.clients.telemetry import Telemetry
from proxy.http2.call import Call
from proxy.http2.errors import CallEnded, GrpcStatus
from proxy.http2.status import Status as GrpcCode
from proxy.receiving.lite_subscriptions import LiteSubscriptions
from proxy.receiving.receives import Receives
from proxy.receiving.settlements import Settlements
from proxy.routes.routes import RouteAnswers
from proxy.sending.sends import Sends
from proxy.statuses import Refused
from proxy.wire import messages_pb2 as messages
from proxy.wire.messages_pb2 import Code
from remoting.net.host_shares import HostShares
from remoting.wire.quoted import quoted

_log = logging.getLogger(__name__)

# Codes of settings that are wrong begin so; all others are of a moment.
_HUNDRED: Final = 100
_WRONG: Final = frozenset({400, 404})

# Messages that are being answered, of all calls. They may have come compressed, and take several
# times as much until their brokers have answered.
MAX_ANSWERED_BYTES: Final = 256 * 1024 * 1024

_SERVICE: Final = "/apache.rocketmq.v2.MessagingService/"

_Request = TypeVar("_Request", bound=Message)
Answers = Callable[[Call], Awaitable[None]]


class Service:
    """Answers calls. Its `answer` is a router of `proxy.http2.server`."""

    def __init__(
        self,
        routes: RouteAnswers,
        sends: Sends,
        receives: Receives,
        settlements: Settlements,
        lite: LiteSubscriptions,
        telemetry: Telemetry,
    ) -> None:
        self._receives = receives
        self._telemetry = telemetry
        self._room = HostShares(MAX_ANSWERED_BYTES)
        unary: dict[str, Callable[[Caller, Any], Awaitable[Message]]] = {
            "QueryRoute": routes.route,
            "QueryAssignment": routes.assignment,
            "SendMessage": sends.send,
            "RecallMessage": sends.recall,
            "EndTransaction": sends.end_transaction,
            "AckMessage": settlements.acknowledge,
            "ChangeInvisibleDuration": settlements.change,
            "ForwardMessageToDeadLetterQueue": settlements.forward,
            "SyncLiteSubscription": lite.change,
            "Heartbeat": telemetry.heartbeat,
            "NotifyClientTermination": telemetry.terminate,
        }
        self._answers: dict[str, Answers] = {
            _SERVICE + name: _unary(self._room, name, answer) for name, answer in unary.items()
        }
        self._answers[_SERVICE + "ReceiveMessage"] = self._receive
        self._answers[_SERVICE + "Telemetry"] = self._converse

    @property
    def paths(self) -> Collection[str]:
        """Of all methods that are served."""
        return self._answers.keys()

    async def answer(self, call: Call) -> None:
        """Answer one call. Raises GrpcStatus: there is no such method, or no such message."""
        answer = self._answers.get(call.path)
        if answer is None:
            raise GrpcStatus(GrpcCode.UNIMPLEMENTED, f"no method {call.path!r:.120} is served here")
        await answer(call)

    async def _receive(self, call: Call) -> None:
        async def send(response: messages.ReceiveMessageResponse) -> None:
            await call.send(response.SerializeToString())

        try:
            caller = _caller(call)
        except Refused as refused:
            await send(messages.ReceiveMessageResponse(status=refused.status))
            return
        # It is not kept here: a receive waits for long, and a request may be large.
        await self._receives.receive(
            caller, await _read(call, messages.ReceiveMessageRequest), send
        )

    async def _converse(self, call: Call) -> None:
        await call.open()  # the client in Rust waits for the headers before it sends anything

        async def tell(command: messages.TelemetryCommand) -> None:
            with suppress(CallEnded):  # the call's task is about to be cancelled
                await call.send(command.SerializeToString())

        try:
            async with aclosing(_commands(call, self._room)) as commands:
                await self._telemetry.converse(_caller(call), commands, tell)
        except Refused as refused:
            if refused.code == Code.UNAUTHORIZED:
                await tell(messages.TelemetryCommand(status=refused.status))
                return
            # Other settings are needed, or the same ones later: clients then open another stream.
            is_wrong = refused.code // _HUNDRED in _WRONG
            code = GrpcCode.INVALID_ARGUMENT if is_wrong else GrpcCode.UNAVAILABLE
            raise GrpcStatus(code, refused.text) from refused


@contextmanager
def _held(room: HostShares, call: Call, message: Message) -> Iterator[None]:
    """Count a message while it is being answered. Raises Refused (42900): there is no room."""
    host, count = _host(call), message.ByteSize()
    if not room.has_room(host, count):
        raise Refused(
            Code.TOO_MANY_REQUESTS,
            f"requests of {room.taken} bytes are being answered, and of this host "
            f"{room.of(host)}: send this one later",
        )
    room.take(host, count)
    try:
        yield
    finally:
        room.give_back(host, count)


def _unary(
    room: HostShares, name: str, answer: Callable[[Caller, Any], Awaitable[Message]]
) -> Answers:
    """Return what answers calls of one method. Failures are statuses in its own answer."""
    request_type: type[Message] = getattr(messages, f"{name}Request")
    response_type: type[Any] = getattr(messages, f"{name}Response")

    async def answered(call: Call) -> Message:
        request = await _read(call, request_type)
        try:
            with _held(room, call, request):
                return await answer(_caller(call), request)
        except Refused as refused:
            status = refused.status
        except Exception:
            _log.exception("the call %s of %s failed", quoted(call.path), quoted(call.peer))
            status = messages.Status(
                code=Code.INTERNAL_SERVER_ERROR, message="the proxy failed: see its log"
            )
        response: Message = response_type(status=status)
        return response

    async def unary(call: Call) -> None:
        # The request is no longer kept while the client takes the answer.
        response = await answered(call)
        await call.send(response.SerializeToString())

    return unary


def _host(call: Call) -> str:
    return call.peer.rpartition(":")[0].strip("[]")


def _caller(call: Call) -> Caller:
    return caller_of(call.metadata, _host(call), call.deadline_s)


async def _read(call: Call, kind: type[_Request]) -> _Request:
    """Raises GrpcStatus: there is no message, or one of another kind."""
    data = await call.receive()
    if data is None:
        raise GrpcStatus(GrpcCode.INVALID_ARGUMENT, "the call has no message")
    return _parsed(data, kind)


def _parsed(data: bytes, kind: type[_Request]) -> _Request:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise GrpcStatus(GrpcCode.INVALID_ARGUMENT, f"no {kind.__name__}: {error}") from error


async def _commands(
    call: Call, room: HostShares
) -> AsyncGenerator[messages.TelemetryCommand, None]:
    """Yield the commands of a client. Raises Refused (42900): there is no room for one."""
    while (data := await call.receive()) is not None:
        command = _parsed(data, messages.TelemetryCommand)
        del data  # nothing of a command is kept while the next one is awaited
        with _held(room, call, command):
            yield command
        del command
