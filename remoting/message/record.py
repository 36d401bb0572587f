"""The message record: the form of a message in the log and in the reply to a pull.

Layout: RocketMQ's commit log, version 1 (one byte of topic length), big-endian. Version 2 (two
bytes) is read but never written, because only Java clients check the magic.
"""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import repeat
from typing import Final

from dledger.short_repr import short_repr
from remoting.message.compression import inflate_lz4, inflate_zlib, inflate_zstd
from remoting.message.errors import MessageMalformed
from remoting.message.host import packed_host, unpacked_host
from remoting.message.properties import MAX_PROPERTIES_BYTES, decode_properties

MESSAGE_MAGIC: Final = 0xDAA320A7
MESSAGE_MAGIC_V2: Final = 0xDAA320AB

# Bits of a record's system flag.
COMPRESSED_FLAG: Final = 1
TRANSACTION_MASK: Final = 3 << 2
TRANSACTION_NONE: Final = 0
TRANSACTION_PREPARED: Final = 1 << 2
TRANSACTION_COMMIT: Final = 2 << 2
TRANSACTION_ROLLBACK: Final = 3 << 2
BORN_HOST_V6_FLAG: Final = 1 << 4
STORE_HOST_V6_FLAG: Final = 1 << 5
_V6_FLAGS: Final = BORN_HOST_V6_FLAG | STORE_HOST_V6_FLAG
COMPRESSION_TYPE_MASK: Final = 7 << 8
COMPRESSION_LZ4: Final = 1 << 8
COMPRESSION_ZSTD: Final = 2 << 8
COMPRESSION_ZLIB: Final = 3 << 8

_INFLATE: Final = {
    0: inflate_zlib,  # from clients of versions without a choice
    COMPRESSION_LZ4: inflate_lz4,
    COMPRESSION_ZSTD: inflate_zstd,
    COMPRESSION_ZLIB: inflate_zlib,
}

# The place of the eight bytes of the physical offset, which the store fills in.
PHYSICAL_OFFSET_AT: Final = 28

# The length byte of a version 1 record is signed in Java.
MAX_TOPIC_BYTES: Final = 127

_REMEMBERED_TOPICS: Final = 4096

# A body longer than a frame could not have been sent; a compressed one may not inflate beyond it.
MAX_BODY_BYTES: Final = 16 * 1024 * 1024

# An empty record with two IPv4 hosts.
_SMALLEST_RECORD_BYTES: Final = 91

_HEAD: Final = struct.Struct(">iIiiiq")  # size, magic, body CRC, queue id, flag, queue offset
_COMMON: Final = struct.Struct(">iq4siq4siiq")  # system flag ... prepared offset, hosts IPv4
_SYSTEM_FLAG_BORN: Final = struct.Struct(">iq")
_PORT_STORED: Final = struct.Struct(">iq")
_AFTER_HOSTS: Final = struct.Struct(">iiqi")  # store port, reconsume times, prepared offset, body
_PORT_REST: Final = struct.Struct(">iiq")  # store port, reconsume times, prepared offset
_LENGTH: Final = struct.Struct(">i")
_LENGTH16: Final = struct.Struct(">h")
_OFFSET: Final = struct.Struct(">q")
_SIZE_MAGIC: Final = struct.Struct(">iI")


