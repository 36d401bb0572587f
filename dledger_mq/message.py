"""The messages of producers, and the results of listeners and checks."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Final

from dledger.renamed import renamed_fields
from dledger.short_repr import short_repr
from dledger_mq.argument_checks import kind_of
from dledger_mq.errors import InvalidMessage
from remoting.message import properties as names
from remoting.message.errors import MessageMalformed
from remoting.message.record import TRANSACTION_COMMIT, TRANSACTION_NONE, TRANSACTION_ROLLBACK
from remoting.message.topic_names import RETRY_PREFIX

# The largest body that brokers accept by default (RocketMQ's maxMessageSize), as it is sent.
MAX_BODY_BYTES: Final = 4 * 1024 * 1024

# The record has one byte for the length, which is signed in Java.
MAX_TOPIC_CHARACTERS: Final = 127

# With its prefix, a consumer group's name is the name of its retry topic.
MAX_GROUP_CHARACTERS: Final = MAX_TOPIC_CHARACTERS - len(RETRY_PREFIX)

# The record has four bytes for the flag, which are signed in Java.
_FLAG_END: Final = 1 << 31

# RocketMQ's rule for the names of topics and groups.
_LEGAL_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+\Z")

# Properties that clients and brokers use themselves: a message with one of them could be taken for
# a retried, delayed or transactional one. RocketMQ's clients refuse them, too (MessageConst).
RESERVED_PROPERTIES: Final = frozenset(
    {
        names.KEYS,
        names.TAGS,
        names.WAIT_STORE_MESSAGE_OK,
        names.DELAY_TIME_LEVEL,
        names.TIMER_DELAY_S,
        names.TIMER_DELAY_MS,
        names.TIMER_DELIVER_MS,
        names.TIMER_OUT_MS,
        names.START_DELIVER_TIME,
        names.UNIQUE_KEY,
        names.SHARDING_KEY,
        names.TRANSACTION_PREPARED,
        names.PRODUCER_GROUP,
        names.TRANSACTION_ID,
        names.INSTANCE_ID,
        names.CORRELATION_ID,
        names.REPLY_TO_CLIENT,
        names.REPLY_TIME_TO_LIVE,
        names.MESSAGE_TYPE,
        names.RETRY_TOPIC,
        names.ORIGIN_MESSAGE_ID,
        names.RECONSUME_TIME,
        names.MAX_RECONSUME_TIMES,
        names.REAL_TOPIC,
        names.REAL_QUEUE_ID,
        names.TRANSACTION_CHECK_TIMES,
        names.TRANSACTION_PREPARED_QUEUE_OFFSET,
        names.MESSAGE_REGION,
        names.TRACE_SWITCH,
        names.CLUSTER,
        names.DEAD_LETTER_ORIGIN_TOPIC,
        names.DEAD_LETTER_ORIGIN_MESSAGE_ID,
        names.POP_CHECKPOINT,
        names.FIRST_POP_TIME,
        names.BORN_HOST,
        names.BORN_TIMESTAMP,
        names.MIN_OFFSET,
        names.MAX_OFFSET,
        names.CONSUME_START_TIME,
    }
)


@renamed_fields(delay_milliseconds="delay_ms", deliver_at_milliseconds="deliver_at_ms")
@dataclass(slots=True)
class Message:
    """A message to send.

    Attributes:
        topic: at most 127 of the characters ``a-z A-Z 0-9 _ - % |``.
        body: 1 byte to 4 MiB; a bytearray or memoryview is copied when it is sent.
        tags: one tag that consumers may filter by, or an empty text.
        keys: words by which the message can be found; none may hold a space.
        properties: further names and values of your own; RocketMQ's own names are refused.
        flag: a number of your own, 32 bits.
        delay_level: RocketMQ's delay level, 1 to 18; 0 delivers at once.
        delay_ms: delivery is this long after the arrival; for RocketMQ 5 and brokers of
            this project.
        deliver_at_ms: the time of delivery, milliseconds since 1970; for the same
            brokers.
        sharding_key: messages with equal keys go to the same queue (see
            `dledger_mq.by_sharding_key`), or an empty text.
    """

    topic: str
    body: bytes
    tags: str = ""
    keys: str | Sequence[str] = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    flag: int = 0
    delay_level: int = 0
    sharding_key: str = ""
    delay_ms: int = 0
    deliver_at_ms: int = 0

    def __repr__(self) -> str:
        return short_repr(self)

    @property
    def is_delayed(self) -> bool:
        """Whether it has any kind of delay."""
        return bool(self.delay_level or self.delay_ms or self.deliver_at_ms)


class ConsumeResult(Enum):
    """The result of a listener."""

    SUCCESS = "success"
    RETRY = "retry"


class ConsumeFrom(Enum):
    """Where a group begins in a queue without a committed offset."""

    LAST = "last"
    FIRST = "first"
    TIMESTAMP = "timestamp"


class TransactionState(IntEnum):
    """How a transaction ends; the numbers are those of the wire."""

    COMMIT = TRANSACTION_COMMIT
    ROLLBACK = TRANSACTION_ROLLBACK
    UNKNOWN = TRANSACTION_NONE  # the broker asks again later


def check_topic(topic: str) -> None:
    """Check the name of a topic by the rules of RocketMQ's TopicValidator. Raises
    InvalidMessage.
    """
    _check_name("topic", topic, MAX_TOPIC_CHARACTERS)


def check_group(group: str, most_characters: int = MAX_GROUP_CHARACTERS) -> None:
    """Check the name of a group, which is one of consumers by default. Raises InvalidMessage."""
    _check_name("group", group, most_characters)


def _check_name(what: str, name: str, most: int) -> None:
    if not isinstance(name, str):
        raise InvalidMessage(str(name), f"a {what}'s name is a str, not {kind_of(name)}")
    if not 0 < len(name) <= most:
        raise InvalidMessage(name, f"a {what}'s name has 1 to {most} characters, not {len(name)}")
    if _LEGAL_NAME.match(name) is None:
        raise InvalidMessage(name, f"a {what}'s name holds only letters, digits and _ - % |")


def check_message(message: Message) -> None:
    """Check that a value is a message with a legal topic. Raises InvalidMessage."""
    if not isinstance(message, Message):
        raise InvalidMessage("", f"a message is a Message, not {kind_of(message)}")
    check_topic(message.topic)


def checked_body(message: Message, max_body_bytes: int = MAX_BODY_BYTES) -> bytes:
    """Return the body of a message, before it is compressed.

    Raises:
        InvalidMessage: it is empty, too long, or not made of bytes.
    """
    body = message.body
    if type(body) is not bytes:
        if not isinstance(body, (bytes, bytearray, memoryview)):
            advice = ": encode it" if isinstance(body, str) else ""
            raise InvalidMessage(message.topic, f"a body is bytes, not {kind_of(body)}{advice}")
        body = bytes(body)  # the original may change while the message is on its way
    if not 0 < len(body) <= max_body_bytes:
        raise InvalidMessage(
            message.topic, f"a body has 1 to {max_body_bytes} bytes, not {len(body)}"
        )
    return body


def properties_of(message: Message, unique_key: str) -> bytes:
    """Encode the properties of a message.

    Raises:
        InvalidMessage: a property is not text, has a name of RocketMQ's own, or holds a separator
            of the wire; a key holds a space; all together exceed 32767 bytes; or the flag or a
            delay is no number that brokers know.
    """
    _check_types(message)
    pairs = dict(message.properties)
    if pairs and not RESERVED_PROPERTIES.isdisjoint(pairs):
        name = min(RESERVED_PROPERTIES.intersection(pairs))
        raise InvalidMessage(
            message.topic,
            f"property {name!r} is RocketMQ's own: use a field of Message, or another name",
        )
    if message.keys:
        if not isinstance(message.keys, str) and any(" " in key or not key for key in message.keys):
            raise InvalidMessage(message.topic, "a key is empty or holds a space")
        pairs[names.KEYS] = (
            message.keys if isinstance(message.keys, str) else " ".join(message.keys)
        )
    if message.tags:
        pairs[names.TAGS] = message.tags
    if message.delay_level:
        pairs[names.DELAY_TIME_LEVEL] = str(message.delay_level)
    if message.delay_ms:
        pairs[names.TIMER_DELAY_MS] = str(message.delay_ms)
    if message.deliver_at_ms:
        pairs[names.TIMER_DELIVER_MS] = str(message.deliver_at_ms)
    if message.sharding_key:
        pairs[names.SHARDING_KEY] = message.sharding_key
    pairs[names.UNIQUE_KEY] = unique_key
    pairs[names.WAIT_STORE_MESSAGE_OK] = "true"
    try:
        run = names.encode_properties(pairs)
    except MessageMalformed as error:
        raise InvalidMessage(message.topic, error.reason) from None
    except TypeError:
        raise InvalidMessage(message.topic, _not_text(pairs)) from None
    if len(run) > names.MAX_PROPERTIES_BYTES:
        raise InvalidMessage(
            message.topic, f"properties of {len(run)} bytes, at most {names.MAX_PROPERTIES_BYTES}"
        )
    return run


def _check_types(message: Message) -> None:
    """Check the fields that the encoding of a message does not. Raises InvalidMessage.

    Messages that are sent together share a request, which none of them may fail for the others.
    """
    topic = message.topic
    flag: object = message.flag
    keys: object = message.keys
    if not isinstance(flag, int) or isinstance(flag, bool):
        raise InvalidMessage(topic, f"a flag is an int, not {kind_of(flag)}")
    if not -_FLAG_END <= flag < _FLAG_END:
        raise InvalidMessage(topic, f"a flag has 32 bits, which {flag!r:.40} does not fit")
    if not isinstance(message.properties, Mapping):
        raise InvalidMessage(topic, f"properties are a mapping, not {kind_of(message.properties)}")
    if type(keys) is not str and (
        not isinstance(keys, Collection) or not all(isinstance(key, str) for key in keys)
    ):
        raise InvalidMessage(topic, "keys are a str, or a sequence of them")
    if message.is_delayed:
        for name in ("delay_level", "delay_ms", "deliver_at_ms"):
            value = getattr(message, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise InvalidMessage(topic, f"{name} is an int, not {kind_of(value)}")


def _not_text(pairs: Mapping[str, str]) -> str:
    """Return the text of an error about properties that are not text."""
    for name, value in pairs.items():
        if not isinstance(name, str):
            return f"a property's name is a str, not {kind_of(name)}"
        if not isinstance(value, str):
            return f"property {name!r:.60} is a str, not {kind_of(value)}"
    return "properties are text"
