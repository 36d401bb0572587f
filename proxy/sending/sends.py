"""Answers SendMessage, RecallMessage and EndTransaction.

Source: RocketMQ's proxy, SendMessageActivity, RecallMessageActivity and EndTransactionActivity.
"""

from typing import Final

import trio

from dledger_mq.connection import requests
from dledger_mq.connection.this_process import now_ms
from proxy.brokers.brokers import Brokers
from proxy.brokers.topics import Topics
from proxy.caller import Caller
from proxy.messages.sent_message import SentMessage, read_sent
from proxy.names import topic_name
from proxy.sending.producer_groups import ProducerGroups
from proxy.sending.queue_choice import QueueChoice
from proxy.sending.transaction_id import TransactionId, read_transaction_id
from proxy.statuses import OK, Refused, common
from proxy.wire.messages_pb2 import (
    Code,
    EndTransactionRequest,
    EndTransactionResponse,
    MessageType,
    RecallMessageRequest,
    RecallMessageResponse,
    SendMessageRequest,
    SendMessageResponse,
    SendResultEntry,
    TransactionResolution,
    TransactionSource,
)
from remoting.bodies.message_queue import MessageQueue
from remoting.message.errors import MessageMalformed
from remoting.message.message_id import parse_message_id
from remoting.message.recall_handle import read_recall_handle
from remoting.message.record import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from remoting.wire.command import Command
from remoting.wire.errors import FieldMissing

# RocketMQ's own clients send one message a call; stubs may send several.
_MAX_MESSAGES: Final = 1024

# How long to wait for one answer. A leader that is frozen is replaced within this time, and then
# the message goes to the new one; it may be stored twice, as after a retry of the client.
_ATTEMPT_S: Final = 2.0

# Looked up once: each look-up in an enumeration of protobuf is a call of Python.
_TRANSACTION: Final = MessageType.TRANSACTION
_DELAY: Final = MessageType.DELAY
_PRIORITY: Final = MessageType.PRIORITY

_HOW: Final = {
    TransactionResolution.COMMIT: TRANSACTION_COMMIT,
    TransactionResolution.ROLLBACK: TRANSACTION_ROLLBACK,
}
_MAX_HANDLE_CHARACTERS: Final = 2048


