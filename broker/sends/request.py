"""Reads and checks a client's send (10, 310, 320), and makes records that lack only their places.

Source: RocketMQ's SendMessageProcessor. Properties are kept byte for byte; only a missing UNIQ_KEY
and a missing MSG_REGION are added.
"""

from collections.abc import Sequence
from functools import lru_cache
from operator import add
from typing import Final, NamedTuple

from broker.errors import RequestRefused
from broker.serving.needs import Action, Need
from broker.topics.names import SEND_FORBIDDEN, check_topic_name
from broker.topics.needs import topic_need
from remoting.message.batch import MAX_BATCH_MESSAGES, batch_parts
from remoting.message.properties import (
    MAX_PROPERTIES_BYTES,
    MESSAGE_REGION,
    POP_CHECKPOINT,
    UNIQUE_KEY,
    edit_properties,
    encode_properties,
    has_pair,
    name_mark,
    properties_bytes,
)
from remoting.message.record import (
    BORN_HOST_V6_FLAG,
    STORE_HOST_V6_FLAG,
    TRANSACTION_MASK,
    MessageRecord,
)
from remoting.message.record_batch import RecordBatch, Records
from remoting.message.topic_names import RETRY_PREFIX
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from remoting.wire.errors import FieldMissing
from remoting.wire.field_values import is_name

# The handle of a popped message, which a consumer may send on with the message. Clients make a new
# handle only if there is none, so the next consumer would use this one.
_HANDLE: Final = name_mark(POP_CHECKPOINT)

_V6: Final = BORN_HOST_V6_FLAG | STORE_HOST_V6_FLAG

# RocketMQ's default. Java consumers of version 5 send no trace of a message without a region.
REGION: Final = "DefaultRegion"
_REGION_PAIR: Final = encode_properties({MESSAGE_REGION: REGION})
_REGION: Final = name_mark(MESSAGE_REGION)
_SEPARATOR: Final = b"\x02"
_SEPARATED_REGION: Final = _SEPARATOR + _REGION_PAIR
# A message's own properties may fill the record. A key may be added, too.
_KEY_BYTES: Final = 1 + len(encode_properties({UNIQUE_KEY: 32 * "0"}))
_MOST_WITH_REGION: Final = MAX_PROPERTIES_BYTES - len(_SEPARATED_REGION) - _KEY_BYTES


class _Names(NamedTuple):
    """The names of a send's fields."""

    topic: str
    default_queues: str
    queue_id: str
    system_flag: str
    flag: str
    reconsume_times: str
    max_reconsume_times: str
    default_topic: str
    born: str
    properties: str
    batch: str


_LONG: Final = _Names(
    "topic",
    "defaultTopicQueueNums",
    "queueId",
    "sysFlag",
    "flag",
    "reconsumeTimes",
    "maxReconsumeTimes",
    "defaultTopic",
    "bornTimestamp",
    "properties",
    "batch",
)
_LONG_NAMES: Final = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE})
_SHORT: Final = _Names("b", "d", "e", "f", "h", "j", "l", "c", "g", "i", "m")
_SEND_BATCH: Final = RequestCode.SEND_BATCH_MESSAGE

# The terms of a producer are the same for each of its queues: more are read again.
_REMEMBERED_TERMS: Final = 4096


def send_needs(command: Command) -> Sequence[Need]:
    """Need to publish to the topic of a send."""
    name = (_LONG if command.code in _LONG_NAMES else _SHORT).topic
    return _publishing(name, command.fields.get(name))


# For each send. Clients name topics as they like; one takes some 400 bytes.
@lru_cache(maxsize=4096)
def _publishing(field: str, topic: str | None) -> Sequence[Need]:
    if topic is None or not is_name(topic):
        raise FieldMissing(field, topic)
    return (topic_need(topic, Action.PUB),)


class SendTerms(NamedTuple):
    """The checked fields that most sends of a producer have in common.

    Attributes:
        default_queues: how many queues the client wants in a new topic.
        queue_id: negative lets the broker choose.
        reconsume_times: how often the message failed before; for a retry topic.
        max_reconsume_times: the client's limit of that.
    """

    topic: str
    default_queues: int
    queue_id: int
    system_flag: int
    flag: int
    reconsume_times: int
    max_reconsume_times: int | None


class SendRequest(NamedTuple):
    """A checked send.

    Attributes:
        default_topic: the template of a new topic.
        records: the messages, without queue, queue offset, store time and hosts. Several messages
            are a `RecordBatch`, except for a retry topic.
        longest_bytes: of the longest message, its body and its properties together.
    """

    terms: SendTerms
    default_topic: str
    records: Records
    longest_bytes: int


