"""RocketMQ's request-reply.

A question is a message with the asker's client id and a correlation id. The consumer that gets it
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

# What consumers are told of a limit without end: 24 days, the most milliseconds in 32 bits.
LONGEST_LIFE_S: Final = 2_147_483.0
_REPLY: Final = "reply"

_ECHOED: Final = (CORRELATION_ID, REPLY_TO_CLIENT, REPLY_TIME_TO_LIVE)


def question(client_id: str, number: str, timeout_s: float) -> dict[str, str]:
    """Return the properties that make a message a question; `number` is unique."""
    return {
        CORRELATION_ID: number,
        REPLY_TO_CLIENT: client_id,
        REPLY_TIME_TO_LIVE: str(round(min(timeout_s, LONGEST_LIFE_S) * 1000)),
    }


def reply_to(asked: ReceivedMessage, reply: bytes) -> tuple[MessageQueue, Command]:
    """Return the request that carries a reply, and the queue whose broker takes it.

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
    # The broker that stored the question knows the asker.
    queue = MessageQueue(topic, asked.queue.broker_name, 0)
    return queue, requests.reply(queue, reply, {**properties, MESSAGE_TYPE: _REPLY})


class AwaitedReplies:
    def __init__(self) -> None:
        self._waiting: dict[str, Callable[[ReceivedMessage], None]] = {}

    def expect(self, correlation_id: str, then: Callable[[ReceivedMessage], None]) -> None:
        """Call `then` once, with the reply to a question."""
        self._waiting[correlation_id] = then

    def forget(self, correlation_id: str) -> None:
        self._waiting.pop(correlation_id, None)

    def pushed(self, command: Command) -> None:
        """Handle a reply that a broker pushes; one that nothing waits for is dropped.

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
