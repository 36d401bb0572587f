"""Reads and checks a client's send (10, 310, 320), and makes records that lack only their places.

Source: RocketMQ's SendMessageProcessor. Properties are kept byte for byte; only a missing UNIQ_KEY
and a missing MSG_REGION are added.
"""

from collections.abc import Sequence
from operator import add
from typing import Final, NamedTuple

from broker.errors import RequestRefused
from broker.topics.names import RETRY_PREFIX, SEND_FORBIDDEN, check_topic_name
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
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command

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
    default_topic: str
    default_queues: str
    queue_id: str
    system_flag: str
    born: str
    flag: str
    properties: str
    reconsume_times: str
    batch: str
    max_reconsume_times: str


_LONG: Final = _Names(
    "topic",
    "defaultTopic",
    "defaultTopicQueueNums",
    "queueId",
    "sysFlag",
    "bornTimestamp",
    "flag",
    "properties",
    "reconsumeTimes",
    "batch",
    "maxReconsumeTimes",
)
_LONG_NAMES: Final = (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE)
_SHORT: Final = _Names("b", "c", "d", "e", "f", "g", "h", "i", "j", "m", "l")


class SendRequest(NamedTuple):
    """A checked send.

    Attributes:
        queue_id: negative lets the broker choose.
        default_topic: the template of a new topic.
        default_queues: how many queues the client wants in a new topic.
        reconsume_times: how often the message failed before; for a retry topic.
        max_reconsume_times: the client's limit of that.
        records: the messages, without queue, queue offset, store time and hosts. Several messages
            are a `RecordBatch`, except for a retry topic.
        longest_bytes: of the longest message, its body and its properties together.
    """

    topic: str
    queue_id: int
    default_topic: str
    default_queues: int
    reconsume_times: int
    max_reconsume_times: int | None
    records: Records
    longest_bytes: int


def read_send_request(command: Command) -> SendRequest:
    """Read and check a send.

    Raises RequestRefused: (13) its properties are too long or not supported, (16) the topic is not
    writable, (29) a bad topic name.
    """
    names = _LONG if command.code in _LONG_NAMES else _SHORT
    int32 = command.int32
    topic = command.text(names.topic)
    check_topic_name(topic)
    if topic in SEND_FORBIDDEN:
        raise RequestRefused.forbidden(f"sending to topic {topic} is forbidden: use your own")
    # Properties mark half messages; with the flag they would be invisible to RocketMQ's tools.
    system_flag = int32(names.system_flag) & ~(_V6 | TRANSACTION_MASK)
    properties = properties_bytes(command.fields.get(names.properties, ""))
    reconsume_times = _times(command, names.reconsume_times)
    flag, born = int32(names.flag), command.integer(names.born)
    max_reconsume = int32(names.max_reconsume_times, -1)
    record = MessageRecord(
        topic,
        command.body,
        properties,
        flag=flag,
        system_flag=system_flag,
        born_timestamp=born,
        reconsume_times=reconsume_times,
    )
    records: Records = [record]
    if command.code == RequestCode.SEND_BATCH_MESSAGE or command.boolean(names.batch):
        records, longest = _batch(record)
    else:
        record.properties = _prepared(properties)
        _check_properties(len(record.properties))
        longest = len(record.body) + len(record.properties)
    return SendRequest(
        topic,
        int32(names.queue_id),
        command.fields.get(names.default_topic, ""),
        int32(names.default_queues, 0),
        reconsume_times,
        max_reconsume if max_reconsume >= 0 else None,
        records,
        longest,
    )


def _times(command: Command, name: str) -> int:
    """Return how often a message failed before; a negative number counts as 0."""
    return max(0, command.int32(name, 0))


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
    if has_pair(properties, _HANDLE):
        properties = edit_properties(properties, {}, (POP_CHECKPOINT,))
    return _with_region(properties)


def _with_region(properties: bytes) -> bytes:
    """Add the broker's region to properties, unless there is one already, or no room."""
    if has_pair(properties, _REGION) or len(properties) > _MOST_WITH_REGION:
        return properties
    if properties and not properties.endswith(_SEPARATOR):
        return properties + _SEPARATED_REGION  # Java 4.9 clients omit the last separator
    return properties + _REGION_PAIR


def _check_properties(size: int) -> None:
    if size > MAX_PROPERTIES_BYTES:
        raise RequestRefused.illegal(f"properties of {size} bytes: at most {MAX_PROPERTIES_BYTES}")
