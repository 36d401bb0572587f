"""The body by which a broker registers with a name server (request 103)."""

import struct
import zlib
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from json.encoder import encode_basestring_ascii
from typing import Annotated, Final, TypeAlias

import msgspec

from remoting.bodies.json_object import JsonObject
from remoting.bodies.pieces import last_of, pieces
from remoting.bodies.topic_config import (
    MAX_TABLE_TOPICS,
    DataVersion,
    TopicConfig,
    read_topic_config_table,
)
from remoting.wire.errors import BodyMalformed
from remoting.wire.field_values import INT64_MAX, INT64_MIN, read_int64
from remoting.wire.loose_json import SMALL, compact_json, parse_json

_NAME: Final = "register broker"

# A compressed body may not inflate beyond the limit of an uncompressed one.
MAX_INFLATED_BYTES: Final = 16 * 1024 * 1024

# Our own field of request 103: "true" means that the body lists every topic of the broker, so that
# the name server may forget the others. RocketMQ's brokers may send a single changed topic, and its
# name servers ignore the field.
COMPLETE_FIELD: Final = "completeTopics"

# The parts of a compressed body: a topic has a few attributes, a version has three numbers.
MAX_ATTRIBUTES_BYTES: Final = 16 * 1024
MAX_VERSION_BYTES: Final = 4096
MAX_FILTER_SERVERS_BYTES: Final = 64 * 1024

# Objects of a registration besides topics and their attributes. Brokers of version 5 list static
# topics, if they have any.
_OTHER_OBJECTS: Final = 1000

_TOPICS_A_STEP: Final = 128
_LINES_A_STEP: Final = 64
_INFLATED_A_STEP: Final = 256 * 1024

_LENGTH: Final = struct.Struct(">i")


@dataclass(slots=True)
class BrokerRegistration:
    """The topics of a broker.

    Attributes:
        topics: by name.
        data_version: of the topics.
        filter_servers: addresses of class filter servers; obsolete, passed on.
    """

    topics: Mapping[str, TopicConfig]
    data_version: DataVersion
    filter_servers: list[str] = field(default_factory=list)


def encode_registration(registration: BrokerRegistration) -> bytes:
    """Encode it, uncompressed. 20 000 topics take about 25 ms of one core."""
    return last_of(encode_registration_in_steps(registration))


def encode_registration_in_steps(
    registration: BrokerRegistration,
) -> Generator[None, None, bytes]:
    """Encode it in steps of less than a millisecond; the last one takes a few."""
    quote = encode_basestring_ascii
    rows: list[str] = []
    for piece in pieces(registration.topics.items(), _TOPICS_A_STEP):
        rows += [f"{quote(name)}:{config.to_text()}" for name, config in piece]
        yield
    topics = ",".join(rows)
    version = compact_json(registration.data_version.to_json())
    servers = compact_json(registration.filter_servers)
    text = (
        f'{{"filterServerList":{servers},"topicConfigSerializeWrapper":'
        f'{{"dataVersion":{version},"topicConfigTable":{{{topics}}}}}}}'
    )
    return text.encode("ascii")


def registration_crc(body: bytes) -> int:
    """Return the `bodyCrc32` field: the CRC-32 of the body as sent, without its top bit."""
    return zlib.crc32(body) & 0x7FFFFFFF


def decode_registration(body: bytes, *, compressed: bool = False) -> BrokerRegistration:
    """Decode a registration.

    Args:
        body: the received bytes; empty means no topics, as from brokers before 3.0.11.
        compressed: the value of the field `compressed`.

    Raises:
        BodyMalformed: it cannot be read, or inflates to more than 16 MiB.
    """
    return last_of(decode_registration_in_steps(body, compressed=compressed))


def decode_registration_in_steps(
    body: bytes, *, compressed: bool = False
) -> Generator[None, None, BrokerRegistration]:
    """Decode a registration in steps of less than a millisecond. Raises BodyMalformed.

    Some steps take more: 50 000 topics of 400 bytes are counted in 12 ms, and found in 20 ms. A
    body that differs from those of brokers is decoded at once, up to the size of other bodies.
    """
    if not body:
        return BrokerRegistration({}, DataVersion())
    if compressed:
        inflated = yield from _inflate(body)
        return (yield from _decode_compressed(inflated))
    _check_count(body)
    yield
    try:
        return (yield from _decode_plain(body))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        value = JsonObject.parse(_NAME, body)
        topics, data_version = read_topic_config_table(value.object("topicConfigSerializeWrapper"))
        return BrokerRegistration(topics, data_version, value.texts("filterServerList"))


# --- uncompressed, as brokers write it ------------------------------------------------------------

_Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=INT64_MIN, le=INT64_MAX)]


class _Topic(msgspec.Struct, gc=False):
    topicName: str  # noqa: N815  # the name in the body, here and below
    topicFilterType: str  # noqa: N815
    order: bool
    readQueueNums: _Int64  # noqa: N815
    writeQueueNums: _Int64  # noqa: N815
    perm: _Int64
    topicSysFlag: _Int64  # noqa: N815
    attributes: dict[str, str] | None = None


class _Version(msgspec.Struct, gc=False):
    counter: _Int64
    timestamp: _Int64
    stateVersion: _Int64 = 0  # noqa: N815


class _Table(msgspec.Struct, gc=False):
    topicConfigTable: dict[str, msgspec.Raw]  # noqa: N815
    dataVersion: _Version  # noqa: N815


