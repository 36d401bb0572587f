"""The messages that a consumer gets, cut from the answer to a pull.

Most listeners look at little more than the body. So the body is copied out of the answer, whose
memory can be freed then, while the properties stay encoded until they are asked for. Compressed
bodies are inflated, and the CRCs of stored bodies are compared here: listeners must not be the
first to notice a damaged body.
"""

import struct
import zlib
from collections.abc import Mapping
from typing import Final

from dledger.declared_error import DeclaredError
from dledger.short_repr import shown_fields
from remoting.bodies.message_queue import MessageQueue
from remoting.message.errors import CompressionMissing, MessageMalformed
from remoting.message.host import packed_host, unpacked_host
from remoting.message.message_id import message_id
from remoting.message.properties import (
    KEYS,
    MAX_PROPERTIES_BYTES,
    RETRY_TOPIC,
    TAGS,
    UNIQUE_KEY,
    decode_properties,
)
from remoting.message.record import (
    BORN_HOST_V6_FLAG,
    COMPRESSED_FLAG,
    MESSAGE_MAGIC,
    STORE_HOST_V6_FLAG,
    MessageRecord,
    body_crc,
    body_of,
    decode_record,
)
from remoting.message.topic_names import RETRY_PREFIX

# The fixed part of a record before its body, with IPv4 hosts, as all brokers write it by default.
_FIXED: Final = struct.Struct(">iIiiiqqiq8xq4siiqi")
_FIXED_BYTES: Final = _FIXED.size  # 88
_UNUSUAL: Final = BORN_HOST_V6_FLAG | STORE_HOST_V6_FLAG | COMPRESSED_FLAG

_PUBLIC: Final = (
    "topic",
    "body",
    "tags",
    "keys",
    "properties",
    "message_id",
    "queue",
    "queue_offset",
    "physical_offset",
    "reconsume_times",
    "born_timestamp",
    "store_timestamp",
    "flag",
)


class BodyCompressed(DeclaredError):
    """A body is compressed, and was not to be inflated here."""

    _template = "a body is compressed"


class ReceivedMessage:
    """A message that a consumer gets.

    Attributes:
        body: the producer's body, inflated.
        queue: the queue it was read from, which is a retry topic's for a redelivered message.
        queue_offset: its offset in that queue.
        physical_offset: its byte position in the broker's log.
        reconsume_times: how often its consumption failed before.
        born_timestamp: when it was made, milliseconds since 1970 by the producer's clock.
        store_timestamp: when it was stored, milliseconds since 1970 by the broker's clock.
        flag: the producer's number.
        held_bytes: the original bytes of body and properties, which a consumer's cache counts.
    """

    __slots__ = (
        "_properties",
        "_run",
        "_store_host",
        "_store_port",
        "body",
        "born_timestamp",
        "flag",
        "held_bytes",
        "physical_offset",
        "queue",
        "queue_offset",
        "reconsume_times",
        "store_timestamp",
    )

    def __init__(
        self,
        queue: MessageQueue,
        queue_offset: int,
        body: bytes,
        properties: bytes | Mapping[str, str] = b"",
        physical_offset: int = 0,
        reconsume_times: int = 0,
        born_timestamp: int = 0,
        store_timestamp: int = 0,
        flag: int = 0,
        store_host: bytes = b"\0\0\0\0",
        store_port: int = 0,
    ) -> None:
        self.queue = queue
        self.queue_offset = queue_offset
        self.body = body
        self._run = b""
        self._properties: dict[str, str] | None = None
        if isinstance(properties, bytes):
            self._run = properties
        else:
            self._properties = dict(properties)
        # Kept, since a listener may replace the body while the cache counts the message.
        self.held_bytes = len(body) + len(self._run)
        self.physical_offset = physical_offset
        self.reconsume_times = reconsume_times
        self.born_timestamp = born_timestamp
        self.store_timestamp = store_timestamp
        self.flag = flag
        self._store_host = store_host
        self._store_port = store_port

    @property
    def properties(self) -> dict[str, str]:
        """All properties, RocketMQ's own included. They are decoded when first asked for."""
        found = self._properties
        if found is None:
            found = self._properties = decode_properties(self._run)
            self._run = b""
        return found

    @property
    def topic(self) -> str:
        """The topic it was sent to, also if it was redelivered from a retry topic."""
        topic = self.queue.topic
        if topic.startswith(RETRY_PREFIX):
            return self.properties.get(RETRY_TOPIC, topic)
        return topic

    @property
    def tags(self) -> str:
        """Its tag, or an empty text."""
        return self.properties.get(TAGS, "")

    @property
    def keys(self) -> str:
        """Its keys, separated by spaces."""
        return self.properties.get(KEYS, "")

    @property
    def message_id(self) -> str:
        """The producer's id, or the broker's if the producer gave none."""
        return self.properties.get(UNIQUE_KEY) or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """The id with its place in the broker's log, which administrators' tools find it by."""
        return message_id(unpacked_host(self._store_host), self._store_port, self.physical_offset)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReceivedMessage):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _PUBLIC)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return shown_fields(self, _PUBLIC)


