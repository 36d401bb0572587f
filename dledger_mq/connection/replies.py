"""Questions and replies: RocketMQ's request-reply.

A question is a message like others, with the asker's name and a number. The consumer that gets it
sends a reply, which the broker pushes to the asker (326).
"""

from collections.abc import Callable, Mapping
from typing import Final

from dledger_mq.connection import requests
from dledger_mq.errors import InvalidMessage
from dledger_mq.received_message import ReceivedMessage, received
from remoting.bodies.message_queue import MessageQueue
from remoting.message.properties import (
    CLUSTER,
    CORRELATION_ID,
    MESSAGE_TYPE,
    REPLY_TIME_TO_LIVE,
    REPLY_TO_CLIENT,
    properties_bytes,
)
from remoting.message.record import MessageRecord
from remoting.wire.command import Command

REPLY_TOPIC_SUFFIX: Final = "_REPLY_TOPIC"
_REPLY: Final = "reply"

_ECHOED: Final = (CORRELATION_ID, REPLY_TO_CLIENT, REPLY_TIME_TO_LIVE)


def question(client_id: str, number: str, timeout_s: float) -> dict[str, str]:
    """The properties that make a message a question; `number` is like no other."""
    return {
        CORRELATION_ID: number,
        REPLY_TO_CLIENT: client_id,
        REPLY_TIME_TO_LIVE: str(round(timeout_s * 1000)),
    }


def reply_to(asked: ReceivedMessage, reply: bytes) -> tuple[MessageQueue, Command]:
    """The request that brings a reply to the asker, and the queue whose broker takes it.

    Raises:
        InvalidMessage: the message is no question.
    """
    pairs: Mapping[str, str] = asked.properties
    missing = [name for name in (CLUSTER, CORRELATION_ID, REPLY_TO_CLIENT) if not pairs.get(name)]
    if missing:
        raise InvalidMessage(
            asked.topic, f"the message is no question, it has no property {missing[0]}"
        )
    topic = pairs[CLUSTER] + REPLY_TOPIC_SUFFIX
    properties = {name: pairs[name] for name in _ECHOED if name in pairs}
    # The broker that stored the question is one that knows the asker.
    queue = MessageQueue(topic, asked.queue.broker_name, 0)
    return queue, requests.reply(queue, reply, {**properties, MESSAGE_TYPE: _REPLY})


class AwaitedReplies:
    """The questions of one client that wait for replies."""

    def __init__(self) -> None:
        self._waiting: dict[str, Callable[[ReceivedMessage], None]] = {}

    def expect(self, correlation_id: str, then: Callable[[ReceivedMessage], None]) -> None:
        """Call `then` with the reply to a question, once."""
        self._waiting[correlation_id] = then

    def forget(self, correlation_id: str) -> None:
        """Expect a reply no longer."""
        self._waiting.pop(correlation_id, None)

    def pushed(self, command: Command) -> None:
        """A broker pushes a reply; one that nobody waits for is dropped.

        Raises:
            FieldMissing, MessageMalformed: it cannot be read.
        """
        record = MessageRecord(
            command.text("topic"),
            command.body,
            properties_bytes(command.fields.get("properties", "")),
            queue_id=command.integer("queueId", 0),
            system_flag=command.integer("sysFlag", 0),
            flag=command.integer("flag", 0),
            born_timestamp=command.integer("bornTimestamp", 0),
            store_timestamp=command.integer("storeTimestamp", 0),
        )
        message = received(record, MessageQueue(record.topic, "", record.queue_id))
        then = self._waiting.pop(message.properties.get(CORRELATION_ID, ""), None)
        if then is not None:
            then(message)
