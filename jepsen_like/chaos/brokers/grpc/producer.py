"""A producer that speaks gRPC, with the calls of `dledger_mq.Producer` that workloads make."""

from __future__ import annotations

from functools import partial
from typing import Any, Final
from uuid import uuid4

from dledger_mq import Message
from dledger_mq.errors import OutcomeUnknown
from jepsen_like.chaos.brokers.grpc.connection import CallBroken
from jepsen_like.chaos.brokers.grpc.proxies import Proxies
from jepsen_like.chaos.brokers.workload import SEND_TIMEOUT_S
from jepsen_like.chaos.service import CallFailed
from proxy.wire import messages_pb2 as grpc
from proxy.wire.messages_pb2 import (
    Code,
    EndTransactionRequest,
    EndTransactionResponse,
    MessageType,
    Resource,
    SendMessageRequest,
    SendMessageResponse,
    SendResultEntry,
    SystemProperties,
    TransactionResolution,
    TransactionSource,
)

# The codes of sends that are wrong as they are, which no proxy passes on.
_WRONG: Final = range(Code.BAD_REQUEST, Code.UNAUTHORIZED)


class GrpcProducer:
    """Sends by proxies.

    Its calls raise CallFailed if they certainly did nothing, else OutcomeUnknown.
    """

    def __init__(self, client: Proxies) -> None:
        self._client = client

    async def send(self, message: Message, *, selector: object = None) -> SendResultEntry:
        """Send a message. The proxy chooses its queue: by the sharding key, if there is one."""
        kind = MessageType.DELAY if message.is_delayed else MessageType.NORMAL
        return await self._send(message, MessageType.FIFO if message.sharding_key else kind)

    async def begin_transaction(self, message: Message) -> GrpcTransaction:
        entry = await self._send(message, MessageType.TRANSACTION)
        return GrpcTransaction(self._client, message.topic, entry)

    async def _send(self, message: Message, kind: MessageType) -> SendResultEntry:
        system = SystemProperties(message_id=uuid4().hex.upper(), message_type=kind)
        system.born_timestamp.GetCurrentTime()
        if message.keys:
            system.keys.append(str(message.keys))
        if message.sharding_key:
            system.message_group = message.sharding_key
        if message.is_delayed:
            due_ms = system.born_timestamp.ToMilliseconds() + message.delay_ms
            system.delivery_timestamp.FromMilliseconds(due_ms)
        topic = Resource(name=message.topic)
        sent = grpc.Message(topic=topic, body=message.body, system_properties=system)
        request = SendMessageRequest(messages=[sent])
        answer = await asked(self._client, request, SendMessageResponse, message.topic, _WRONG)
        entry: SendResultEntry = answer.entries[0] if answer.entries else SendResultEntry()
        return entry


class GrpcTransaction:
    """A half message that a proxy has acknowledged."""

    def __init__(self, client: Proxies, topic: str, entry: SendResultEntry) -> None:
        self._client = client
        self._topic = topic
        self._entry = entry
        self.commit = partial(self._end, TransactionResolution.COMMIT)
        self.roll_back = partial(self._end, TransactionResolution.ROLLBACK)

    async def _end(self, resolution: TransactionResolution) -> None:
        request = EndTransactionRequest(
            topic=Resource(name=self._topic),
            message_id=self._entry.message_id,
            transaction_id=self._entry.transaction_id,
            resolution=resolution,
            source=TransactionSource.SOURCE_CLIENT,
        )
        # A refusal is no proof: the proxy may have repeated an end whose answer was lost.
        await asked(self._client, request, EndTransactionResponse, self._topic)

    def leave_open(self) -> None:
        """Say no more about it. Clients without a stream of telemetry are never asked."""


async def asked(
    client: Proxies, request: Any, answer_type: type[Any], topic: str, wrong: range = range(0)
) -> Any:
    """Return the answer to a call of which the proxy says that it is done.

    Raises CallFailed if the call certainly did nothing: no proxy has taken it, or its code is one
    of `wrong`. Else raises OutcomeUnknown.
    """
    try:
        (answer,) = await client.ask(request, answer_type, SEND_TIMEOUT_S)
    except CallBroken as broken:
        if broken.is_certain:
            raise CallFailed(str(broken)) from broken
        raise OutcomeUnknown(topic, str(broken), 1) from broken
    code, text = answer.status.code, answer.status.message
    if code in wrong:
        raise CallFailed(f"{code}: {text}")
    if code != Code.OK:
        raise OutcomeUnknown(topic, f"{code}: {text}", 1)
    return answer