class _Body(msgspec.Struct, gc=False):
    topicConfigSerializeWrapper: _Table  # noqa: N815
    filterServerList: list[str]  # noqa: N815


_read: Final = msgspec.json.Decoder(_Body).decode
_read_topic: Final = msgspec.json.Decoder(_Topic).decode


def _check_count(body: bytes) -> None:
    """Raise BodyMalformed if there are too many topics: each is one or two objects."""
    if body.count(b"{") > 2 * MAX_TABLE_TOPICS + _OTHER_OBJECTS:
        raise _too_many()


def _decode_plain(body: bytes) -> Generator[None, None, BrokerRegistration]:
    """Decode a body in which every member is present with its own type.

    It takes a fifth of the time of the general decoder, for tables of thousands of topics. The
    topics are found at once, and read in steps.

    Raises:
        BodyMalformed: it has too many topics.
        msgspec.MsgspecError, UnicodeDecodeError, RecursionError: it is another body.
    """
    found = _read(body)
    yield
    wrapper = found.topicConfigSerializeWrapper
    if len(wrapper.topicConfigTable) > MAX_TABLE_TOPICS:
        raise _too_many()
    topics: dict[str, TopicConfig] = {}
    for piece in pieces(wrapper.topicConfigTable.items(), _TOPICS_A_STEP):
        topics.update([(name, _config(_read_topic(topic))) for name, topic in piece])
        yield
    version = wrapper.dataVersion
    data_version = DataVersion(version.counter, version.timestamp, version.stateVersion)
    return BrokerRegistration(topics, data_version, found.filterServerList)


def _config(topic: _Topic) -> TopicConfig:
    return TopicConfig(
        topic.topicName,
        topic.readQueueNums,
        topic.writeQueueNums,
        topic.perm,
        topic.topicFilterType,
        topic.topicSysFlag,
        topic.order,
        topic.attributes or {},
    )


def _too_many() -> BodyMalformed:
    return BodyMalformed(_NAME, f"too many topics, at most {MAX_TABLE_TOPICS} are read")


# --- compressed -----------------------------------------------------------------------------------


def _inflate(body: bytes) -> Generator[None, None, bytes]:
    inflater = zlib.decompressobj()
    parts: list[bytes] = []
    size = 0
    left = body
    while not inflater.eof:
        try:
            parts.append(inflater.decompress(left, _INFLATED_A_STEP))
        except zlib.error as error:
            raise BodyMalformed(_NAME, f"not zlib ({error})") from None
        size += len(parts[-1])
        if size > MAX_INFLATED_BYTES:
            raise BodyMalformed(_NAME, f"inflates to more than {MAX_INFLATED_BYTES} bytes")
        left = inflater.unconsumed_tail
        if not left and not parts[-1] and not inflater.eof:
            raise BodyMalformed(_NAME, "compressed data ends early")
        yield
    return b"".join(parts)


def _decode_compressed(data: bytes) -> Generator[None, None, BrokerRegistration]:
    """Decode the inflated form: length-prefixed JSON and one line a topic."""
    try:
        version_json, at = _chunk(data, 0)
        (count,) = _LENGTH.unpack_from(data, at)
        at += 4
        if not 0 <= count <= MAX_TABLE_TOPICS:
            raise BodyMalformed(_NAME, f"{count} topics, 0 to {MAX_TABLE_TOPICS} are read")
        topics: dict[str, TopicConfig] = {}
        for number in range(count):
            line, at = _chunk(data, at)
            config = _topic_of_line(line.decode("utf-8", "replace"))
            if config.topic in topics:
                raise BodyMalformed(_NAME, f"topic {config.topic:.127} is listed twice")
            topics[config.topic] = config
            if number % _LINES_A_STEP == 0:
                yield
        servers_json, at = _chunk(data, at)
    except struct.error:
        raise BodyMalformed(_NAME, "ends early") from None
    # The rest are topic mappings of version 5 brokers, which route no client here.
    servers = parse_json(_NAME, servers_json, MAX_FILTER_SERVERS_BYTES, SMALL)
    names = [name for name in servers if isinstance(name, str)] if isinstance(servers, list) else []
    version = JsonObject.parse(_NAME, version_json, MAX_VERSION_BYTES)
    return BrokerRegistration(topics, DataVersion.from_json(version), names)


def _chunk(data: bytes, at: int) -> tuple[bytes, int]:
    """Return the bytes behind a 32-bit length, and their end."""
    (length,) = _LENGTH.unpack_from(data, at)
    end = at + 4 + length
    if length < 0 or end > len(data):
        raise BodyMalformed(_NAME, "a length points past its end")
    return data[at + 4 : end], end


def _topic_of_line(line: str) -> TopicConfig:
    """Decode a topic in the form "name read write permission filter [attributes]"."""
    parts = line.split(" ", 5)
    if len(parts) < 5:
        raise BodyMalformed(_NAME, f"topic {line!r:.60} has fewer than five parts")
    attributes: dict[str, str] = {}
    if len(parts) == 6 and parts[5].strip():
        text = parts[5].encode()
        attributes = JsonObject.parse(_NAME, text, MAX_ATTRIBUTES_BYTES).named_texts()
    read, write, permission = map(read_int64, parts[1:4])
    if read is None or write is None or permission is None:
        raise BodyMalformed(_NAME, f"topic {line!r:.60} has no numbers of 64 bits")
    return TopicConfig(parts[0], read, write, permission, parts[4], attributes=attributes)