class Sends:
    """Answers producers.

    Args:
        brokers: asked to store messages.
        topics: knows the types of messages.
        producers: asked about transactions later.
    """

    def __init__(self, brokers: Brokers, topics: Topics, producers: ProducerGroups) -> None:
        self._brokers = brokers
        self._topics = topics
        self._producers = producers
        self._choice = QueueChoice()

    async def send(self, caller: Caller, request: SendMessageRequest) -> SendMessageResponse:
        """Store messages of one topic. Raises Refused."""
        messages = request.messages
        if not 0 < len(messages) <= _MAX_MESSAGES:
            raise Refused(
                Code.MESSAGE_CORRUPTED, f"{len(messages)} messages: send 1 to {_MAX_MESSAGES}"
            )
        topic = topic_name(messages[0].topic)
        if any(message.topic.name != topic for message in messages):
            raise Refused(Code.MESSAGE_CORRUPTED, "messages of several topics: send them apart")
        sent = [read_sent(topic, message, caller.host, now_ms()) for message in messages]
        types = await self._topics.types(topic)
        for one in sent:
            _check_type(one, types)
        if any(one.kind == _TRANSACTION for one in sent):
            await self._producers.join(topic)
        if len(sent) == 1:
            entry = await self._store(caller, sent[0], messages[0].system_properties.priority)
            return SendMessageResponse(status=OK, entries=[entry])
        return await self._store_all(caller, request, sent)

    async def _store_all(
        self, caller: Caller, request: SendMessageRequest, sent: list[SentMessage]
    ) -> SendMessageResponse:
        """Store messages at once, those of a message group or lite topic one after another.

        Each has its own result. After one that fails, the later ones of its group fail with it.
        """
        entries: list[SendResultEntry | None] = [None] * len(sent)
        runs: dict[str | int, list[int]] = {}
        for number, one in enumerate(sent):
            runs.setdefault(one.place or number, []).append(number)

        async def store(numbers: list[int]) -> None:
            failed: Refused | None = None
            for number in numbers:
                priority = request.messages[number].system_properties.priority
                if failed is None:
                    try:
                        entries[number] = await self._store(caller, sent[number], priority)
                    except Refused as refused:
                        failed = refused
                if failed is not None:
                    entries[number] = SendResultEntry(status=failed.status)

        async with trio.open_nursery() as nursery:
            for numbers in runs.values():
                nursery.start_soon(store, numbers)
        done = [entry for entry in entries if entry is not None]
        return SendMessageResponse(status=common([entry.status for entry in done]), entries=done)

    async def _store(self, caller: Caller, sent: SentMessage, priority: int) -> SendResultEntry:
        """Raises Refused."""
        route = await self._brokers.route(sent.topic)
        if not route.write_queues:
            # Its group elects a leader: the request follows that.
            route = await self._brokers.refreshed(sent.topic, caller.deadline_s)
        kept = priority if sent.kind == _PRIORITY else None
        queue = self._choice.choose(route.write_queues, sent.place, kept)
        command = requests.send(
            sent.topic,
            queue,
            sent.body,
            sent.properties,
            system_flag=sent.system_flag,
            flag=0,
            born_ms=sent.born_ms,
        )
        reply = await self._brokers.ask(
            caller, queue, command, "send a message", attempt_s=_ATTEMPT_S
        )
        try:
            return _result(sent, queue, reply)
        except (FieldMissing, MessageMalformed) as error:
            raise Refused(Code.INTERNAL_SERVER_ERROR, str(error)) from error

    async def recall(self, caller: Caller, request: RecallMessageRequest) -> RecallMessageResponse:
        """Take a delayed message back. Raises Refused."""
        topic = topic_name(request.topic)
        if MessageType.DELAY not in await self._topics.types(topic):
            raise Refused(
                Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                f"topic {topic} takes no delayed messages, so none can be recalled",
            )
        handle = request.recall_handle
        if len(handle) > _MAX_HANDLE_CHARACTERS:
            raise Refused(Code.BAD_REQUEST, f"a recall handle of {len(handle)} characters")
        broker_name = _broker_of_recall(handle)
        if not await self._brokers.has_broker(topic, broker_name):
            raise Refused(
                Code.BAD_REQUEST, f"broker {broker_name!r:.80} has no queue of topic {topic}"
            )
        queue = MessageQueue(topic, broker_name, 0)
        command = requests.recall(topic, handle)
        reply = await self._brokers.ask(caller, queue, command, "recall a message")
        return RecallMessageResponse(status=OK, message_id=reply.fields.get("msgId", ""))

    async def end_transaction(
        self, caller: Caller, request: EndTransactionRequest
    ) -> EndTransactionResponse:
        """Commit or roll back. Raises Refused (40008)."""
        topic = topic_name(request.topic)
        if not request.transaction_id.strip():
            raise Refused(Code.INVALID_TRANSACTION_ID, "transaction_id is empty")
        found = read_transaction_id(request.transaction_id)
        how = _HOW.get(request.resolution)
        if how is None:
            raise Refused(
                Code.BAD_REQUEST, f"resolution {request.resolution}: send COMMIT or ROLLBACK"
            )
        if not await self._brokers.has_broker(topic, found.broker_name):
            raise Refused(
                Code.INVALID_TRANSACTION_ID,
                f"broker {found.broker_name!r:.80} has no queue of topic {topic}",
            )
        command = requests.end_transaction(
            topic,
            half_offset=found.half_offset,
            physical_offset=found.physical_offset,
            message_id=found.message_id,
            how=how,
        )
        if request.source == TransactionSource.SOURCE_SERVER_CHECK:
            command.fields["fromTransactionCheck"] = "true"
        queue = MessageQueue(topic, found.broker_name, 0)
        await self._brokers.ask(caller, queue, command, "end a transaction")
        return EndTransactionResponse(status=OK)


def _check_type(sent: SentMessage, types: tuple[MessageType, ...]) -> None:
    """Raises Refused (40014)."""
    if sent.kind not in types:
        taken = ", ".join(MessageType.Name(one) for one in types)
        raise Refused(
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"a message of type {MessageType.Name(sent.kind)} to topic {sent.topic}, which takes "
            f"{taken}: change the message, or the topic's message.type",
        )


def _result(sent: SentMessage, queue: MessageQueue, reply: Command) -> SendResultEntry:
    """Raises FieldMissing, MessageMalformed."""
    entry = SendResultEntry(
        status=OK,
        message_id=sent.message_id,
        transaction_id=sent.message_id,
        offset=reply.integer("queueOffset"),
    )
    if sent.kind == _TRANSACTION:
        position = parse_message_id(reply.text("msgId")).physical_offset
        entry.transaction_id = str(
            TransactionId(queue.broker_name, entry.offset, position, sent.message_id)
        )
    if sent.kind == _DELAY:
        entry.recall_handle = reply.fields.get("recallHandle", "")
    return entry


def _broker_of_recall(handle: str) -> str:
    """Return the broker that a handle names. Raises Refused: it is no handle."""
    read = read_recall_handle(handle)
    if read is None or not read.broker_name:
        raise Refused(
            Code.BAD_REQUEST, f"{handle!r:.80} is no recall handle: use that of the send's answer"
        )
    return read.broker_name
