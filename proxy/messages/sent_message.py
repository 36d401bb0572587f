"""A message as a client sends it, checked, and as brokers store it.

Source: RocketMQ's proxy, SendMessageActivity; its limits are those of GrpcValidator.
"""

import unicodedata
import zlib
from dataclasses import dataclass
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from proxy.names import lite_topic_name
from proxy.statuses import Refused
from proxy.wire.messages_pb2 import Code, Encoding, Message, MessageType
from remoting.message.properties import (
    BORN_HOST,
    BORN_TIMESTAMP,
    CHECK_IMMUNITY_S,
    KEYS,
    LITE_OFFSET,
    LITE_QUEUE,
    LITE_TOPIC,
    PRIORITY,
    PRODUCER_GROUP,
    RECONSUME_TIME,
    SHARDING_KEY,
    TAGS,
    TIMER_DELIVER_MS,
    TRACE_CONTEXT,
    UNIQUE_KEY,
    properties_field,
)
from remoting.message.properties import (
    TRANSACTION_PREPARED as PREPARED_PROPERTY,
)
from remoting.message.record import TRANSACTION_PREPARED
from remoting.wire.field_values import INT32_MAX

# RocketMQ's maxMessageSize.
MAX_BODY_BYTES: Final = 4 * 1024 * 1024

# Window bits by which zlib takes both forms.
_GZIP_OR_ZLIB: Final = 47

# Looked up once: each look-up in an enumeration of protobuf is a call of Python.
_NORMAL: Final = MessageType.NORMAL
_TRANSACTION: Final = MessageType.TRANSACTION
_GZIP: Final = Encoding.GZIP
_ENCODINGS: Final = frozenset({Encoding.ENCODING_UNSPECIFIED, Encoding.IDENTITY, Encoding.GZIP})

# RocketMQ's limits of user properties, and of these with tag and keys.
_MAX_USER_PROPERTIES: Final = 128
_MAX_PROPERTIES_BYTES: Final = 16_384
_MAX_GROUP_BYTES: Final = 63
# All properties together: a broker's records hold 32767 bytes, and it adds some hundred of its own.
_MAX_RUN_BYTES: Final = 32_256
# A tag alone that is no longer needs no count of its bytes.
_MAX_TAG_CHARACTERS: Final = _MAX_PROPERTIES_BYTES // 4
_MAX_ID_CHARACTERS: Final = 255
_MAX_HOST_CHARACTERS: Final = 255

# How far ahead a message may be delivered: RocketMQ's timerMaxDelaySec less is a broker's matter;
# its proxy takes one day.
_MOST_AHEAD_S: Final = 86_400

_MOST_RECOVERY_S: Final = 3600

# The last time that brokers store.
_LAST_MS: Final = (1 << 63) - 1