def read_send_request(command: Command) -> SendRequest:
    """Read and check a send.

    Raises RequestRefused: (13) its properties are too long or not supported, (16) the topic is not
    writable, (29) a bad topic name.
    """
    names = _LONG if command.code in _LONG_NAMES else _SHORT
    field = command.fields.get
    terms = _terms(
        names,
        field(names.topic),
        field(names.default_queues),
        field(names.queue_id),
        field(names.system_flag),
        field(names.flag),
        field(names.reconsume_times),
        field(names.max_reconsume_times),
    )
    record = MessageRecord(
        terms.topic,
        command.body,
        properties_bytes(field(names.properties, "")),
        flag=terms.flag,
        system_flag=terms.system_flag,
        born_timestamp=command.integer(names.born),
        reconsume_times=terms.reconsume_times,
    )
    records: Records = [record]
    if command.code == _SEND_BATCH or command.boolean(names.batch):
        records, longest = _batch(record)
    else:
        properties = record.properties = _prepared(record.properties)
        _check_properties(len(properties))
        longest = len(record.body) + len(properties)
    return SendRequest(terms, field(names.default_topic, ""), records, longest)


@lru_cache(maxsize=_REMEMBERED_TERMS)
def _terms(names: _Names, *texts: str | None) -> SendTerms:
    """Read the first fields in `names`, which are short: a longer one is refused."""
    known = {name: text for name, text in zip(names, texts, strict=False) if text is not None}
    command = Command(0, known)
    int32 = command.int32
    topic = command.text(names.topic)
    check_topic_name(topic)
    if topic in SEND_FORBIDDEN:
        raise RequestRefused.forbidden(f"sending to topic {topic} is forbidden: use your own")
    # Properties mark half messages; with the flag they would be invisible to RocketMQ's tools.
    system_flag = int32(names.system_flag) & ~(_V6 | TRANSACTION_MASK)
    max_reconsume = int32(names.max_reconsume_times, -1)
    return SendTerms(
        topic,
        int32(names.default_queues, 0),
        int32(names.queue_id),
        system_flag,
        int32(names.flag),
        max(0, int32(names.reconsume_times, 0)),
        max_reconsume if max_reconsume >= 0 else None,
    )


def _batch(envelope: MessageRecord) -> tuple[Records, int]:
    """Split a batch into its messages; also return the bytes of the longest. The properties of the
    batch itself are ignored.
    """
    parts = batch_parts(envelope.body)
    if not parts:
        raise RequestRefused.illegal(f"a batch of 0 messages: send 1 to {MAX_BATCH_MESSAGES}")
    bodies, runs, flags = zip(*parts, strict=True)
    properties = _prepared_all(runs)
    lengths = list(map(len, properties))
    _check_properties(max(lengths))
    batch = RecordBatch(envelope, bodies, properties, flags)
    # Some code changes the records of retry topics one by one.
    is_plain = len(parts) > 1 and not envelope.topic.startswith(RETRY_PREFIX)
    return batch if is_plain else list(batch), max(map(add, lengths, map(len, bodies)))


def _prepared_all(runs: Sequence[bytes]) -> list[bytes]:
    """Prepare many runs of properties as `_prepared`."""
    together = b"\x02".join(runs)
    longest = max(map(len, runs), default=0)
    if has_pair(together, _HANDLE) or has_pair(together, _REGION) or longest > _MOST_WITH_REGION:
        return list(map(_prepared, runs))
    return [
        run + (_SEPARATED_REGION if run and not run.endswith(_SEPARATOR) else _REGION_PAIR)
        for run in runs
    ]


def _prepared(properties: bytes) -> bytes:
    """Return the properties as they are stored, without a generated key."""
    if _HANDLE in properties and has_pair(properties, _HANDLE):
        properties = edit_properties(properties, {}, (POP_CHECKPOINT,))
    # The broker's region is added, unless there is one already, or no room.
    if len(properties) > _MOST_WITH_REGION or (
        _REGION in properties and has_pair(properties, _REGION)
    ):
        return properties
    if properties and not properties.endswith(_SEPARATOR):
        return properties + _SEPARATED_REGION  # Java 4.9 clients omit the last separator
    return properties + _REGION_PAIR


def _check_properties(size: int) -> None:
    if size > MAX_PROPERTIES_BYTES:
        raise RequestRefused.illegal(f"properties of {size} bytes: at most {MAX_PROPERTIES_BYTES}")