@dataclass(slots=True)
class MessageRecord:
    r"""One stored message.

    Attributes:
        topic: at most 127 bytes as UTF-8.
        body: as stored; compressed if the system flag says so (see `body_of`).
        properties: the run of `name \x01 value \x02`, byte for byte (see
            `remoting.message.properties`).
        queue_id: the message queue.
        flag: the user's number; no meaning to a broker.
        queue_offset: its index in the message queue.
        physical_offset: its byte position in the log.
        system_flag: compression, transaction state and host family (the constants of this module).
        born_timestamp: when the client made it, milliseconds since 1970.
        born_host: the client's numeric address.
        born_port: the client's port.
        store_timestamp: when the broker took it, milliseconds since 1970.
        store_host: the broker's numeric address; clients build the message id from it.
        store_port: the broker's port.
        reconsume_times: how often its consumption failed.
        prepared_transaction_offset: physical offset of the half message of a commit.
        body_crc: CRC-32 of the stored body without its top bit; set when read, computed when
            written, not compared.
    """

    topic: str
    body: bytes = b""
    properties: bytes = b""
    queue_id: int = 0
    flag: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    system_flag: int = 0
    born_timestamp: int = 0
    born_host: str = "127.0.0.1"
    born_port: int = 0
    store_timestamp: int = 0
    store_host: str = "127.0.0.1"
    store_port: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    body_crc: int = field(default=0, compare=False)

    def __repr__(self) -> str:
        return short_repr(self)

    def property_map(self) -> dict[str, str]:
        return decode_properties(self.properties)


def body_crc(body: bytes) -> int:
    """Return the CRC-32 of a record's body without the sign bit, as Java stores it."""
    return zlib.crc32(body) & 0x7FFFFFFF


def encode_record_parts(record: MessageRecord) -> tuple[bytes, bytes]:
    """Encode the parts of a record before and after the eight bytes of its physical offset.

    The size and the body's CRC include the offset; the store inserts it.

    Raises:
        MessageMalformed: topic or properties are too long, a host is no numeric address or of
            another family than the system flag says, or a number does not fit its field.
    """
    return encode_parts_of_all((record,))[0]


def encode_parts_of_all(records: Sequence[MessageRecord]) -> list[tuple[bytes, bytes]]:
    """Encode several records, each like `encode_record_parts`.

    The messages of a batch differ only in their bodies, properties, flags and offsets: equal parts
    of adjacent records are encoded once.
    """
    parts: list[tuple[bytes, bytes]] = []
    before: MessageRecord | None = None
    common = topic = b""
    others = 0
    try:
        for record in records:
            if before is None or not _are_alike(record, before):
                before = record
                common = _common(record)
                topic = _topic(record.topic)
                others = _HEAD.size + 8 + len(common) + 4 + len(topic) + 2
            body, properties = record.body, record.properties
            properties_length = len(properties)
            if properties_length > MAX_PROPERTIES_BYTES:
                raise _properties_too_long(properties_length)
            body_length = len(body)
            head = _HEAD.pack(
                others + body_length + properties_length,
                MESSAGE_MAGIC,
                zlib.crc32(body) & 0x7FFFFFFF,
                record.queue_id,
                record.flag,
                record.queue_offset,
            )
            length, end = _LENGTH.pack(body_length), _LENGTH16.pack(properties_length)
            parts.append((head, b"".join((common, length, body, topic, end, properties))))
    except struct.error:
        raise MessageMalformed("a number of the record does not fit its field") from None
    return parts


def encode_parts_alike(
    shared: MessageRecord,
    bodies: Sequence[bytes],
    properties: Sequence[bytes],
    flags: Sequence[int],
) -> list[tuple[bytes, bytes]]:
    """Encode records that differ only in these columns, each like `encode_record_parts`.

    Args:
        shared: the other fields; its queue offset is that of the first record, the others follow.
        bodies: of the records; at least one.
        properties: of each.
        flags: of each.

    Raises:
        MessageMalformed: as `encode_record_parts`.
    """
    lengths, ends = list(map(len, bodies)), list(map(len, properties))
    if (longest := max(ends)) > MAX_PROPERTIES_BYTES:
        raise _properties_too_long(longest)
    first = shared.queue_offset
    try:
        common, topic = _common(shared), _topic(shared.topic)
        others = _HEAD.size + 8 + len(common) + 4 + len(topic) + 2
        heads = map(
            _HEAD.pack,
            [others + length + end for length, end in zip(lengths, ends, strict=True)],
            repeat(MESSAGE_MAGIC),
            [body_sum & 0x7FFFFFFF for body_sum in map(zlib.crc32, bodies)],
            repeat(shared.queue_id),
            flags,
            range(first, first + len(bodies)),
        )
        pieces = zip(
            repeat(common),
            map(_LENGTH.pack, lengths),
            bodies,
            repeat(topic),
            map(_LENGTH16.pack, ends),
            properties,
            strict=False,
        )
        return list(zip(heads, map(b"".join, pieces), strict=True))
    except struct.error:
        raise MessageMalformed("a number of the record does not fit its field") from None


