"""Records of lite topics, as consumers are given them.

The log has them as messages of the parent. Consumers need the offset in the lite topic: here it
stands in the record's own field, and in the two properties by which RocketMQ's clients and proxies
find it.
"""

import struct
from typing import Final

from broker.messages.record_facts import BODY_AT, PROPERTIES_LENGTH, body_length
from remoting.message.properties import (
    LITE_OFFSET,
    LITE_QUEUE,
    MAX_PROPERTIES_BYTES,
    encode_properties,
)
from remoting.wire.field_values import saturated_int32

_SIZE: Final = struct.Struct(">i")
_QUEUE_OFFSET: Final = struct.Struct(">q")
_QUEUE_OFFSET_AT: Final = 20
_TIMES_AT: Final = 72

# Of the properties that are added to a message when it is given.
ADDED_BYTES: Final = len(
    encode_properties({LITE_QUEUE: f"%LMQ%${127 * 'p'}${64 * 'l'}", LITE_OFFSET: 19 * "9"})
) + len("\x02")


def queue_name(parent: str, name: bytes) -> str:
    """Return RocketMQ's name for the queue of a lite topic."""
    return f"%LMQ%${parent}${name.decode()}"


def given(record: bytes, parent: str, name: bytes, offset: int, times: int) -> bytes:
    """Return a stored record as the message at `offset` of a lite topic, given so many times
    before.
    """
    length_at = BODY_AT + body_length(record)
    length_at += 1 + record[length_at]
    (length,) = PROPERTIES_LENGTH.unpack_from(record, length_at)
    begin = length_at + PROPERTIES_LENGTH.size
    properties = record[begin : begin + length]
    if properties and not properties.endswith(b"\x02"):
        properties += b"\x02"
    queue = queue_name(parent, name)
    properties += encode_properties({LITE_QUEUE: queue, LITE_OFFSET: str(offset)})
    if len(properties) > MAX_PROPERTIES_BYTES:
        properties = record[begin : begin + length]  # its sender was a broker of another version
    head = bytearray(record[:length_at])
    size = length_at + PROPERTIES_LENGTH.size + len(properties)
    _SIZE.pack_into(head, 0, size)
    _QUEUE_OFFSET.pack_into(head, _QUEUE_OFFSET_AT, offset)
    (before,) = _SIZE.unpack_from(head, _TIMES_AT)
    _SIZE.pack_into(head, _TIMES_AT, saturated_int32(before + times))
    return bytes(head) + PROPERTIES_LENGTH.pack(len(properties)) + properties