# Names of properties that brokers and clients use themselves: RocketMQ's MessageConst.
RESERVED: Final = frozenset(
    {
        *("KEYS", "TAGS", "WAIT", "DELAY", "RETRY_TOPIC", "REAL_TOPIC", "REAL_QID", "TRAN_MSG"),
        *("PGROUP", "MIN_OFFSET", "MAX_OFFSET", "BUYER_ID", "ORIGIN_MESSAGE_ID", "TRANSFER_FLAG"),
        *("CORRECTION_FLAG", "MQ2_FLAG", "RECONSUME_TIME", "MSG_REGION", "TRACE_ON", "UNIQ_KEY"),
        *("EXTEND_UNIQ_INFO", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "INNER_NUM"),
        *("INNER_BASE", "DUP_INFO", "CHECK_IMMUNITY_TIME_IN_SECONDS", "INSTANCE_ID"),
        *("TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_PREPARED_QUEUE_OFFSET", "CORRELATION_ID"),
        *("REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME", "PUSH_REPLY_TIME", "CLUSTER", "MSG_TYPE"),
        *("POP_CK", "POP_CK_OFFSET", "1ST_POP_TIME", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC"),
        *("TIMER_DELAY_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES"),
        *("TIMER_OUT_MS", "TIMER_DEL_UNIQKEY", "TIMER_DELAY_LEVEL", "BORN_HOST", BORN_HOST),
        *(BORN_TIMESTAMP, "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "CRC32", "__CRC32#"),
        *(LITE_QUEUE, LITE_OFFSET, "LOGICAL_QUEUE_ID", PRIORITY),
        *(LITE_TOPIC, "REDIRECT", "FORWARD_QUEUE_ID", "__STARTDELIVERTIME"),
    }
)


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message that may be sent.

    Attributes:
        message_id: from its client.
        kind: its type, which its topic must take.
        properties: the run of properties.
        system_flag: bits of a record's system flag.
        born_ms: when it was made, by the client's clock.
        place: what chooses its queue: the message group or lite topic; empty for any queue.
    """

    topic: str
    message_id: str
    kind: MessageType
    body: bytes
    properties: str
    system_flag: int
    born_ms: int
    place: str


def read_sent(topic: str, message: Message, host: str, now_ms: int) -> SentMessage:
    """Check a message. Raises Refused, with the code that says what is wrong.

    Args:
        topic: its topic, checked.
        message: as the client sent it.
        host: the client's address.
        now_ms: the wall clock, milliseconds since 1970.
    """
    system = message.system_properties
    body: bytes = message.body
    if not body:
        raise Refused(Code.MESSAGE_BODY_EMPTY, "the message has no body: send 1 byte or more")
    if len(body) > MAX_BODY_BYTES:
        raise Refused(
            Code.MESSAGE_BODY_TOO_LARGE, f"body of {len(body)} bytes: at most {MAX_BODY_BYTES}"
        )
    encoding = system.body_encoding
    if encoding not in _ENCODINGS:
        raise Refused(Code.BAD_REQUEST, f"body_encoding {encoding} is unknown")
    if encoding == _GZIP:
        body = _inflated(body)
    message_id: str = system.message_id
    if not message_id.strip() or len(message_id) > _MAX_ID_CHARACTERS or _has_control(message_id):
        raise Refused(Code.ILLEGAL_MESSAGE_ID, f"message id {message_id!r:.80} cannot be used")
    pairs = _user_properties(message)
    pairs[UNIQUE_KEY] = message_id
    _add_system_properties(message, pairs)
    kind, place = _kind(message, pairs, now_ms)
    pairs[PRODUCER_GROUP] = topic  # a transaction's check finds its producers by the topic
    born_host = system.born_host[:_MAX_HOST_CHARACTERS]
    pairs[BORN_HOST] = born_host if _is_word(born_host) else host
    born_ms = _milliseconds(system.born_timestamp) or now_ms
    pairs[BORN_TIMESTAMP] = str(born_ms)
    flag = TRANSACTION_PREPARED if kind == _TRANSACTION else 0
    run = properties_field(pairs)
    if len(run) > _MAX_RUN_BYTES // 4 and (size := len(run.encode())) > _MAX_RUN_BYTES:
        raise Refused(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"all properties and trace_context have {size} bytes: at most {_MAX_RUN_BYTES}",
        )
    return SentMessage(topic, message_id, kind, body, run, flag, born_ms, place)


def _inflated(body: bytes) -> bytes:
    """Return a body as its producer had it: consumers by remoting read zlib, and no gzip."""
    inflating = zlib.decompressobj(_GZIP_OR_ZLIB)
    try:
        found = inflating.decompress(body, MAX_BODY_BYTES + 1)
    except zlib.error as error:
        raise Refused(Code.MESSAGE_CORRUPTED, f"the body is no gzip: {error}") from error
    if len(found) > MAX_BODY_BYTES:
        raise Refused(
            Code.MESSAGE_BODY_TOO_LARGE, f"the body has more than {MAX_BODY_BYTES} bytes inflated"
        )
    if not inflating.eof:
        raise Refused(Code.MESSAGE_CORRUPTED, "the body's gzip is cut off")
    if not found:
        raise Refused(Code.MESSAGE_BODY_EMPTY, "the body inflates to nothing: send 1 byte or more")
    return found


def _user_properties(message: Message) -> dict[str, str]:
    given = message.user_properties
    system = message.system_properties
    if not given and not system.keys and len(system.tag) <= _MAX_TAG_CHARACTERS:
        return {}
    if len(given) > _MAX_USER_PROPERTIES:
        raise Refused(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"{len(given)} user properties: at most {_MAX_USER_PROPERTIES}",
        )
    if len(system.keys) > _MAX_PROPERTIES_BYTES:  # before each is looked at: it has a byte or more
        raise Refused(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"{len(system.keys)} keys: at most {_MAX_PROPERTIES_BYTES} bytes of keys",
        )
    texts = [*given.keys(), *given.values(), system.tag, *system.keys]
    size = sum(len(text.encode()) for text in texts)
    if size > _MAX_PROPERTIES_BYTES:  # before the characters are looked at, one by one
        raise Refused(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"properties, tag and keys of {size} bytes: at most {_MAX_PROPERTIES_BYTES}",
        )
    for name, value in given.items():
        if not name.strip() or name in RESERVED or _has_control(name):
            raise Refused(
                Code.ILLEGAL_MESSAGE_PROPERTY_KEY,
                f"the property name {name!r:.80} is reserved, empty, or has control characters",
            )
        if _has_control(value):
            raise Refused(
                Code.ILLEGAL_MESSAGE_PROPERTY_KEY,
                f"the value of property {name!r:.80} has control characters",
            )
    return dict(given)


def _add_system_properties(message: Message, pairs: dict[str, str]) -> None:
    system = message.system_properties
    if system.HasField("tag"):
        if not system.tag.strip() or "|" in system.tag or _has_control(system.tag):
            raise Refused(
                Code.ILLEGAL_MESSAGE_TAG, f"tag {system.tag!r:.80}: use a word without | in it"
            )
        pairs[TAGS] = system.tag
    if system.keys:
        for key in system.keys:
            if not key.strip() or _has_control(key):
                raise Refused(Code.ILLEGAL_MESSAGE_KEY, f"key {key!r:.80} cannot be used")
        pairs[KEYS] = " ".join(system.keys)
    if system.HasField("trace_context"):
        size = len(system.trace_context.encode())
        if size > _MAX_PROPERTIES_BYTES or _has_control(system.trace_context):
            raise Refused(
                Code.ILLEGAL_MESSAGE_PROPERTY_KEY,
                f"trace_context of {size} bytes: at most {_MAX_PROPERTIES_BYTES}, without control "
                "characters",
            )
        pairs[TRACE_CONTEXT] = system.trace_context
    if system.HasField("delivery_attempt") and system.delivery_attempt > 0:
        pairs[RECONSUME_TIME] = str(system.delivery_attempt)


def _kind(message: Message, pairs: dict[str, str], now_ms: int) -> tuple[MessageType, str]:
    """Add what makes the message one of its type; return the type, and what chooses its queue.

    The type is that of the first that it has: transaction, delay, group, priority. A lite topic
    goes with none of them. What the client calls it is not looked at, except for a transaction,
    which nothing else shows.
    """
    system = message.system_properties
    kinds: list[MessageType] = []
    place = ""
    if system.message_type == _TRANSACTION:
        kinds.append(_TRANSACTION)
        pairs[PREPARED_PROPERTY] = "true"
        recovery_s = system.orphaned_transaction_recovery_duration.ToSeconds()
        if not 0 <= recovery_s <= _MOST_RECOVERY_S:
            raise Refused(
                Code.BAD_REQUEST,
                f"orphaned_transaction_recovery_duration {recovery_s} s: at most "
                f"{_MOST_RECOVERY_S} s",
            )
        if recovery_s:
            pairs[CHECK_IMMUNITY_S] = str(recovery_s)
    if system.HasField("delivery_timestamp"):
        kinds.append(MessageType.DELAY)
        due_ms = _milliseconds(system.delivery_timestamp)
        pairs[TIMER_DELIVER_MS] = str(_delivery_ms(due_ms, now_ms))
    if system.HasField("message_group"):
        kinds.append(MessageType.FIFO)
        place = system.message_group
        size = len(place.encode())
        if not place.strip() or size > _MAX_GROUP_BYTES or _has_control(place):
            raise Refused(
                Code.ILLEGAL_MESSAGE_GROUP,
                f"message group {place!r:.80}: use a word of at most {_MAX_GROUP_BYTES} bytes",
            )
        pairs[SHARDING_KEY] = place
    if system.HasField("priority"):
        kinds.append(MessageType.PRIORITY)
        if system.priority < 0:
            raise Refused(Code.BAD_REQUEST, f"priority {system.priority}: use 0 or more")
        pairs[PRIORITY] = str(min(system.priority, INT32_MAX))
    if system.HasField("lite_topic"):
        kinds.append(MessageType.LITE)
        place = lite_topic_name(system.lite_topic)
        pairs[LITE_TOPIC] = place
        if len(kinds) > 1:
            raise Refused(
                Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                f"a message of a lite topic is {MessageType.Name(kinds[0])} as well: send it "
                "without a delay, a message group, a priority or a transaction",
            )
    return (kinds[0] if kinds else _NORMAL), place


def _delivery_ms(due_ms: int, now_ms: int) -> int:
    most_ms = now_ms + _MOST_AHEAD_S * 1000
    if due_ms > most_ms:
        raise Refused(
            Code.ILLEGAL_DELIVERY_TIME,
            f"delivery_timestamp is {(due_ms - most_ms) // 1000 + _MOST_AHEAD_S} s ahead: at most "
            f"{_MOST_AHEAD_S} s",
        )
    return due_ms


def _milliseconds(time: Timestamp) -> int:
    """Return a time since 1970, at least 0. It may be one that protobuf calls invalid."""
    return min(max(time.seconds * 1000 + time.nanos // 1_000_000, 0), _LAST_MS)


def _has_control(text: str) -> bool:
    """Return whether a text has control characters, which brokers use between properties."""
    return not text.isprintable() and any(unicodedata.category(one) == "Cc" for one in text)


def _is_word(text: str) -> bool:
    return bool(text) and not _has_control(text)