def _properties_too_long(length: int) -> MessageMalformed:
    return MessageMalformed(
        f"properties of {length} bytes: at most {MAX_PROPERTIES_BYTES} are stored"
    )


def _are_alike(one: MessageRecord, other: MessageRecord) -> bool:
    return (
        one.born_timestamp == other.born_timestamp
        and one.born_port == other.born_port
        and one.born_host == other.born_host
        and one.topic == other.topic
        and one.system_flag == other.system_flag
        and one.reconsume_times == other.reconsume_times
        and one.prepared_transaction_offset == other.prepared_transaction_offset
        and one.store_timestamp == other.store_timestamp
        and one.store_port == other.store_port
        and one.store_host == other.store_host
    )


def _common(record: MessageRecord) -> bytes:
    """Encode the fields between the physical offset and the body's length. Raises
    MessageMalformed.
    """
    born_host = packed_host(record.born_host)
    store_host = packed_host(record.store_host)
    if len(born_host) == len(store_host) == 4 and not record.system_flag & _V6_FLAGS:
        return _COMMON.pack(
            record.system_flag,
            record.born_timestamp,
            born_host,
            record.born_port,
            record.store_timestamp,
            store_host,
            record.store_port,
            record.reconsume_times,
            record.prepared_transaction_offset,
        )
    _check_family(born_host, record.system_flag & BORN_HOST_V6_FLAG, "born")
    _check_family(store_host, record.system_flag & STORE_HOST_V6_FLAG, "store")
    return b"".join(
        (
            _SYSTEM_FLAG_BORN.pack(record.system_flag, record.born_timestamp),
            born_host,
            _PORT_STORED.pack(record.born_port, record.store_timestamp),
            store_host,
            _PORT_REST.pack(
                record.store_port, record.reconsume_times, record.prepared_transaction_offset
            ),
        )
    )


@lru_cache(maxsize=_REMEMBERED_TOPICS)
def _topic(topic: str) -> bytes:
    """Encode a topic behind its length. Raises MessageMalformed."""
    encoded = topic.encode()
    if (length := len(encoded)) > MAX_TOPIC_BYTES:
        raise MessageMalformed(f"topic of {length} bytes: at most {MAX_TOPIC_BYTES} are stored")
    return bytes((length,)) + encoded


def encode_record(record: MessageRecord) -> bytes:
    """Encode a whole record, with its physical offset. Raises MessageMalformed."""
    head, tail = encode_record_parts(record)
    try:
        return b"".join((head, _OFFSET.pack(record.physical_offset), tail))
    except struct.error:
        raise MessageMalformed(f"physical offset {record.physical_offset} is not 64 bits") from None


def decode_record(buffer: bytes | bytearray | memoryview, at: int = 0) -> tuple[MessageRecord, int]:
    """Decode the record that begins at `at`; return it with the begin of the next one.

    Raises:
        MessageMalformed: no whole record is there, or its lengths contradict one another.
    """
    available = len(buffer) - at
    if available < 8:
        raise MessageMalformed(f"record cut off after {available} bytes: read it again")
    size, magic = _SIZE_MAGIC.unpack_from(buffer, at)
    if magic not in (MESSAGE_MAGIC, MESSAGE_MAGIC_V2):
        raise MessageMalformed(f"{magic:#x} is no record's magic: start where a record begins")
    if not _SMALLEST_RECORD_BYTES <= size <= available:
        raise MessageMalformed(f"record of {size} bytes where {available} are: read it again")
    end = at + size
    try:
        record, stop = _decode_fields(memoryview(buffer)[at:end], magic == MESSAGE_MAGIC_V2)
    except (struct.error, IndexError):
        raise MessageMalformed("a length of the record points past its end") from None
    if stop != size:
        raise MessageMalformed(f"record of {size} bytes has fields of {stop} bytes")
    return record, end


