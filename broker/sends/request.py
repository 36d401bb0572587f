"""A client's send (10, 310, 320), read, checked, and made into records that only lack their place.

Source: RocketMQ's SendMessageProcessor. Properties are kept byte for byte; only a missing UNIQ_KEY
and a missing MSG_REGION are added.
"""

from typing import Final, NamedTuple

from broker.errors import RequestRefused
from broker.limits import MAX_BATCH_MESSAGES
from broker.topics.names import SEND_FORBIDDEN, check_topic_name
from dledger import MAX_BODY_BYTES
from remoting.message.batch import decode_batch_body
from remoting.message.properties import (
    MAX_PROPERTIES_BYTES,
    MESSAGE_REGION,
    POP_CHECKPOINT,
    edit_properties,
    encode_properties,
    properties_bytes,
)
from remoting.message.record import (
    BORN_HOST_V6_FLAG,
    STORE_HOST_V6_FLAG,
    TRANSACTION_MASK,
    MessageRecord,
)
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command

# A record with nothing in it; with the message it must fit into one entry of the log.
_RECORD_OVERHEAD_BYTES: Final = 91

# A consumer that sends a popped message on sends its handle with it. With another consumer it would
# stand for the message's own handle, as clients make one only where there is none.
_HANDLE_MARK: Final = f"{POP_CHECKPOINT}\x01".encode()

_V6: Final = BORN_HOST_V6_FLAG | STORE_HOST_V6_FLAG

# RocketMQ's default; it names no place here. Java consumers of version 5 send no trace of a message
# without a region.
REGION: Final = "DefaultRegion"
_REGION_PAIR: Final = encode_properties({MESSAGE_REGION: REGION})
_REGION_NAME: Final = _REGION_PAIR.partition(b"\x01")[0] + b"\x01"
_SEPARATOR: Final = b"\x02"


class _Names(NamedTuple):
    """How the fields of a send are called."""

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
        topic: where it goes.
        queue_id: the queue; negative lets the broker choose.
        default_topic: the template to create the topic from.
        default_queues: how many queues the client wants in a new topic.
        reconsume_times: how often the message failed before; for a retry topic.
        max_reconsume_times: the client's limit of that, or None.
        records: the messages; queue, queue offset, store time and hosts are still to be set.
    """

    topic: str
    queue_id: int
    default_topic: str
    default_queues: int
    reconsume_times: int
    max_reconsume_times: int | None
    records: list[MessageRecord]


def read_send_request(command: Command) -> SendRequest:
    """Read and check a send.

    Raises:
        FieldMissing, MessageMalformed: it cannot be read.
        RequestRefused: (13) too large or of a kind that is not served, (16) a topic that is not
            writable, (29) a bad topic name.
    """
    names = _LONG if command.code in _LONG_NAMES else _SHORT
    integer = command.integer
    topic = command.text(names.topic)
    check_topic_name(topic)
    if topic in SEND_FORBIDDEN:
        raise RequestRefused(
            ResponseCode.NO_PERMISSION, f"sending to topic {topic} is forbidden: use your own"
        )
    # That a message waits for a transaction, its properties say; with the flag it is invisible to
    # RocketMQ's tools.
    system_flag = integer(names.system_flag) & ~(_V6 | TRANSACTION_MASK)
    properties = properties_bytes(command.fields.get(names.properties, ""))
    reconsume_times = integer(names.reconsume_times, 0)
    flag, born = integer(names.flag), integer(names.born)
    max_reconsume = integer(names.max_reconsume_times, -1)
    is_batch = command.code == RequestCode.SEND_BATCH_MESSAGE or command.boolean(names.batch)
    if is_batch:
        records = _batch_records(topic, command.body, system_flag, born, reconsume_times)
    else:
        records = [
            MessageRecord(
                topic,
                command.body,
                properties,
                flag=flag,
                system_flag=system_flag,
                born_timestamp=born,
                reconsume_times=reconsume_times,
            )
        ]
    for record in records:
        if _HANDLE_MARK in record.properties:
            record.properties = edit_properties(record.properties, {}, (POP_CHECKPOINT,))
        record.properties = _with_region(record.properties)
        _check_record(record)
    return SendRequest(
        topic,
        integer(names.queue_id),
        command.fields.get(names.default_topic, ""),
        integer(names.default_queues, 0),
        reconsume_times,
        max_reconsume if max_reconsume >= 0 else None,
        records,
    )


def _batch_records(
    topic: str, body: bytes, system_flag: int, born: int, reconsume_times: int
) -> list[MessageRecord]:
    """The messages of a batch. The envelope's own properties are of no message."""
    messages = decode_batch_body(body)
    if not 1 <= len(messages) <= MAX_BATCH_MESSAGES:
        raise RequestRefused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"a batch of {len(messages)} messages: send 1 to {MAX_BATCH_MESSAGES}",
        )
    return [
        MessageRecord(
            topic,
            message.body,
            message.properties,
            flag=message.flag,
            system_flag=system_flag,
            born_timestamp=born,
            reconsume_times=reconsume_times,
        )
        for message in messages
    ]


def _with_region(properties: bytes) -> bytes:
    """The properties with the broker's region, unless a region is there already."""
    if _REGION_NAME in properties:
        return properties
    if properties and not properties.endswith(_SEPARATOR):
        properties += _SEPARATOR  # Java 4.9 clients leave out the last one
    return properties + _REGION_PAIR


def _check_record(record: MessageRecord) -> None:
    """Raises RequestRefused when a message cannot be stored."""
    properties = record.properties
    if len(properties) > MAX_PROPERTIES_BYTES:
        raise RequestRefused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"properties of {len(properties)} bytes: at most {MAX_PROPERTIES_BYTES}",
        )
    size = _RECORD_OVERHEAD_BYTES + len(record.body) + len(record.topic) + len(properties)
    if size > MAX_BODY_BYTES:
        raise RequestRefused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"a message of {size} bytes with its properties: at most {MAX_BODY_BYTES}",
        )