def received(record: MessageRecord, queue: MessageQueue) -> ReceivedMessage:
    """Convert a stored record.

    Raises:
        MessageMalformed: its body is marked compressed and cannot be inflated.
    """
    if record.topic != queue.topic or record.queue_id != queue.queue_id:
        queue = MessageQueue(record.topic, queue.broker_name, record.queue_id)
    return ReceivedMessage(
        queue,
        record.queue_offset,
        body_of(record),
        record.properties,
        physical_offset=record.physical_offset,
        reconsume_times=record.reconsume_times,
        born_timestamp=record.born_timestamp,
        store_timestamp=record.store_timestamp,
        flag=record.flag,
        store_host=packed_host(record.store_host),
        store_port=record.store_port,
    )


def cut_messages(
    body: bytes, queue: MessageQueue, *, come_again: bool = False, inflates: bool = True
) -> tuple[list[ReceivedMessage], list[MessageRecord]]:
    """Decode the messages in the answer to a pull of `queue`.

    Returns the messages, and the records whose bodies cannot be inflated. If messages `come_again`
    unless they are acknowledged, damaged records are among these, too.

    Raises:
        MessageMalformed: a record is not whole, or the CRC of a stored body is wrong, and it is not
            redelivered. No message of such an answer is delivered, and none is skipped: another
            answer, or another leader, may have it whole.
        CompressionMissing: a body needs a library that is not installed. It is no dead letter:
            other members, or this one with the library, can read it.
        BodyCompressed: a body is compressed, and `inflates` is false.
    """
    messages: list[ReceivedMessage] = []
    unreadable: list[MessageRecord] = []
    add = messages.append
    unpack, crc32 = _FIXED.unpack_from, zlib.crc32
    topic, queue_id = queue.topic.encode(), queue.queue_id
    # The bytes between body and properties of each record of this queue.
    middle = bytes((len(topic),)) + topic
    middle_bytes = len(middle)
    at, end = 0, len(body)
    while at < end:
        if end - at > _FIXED_BYTES:
            (
                size,
                magic,
                crc,
                its_queue_id,
                flag,
                queue_offset,
                physical_offset,
                system_flag,
                born_timestamp,
                store_timestamp,
                store_host,
                store_port,
                reconsume_times,
                _prepared,
                body_bytes,
            ) = unpack(body, at)
            body_at = at + _FIXED_BYTES
            topic_at = body_at + body_bytes
            run_at = topic_at + middle_bytes + 2
            next_at = at + size
            if (
                magic == MESSAGE_MAGIC
                and not system_flag & _UNUSUAL
                and its_queue_id == queue_id
                and body_at <= topic_at
                and run_at <= next_at <= end
                and next_at - run_at <= MAX_PROPERTIES_BYTES
                and body.startswith(middle, topic_at)
                and body[run_at - 2] << 8 | body[run_at - 1] == next_at - run_at
                and crc32(content := body[body_at:topic_at]) & 0x7FFFFFFF == crc
            ):
                add(
                    ReceivedMessage(
                        queue,
                        queue_offset,
                        content,
                        body[run_at:next_at],
                        physical_offset,
                        reconsume_times,
                        born_timestamp,
                        store_timestamp,
                        flag,
                        store_host,
                        store_port,
                    )
                )
                at = next_at
                continue
        record, at = decode_record(body, at)  # an unusual or damaged record, or no record
        if body_crc(record.body) != record.body_crc:
            if come_again:
                unreadable.append(record)
                continue
            raise _damaged(record)
        if not inflates and record.system_flag & COMPRESSED_FLAG:
            raise BodyCompressed
        try:
            add(received(record, queue))
        except CompressionMissing:
            raise
        except MessageMalformed:
            unreadable.append(record)
    return messages, unreadable


def _damaged(record: MessageRecord) -> MessageMalformed:
    return MessageMalformed(
        f"body at offset {record.queue_offset} is damaged (its CRC is wrong): "
        "if this goes on, verify the disk of the broker"
    )
