"""The facts of a stored record that the broker needs, read without decoding the rest."""

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from broker.log.folded import Arrivals
from remoting.message.properties import TAGS, first_pair, last_pair, name_mark
from remoting.message.record import BORN_HOST_V6_FLAG, MESSAGE_MAGIC, STORE_HOST_V6_FLAG
from remoting.message.tags import tags_code

# In a record with IPv4 hosts; this broker writes no other.
STORE_TIMESTAMP_AT: Final = 56
SMALLEST_RECORD_BYTES: Final = 91

# One message in a consume queue: physical offset, size, hash of the tag.
_UNIT_FORMAT: Final = "qiq"
UNIT: Final = struct.Struct(">" + _UNIT_FORMAT)

# Size, magic, queue, queue offset, place, system flag, store timestamp, body length.
FIXED_FACTS: Final = struct.Struct(">iI4xi4xqqi16xq20xi")
_BODY_LENGTH: Final = struct.Struct(">i")
_SIZE_BODY_LENGTH: Final = struct.Struct(">I80xi")
_BODY_LENGTH_AT: Final = 84
BODY_AT: Final = _BODY_LENGTH_AT + _BODY_LENGTH.size
PROPERTIES_LENGTH: Final = struct.Struct(">h")
TAGS_NAME: Final = name_mark(TAGS)

# Records up to this size are read whole: a second read costs as much as ten kilobytes.
SHORT_RECORD_BYTES: Final = 4096

# A topic and properties of the longest kind, each with its length.
_MAX_REST_BYTES: Final = 1 + 255 + 2 + 32767

V6_FLAGS: Final = BORN_HOST_V6_FLAG | STORE_HOST_V6_FLAG


class RecordFacts(NamedTuple):
    """The parts of a record that its consume queue needs. Times are milliseconds since 1970."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int
    store_timestamp_ms: int


def read_record_facts(body: bytes, *, folds: bool = False) -> RecordFacts | None:
    """Read the first record of an entry's body; None if no broker can have written it.

    A command or further records may follow after `size` bytes.

    Args:
        body: of an entry.
        folds: use the first of several tags, whose hash stands in consume queues and must not
            change; otherwise the last. Brokers have stored several tags up to format 5 of the log,
            and store one since.
    """
    try:
        size, magic, queue_id, queue_offset, place, system_flag, stored_ms, body_length = (
            FIXED_FACTS.unpack_from(body)
        )
        at = BODY_AT + body_length
        if body_length < 0 or magic != MESSAGE_MAGIC or system_flag & V6_FLAGS:
            return None
        topic_end = at + 1 + body[at]
        topic = body[at + 1 : topic_end].decode()
        properties_length = PROPERTIES_LENGTH.unpack_from(body, topic_end)[0]
    except (struct.error, IndexError, UnicodeDecodeError):
        return None
    properties_at = topic_end + 2
    if size > len(body) or properties_at + properties_length != size or queue_id < 0:
        return None
    pair_at = (first_pair if folds else last_pair)(body, TAGS_NAME, properties_at, size)
    code = 0 if pair_at < 0 else code_of(body, pair_at, size)
    facts = topic, queue_id, queue_offset, place, size, code, stored_ms
    return tuple.__new__(RecordFacts, facts)  # a third of the time of RecordFacts(...)


def units_of(arrivals: Arrivals) -> bytes:
    values = [0] * (3 * len(arrivals.places))
    values[::3], values[1::3], values[2::3] = arrivals.places, arrivals.sizes, arrivals.codes
    return struct.pack(">" + len(arrivals.places) * _UNIT_FORMAT, *values)


def record_size(body: bytes) -> int:
    return int.from_bytes(body[:4], "big")


def body_length(record: bytes) -> int:
    """Return the bytes of the message body in a record."""
    (length,) = _BODY_LENGTH.unpack_from(record, _BODY_LENGTH_AT)
    return int(length)


def read_without_body(
    read_bytes: Callable[[int, int], bytes], position: int, size: int
) -> bytes | None:
    """Read a record, but a long one with an empty body: reads some kilobytes at most.

    All else but the size and the body's checksum is as stored. None if there is no record.

    Args:
        read_bytes: reads so many bytes at a position of the log. Raises OutsideLog.
        position: where the record begins.
        size: bytes of the stored record.

    Raises:
        OutsideLog: the record is not in the log.
    """
    if size <= SHORT_RECORD_BYTES:
        return read_bytes(position, size)
    head = read_bytes(position, BODY_AT)
    rest_at = BODY_AT + body_length(head)
    if not BODY_AT <= rest_at <= size - (SMALLEST_RECORD_BYTES - BODY_AT):
        return None
    rest = read_bytes(position + rest_at, min(size - rest_at, _MAX_REST_BYTES))
    new_size = (BODY_AT + len(rest)).to_bytes(4, "big")
    return new_size + head[4:_BODY_LENGTH_AT] + bytes(_BODY_LENGTH.size) + rest


def properties_run(record: bytes) -> bytes:
    """Return the run of properties of a record; empty if its lengths contradict one another."""
    size, length = _SIZE_BODY_LENGTH.unpack_from(record)
    at = BODY_AT + length
    if not BODY_AT <= at < len(record):
        return b""
    return record[at + 3 + record[at] : size]


def code_of(body: bytes, pair_at: int, record_end: int) -> int:
    """Return the hash of the tag in the TAGS pair at `pair_at`."""
    end = body.find(b"\x02", pair_at, record_end)
    tags = body[pair_at + len(TAGS_NAME) : end if end >= 0 else record_end]
    return tags_code(tags.decode("utf-8", "replace"))