def decode_records(buffer: bytes | bytearray | memoryview) -> list[MessageRecord]:
    """Decode the records that fill `buffer`, such as the body of a reply to a pull.

    Raises:
        MessageMalformed: a part of it is not a whole record. Nothing is skipped silently, since the
            reader's offset would then move past messages that it has not read.
    """
    records: list[MessageRecord] = []
    at = 0
    while at < len(buffer):
        record, at = decode_record(buffer, at)
        records.append(record)
    return records


def body_of(record: MessageRecord, max_body_bytes: int = MAX_BODY_BYTES) -> bytes:
    """Return the body as the producer gave it, inflated if the system flag says so.

    Raises:
        MessageMalformed: it is not compressed so, ends early, or exceeds `max_body_bytes`.
        CompressionMissing: the library for LZ4 or ZSTD is not installed.
    """
    if not record.system_flag & COMPRESSED_FLAG:
        return record.body
    inflate = _INFLATE.get(record.system_flag & COMPRESSION_TYPE_MASK)
    if inflate is None:
        raise MessageMalformed("body is compressed in a way that RocketMQ 5.3 does not know")
    return inflate(record.body, max_body_bytes)


def _check_family(packed: bytes, is_v6: int, which: str) -> None:
    """Check that a host's length is the one that its bit in the system flag announces."""
    if len(packed) != (16 if is_v6 else 4):
        raise MessageMalformed(
            f"the {which} host's family is not the system flag's: store ipv4_host(host)"
        )


def _decode_fields(view: memoryview, is_v2: bool) -> tuple[MessageRecord, int]:
    """Decode a record that fills `view` exactly; return it with the end of its fields."""
    _size, _magic, crc, queue_id, flag, queue_offset = _HEAD.unpack_from(view)
    (physical_offset,) = _OFFSET.unpack_from(view, PHYSICAL_OFFSET_AT)
    system_flag, born_timestamp = _SYSTEM_FLAG_BORN.unpack_from(view, 36)
    at = 48
    born_host, at = _take(view, at, 16 if system_flag & BORN_HOST_V6_FLAG else 4)
    born_port, store_timestamp = _PORT_STORED.unpack_from(view, at)
    store_host, at = _take(view, at + 12, 16 if system_flag & STORE_HOST_V6_FLAG else 4)
    store_port, reconsume_times, prepared_offset, body_length = _AFTER_HOSTS.unpack_from(view, at)
    body, at = _take(view, at + _AFTER_HOSTS.size, body_length)
    if is_v2:
        (topic_length,) = _LENGTH16.unpack_from(view, at)
        topic, at = _take(view, at + 2, topic_length)
    else:
        topic, at = _take(view, at + 1, view[at])
    (properties_length,) = _LENGTH16.unpack_from(view, at)
    properties, at = _take(view, at + 2, properties_length)
    record = MessageRecord(
        topic=topic.decode("utf-8", "replace"),
        body=body,
        properties=properties,
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        system_flag=system_flag,
        born_timestamp=born_timestamp,
        born_host=unpacked_host(born_host),
        born_port=born_port,
        store_timestamp=store_timestamp,
        store_host=unpacked_host(store_host),
        store_port=store_port,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_offset,
        body_crc=crc,
    )
    return record, at


def _take(view: memoryview, at: int, length: int) -> tuple[bytes, int]:
    end = at + length
    if length < 0 or end > len(view):
        raise IndexError
    return view[at:end].tobytes(), end
