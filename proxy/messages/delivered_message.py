"""A message as a client gets it, from a broker's record.

Source: RocketMQ's proxy, GrpcConverter.
"""

from hashlib import md5
from typing import Final

from proxy.messages.sent_message import RESERVED
from proxy.wire.messages_pb2 import DigestType, Encoding, Message, MessageType
from remoting.message.message_id import message_id
from remoting.message.properties import (
    BORN_HOST,
    BORN_TIMESTAMP,
    CHECK_IMMUNITY_S,
    DEAD_LETTER_ORIGIN_MESSAGE_ID,
    DEAD_LETTER_ORIGIN_TOPIC,
    DELAY_TIME_LEVEL,
    KEYS,
    LITE_TOPIC,
    PRIORITY,
    RETRY_TOPIC,
    SHARDING_KEY,
    START_DELIVER_TIME,
    TAGS,
    TIMER_DELAY_MS,
    TIMER_DELAY_S,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    TRACE_CONTEXT,
    TRANSACTION_PREPARED,
    UNIQUE_KEY,
    shown_value,
)
from remoting.message.record import MessageRecord, body_of
from remoting.message.topic_names import RETRY_PREFIX
from remoting.wire.field_values import INT32_MAX, read_natural

_DELAYED: Final = (
    *(DELAY_TIME_LEVEL, TIMER_DELAY_MS, TIMER_DELAY_S, TIMER_DELIVER_MS, TIMER_OUT_MS),
    START_DELIVER_TIME,
)


def delivered(record: MessageRecord, *, is_given: bool = True) -> Message:
    """Convert a record. Bodies are inflated: clients take different things for "GZIP".

    Args:
        record: as a broker stores it.
        is_given: whether it is given to a consumer: then it says which time this is.

    Raises:
        MessageMalformed: its body cannot be inflated.
        CompressionMissing: a library for it is not installed.
    """
    pairs = record.property_map()
    body = body_of(record)
    message = Message(body=body)
    topic = record.topic
    if topic.startswith(RETRY_PREFIX):
        topic = pairs.get(RETRY_TOPIC, topic)
    message.topic.name = shown_value(topic)
    user = message.user_properties
    for name, value in pairs.items():
        if name not in RESERVED:
            user[shown_value(name)] = shown_value(value)
    system = message.system_properties
    if tag := pairs.get(TAGS):
        system.tag = shown_value(tag)
    if keys := pairs.get(KEYS):
        system.keys.extend(key for key in shown_value(keys).split(" ") if key)
    system.message_id = shown_value(pairs.get(UNIQUE_KEY, "")) or message_id(
        record.store_host, record.store_port, record.physical_offset
    )
    system.body_digest.type = DigestType.MD5
    system.body_digest.checksum = md5(body, usedforsecurity=False).hexdigest().upper()
    system.body_encoding = Encoding.IDENTITY
    system.message_type = _kind(pairs)
    system.born_timestamp.FromMilliseconds(
        _time_ms(pairs.get(BORN_TIMESTAMP), record.born_timestamp)
    )
    system.born_host = shown_value(pairs.get(BORN_HOST, "")) or record.born_host
    system.store_timestamp.FromMilliseconds(_time_ms(None, record.store_timestamp))
    system.store_host = record.store_host
    due_ms = pairs.get(TIMER_DELIVER_MS) or pairs.get(TIMER_OUT_MS)
    if due_ms is not None:
        system.delivery_timestamp.FromMilliseconds(_time_ms(due_ms, record.store_timestamp))
    system.queue_id = record.queue_id
    system.queue_offset = record.queue_offset
    if is_given:
        system.delivery_attempt = min(max(record.reconsume_times, 0) + 1, INT32_MAX)
    if group := pairs.get(SHARDING_KEY):
        system.message_group = shown_value(group)
    if trace := pairs.get(TRACE_CONTEXT):
        system.trace_context = shown_value(trace)
    if recovery := read_natural(pairs.get(CHECK_IMMUNITY_S, "")):
        system.orphaned_transaction_recovery_duration.FromSeconds(min(recovery, 86_400))
    if origin := pairs.get(DEAD_LETTER_ORIGIN_TOPIC):
        system.dead_letter_queue.topic = shown_value(origin)
        system.dead_letter_queue.message_id = shown_value(
            pairs.get(DEAD_LETTER_ORIGIN_MESSAGE_ID, "")
        )
    if lite_topic := pairs.get(LITE_TOPIC):
        system.lite_topic = shown_value(lite_topic)
    if (priority := read_natural(pairs.get(PRIORITY, ""))) is not None:
        system.priority = min(priority, INT32_MAX)
    return message


# A time-stamp of protobuf ends with the year 9999. A client may have written any number.
_LAST_MS: Final = 253_402_300_799_999


def _time_ms(text: str | None, otherwise: int) -> int:
    found = read_natural(text) if text else None
    return min(max(otherwise if found is None else found, 0), _LAST_MS)


def _kind(pairs: dict[str, str]) -> MessageType:
    if pairs.get(TRANSACTION_PREPARED, "").lower() == "true":
        return MessageType.TRANSACTION
    if any(name in pairs for name in _DELAYED):
        return MessageType.DELAY
    if SHARDING_KEY in pairs:
        return MessageType.FIFO
    if PRIORITY in pairs:
        return MessageType.PRIORITY
    if LITE_TOPIC in pairs:
        return MessageType.LITE
    return MessageType.NORMAL
