"""The body by which a broker registers with a name server (request 103)."""

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from json.encoder import encode_basestring_ascii
from typing import Final

from remoting.bodies.json_object import JsonObject
from remoting.bodies.topic_config import (
    MAX_TABLE_TOPICS,
    DataVersion,
    TopicConfig,
    read_topic_config_table,
)
from remoting.wire.errors import BodyMalformed
from remoting.wire.field_values import read_int64
from remoting.wire.loose_json import LARGE, SMALL, compact_json, parse_json

_NAME: Final = "register broker"

# A compressed body may not grow beyond what it could have been sent as uncompressed.
MAX_INFLATED_BYTES: Final = 16 * 1024 * 1024

# Our own field of request 103: "true" says that the body lists every topic of the broker, so that
# the name server may forget the others. RocketMQ's brokers may send a single changed topic, and its
# name servers know no such field.
COMPLETE_FIELD: Final = "completeTopics"

_LENGTH: Final = struct.Struct(">i")


@dataclass(slots=True)
class BrokerRegistration:
    """What a broker serves.

    Attributes:
        topics: by name.
        data_version: of the topics.
        filter_servers: addresses of class filter servers; a thing of the past, passed on.
    """

    topics: Mapping[str, TopicConfig]
    data_version: DataVersion
    filter_servers: list[str] = field(default_factory=list)


def encode_registration(registration: BrokerRegistration) -> bytes:
    """The body, uncompressed. 20 000 topics take about 25 ms of one core."""
    quote = encode_basestring_ascii
    topics = ",".join(
        [f"{quote(name)}:{config.to_text()}" for name, config in registration.topics.items()]
    )
    version = compact_json(registration.data_version.to_json())
    servers = compact_json(registration.filter_servers)
    text = (
        f'{{"filterServerList":{servers},"topicConfigSerializeWrapper":'
        f'{{"dataVersion":{version},"topicConfigTable":{{{topics}}}}}}}'
    )
    return text.encode("ascii")


def registration_crc(body: bytes) -> int:
    """The `bodyCrc32` field of a registration: CRC-32 of the body as sent, without its top bit."""
    return zlib.crc32(body) & 0x7FFFFFFF


def decode_registration(body: bytes, *, compressed: bool = False) -> BrokerRegistration:
    """Read the body of a registration.

    Args:
        body: as it came; empty means no topics, as from brokers before 3.0.11.
        compressed: what the field `compressed` says.

    Raises:
        BodyMalformed: it cannot be read, or inflates to more than 16 MiB.
    """
    if not body:
        return BrokerRegistration({}, DataVersion())
    if compressed:
        return _decode_compressed(_inflate(body))
    value = JsonObject.parse(_NAME, body, size=LARGE)
    topics, data_version = read_topic_config_table(value.object("topicConfigSerializeWrapper"))
    return BrokerRegistration(topics, data_version, value.texts("filterServerList"))


def _inflate(body: bytes) -> bytes:
    """Inflate with a bound on the result."""
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(body, MAX_INFLATED_BYTES + 1)
    except zlib.error as error:
        raise BodyMalformed(_NAME, f"not zlib ({error})") from None
    if len(data) > MAX_INFLATED_BYTES:
        raise BodyMalformed(_NAME, f"inflates to more than {MAX_INFLATED_BYTES} bytes")
    if not inflater.eof:
        raise BodyMalformed(_NAME, "compressed data ends early")
    return data


def _decode_compressed(data: bytes) -> BrokerRegistration:
    """The binary form inside a compressed body: length-prefixed JSON and one line a topic."""
    try:
        version_json, at = _chunk(data, 0)
        (count,) = _LENGTH.unpack_from(data, at)
        at += 4
        if not 0 <= count <= MAX_TABLE_TOPICS:
            raise BodyMalformed(_NAME, f"{count} topics, 0 to {MAX_TABLE_TOPICS} are read")
        topics: dict[str, TopicConfig] = {}
        for _ in range(count):
            line, at = _chunk(data, at)
            config = _topic_of_line(line.decode("utf-8", "replace"))
            topics[config.topic] = config
        servers_json, at = _chunk(data, at)
    except struct.error:
        raise BodyMalformed(_NAME, "ends early") from None
    # What follows are topic mappings of version 5 brokers, which route no client here.
    servers = parse_json(_NAME, servers_json, size=SMALL)
    names = [name for name in servers if isinstance(name, str)] if isinstance(servers, list) else []
    return BrokerRegistration(
        topics, DataVersion.from_json(JsonObject.parse(_NAME, version_json)), names
    )


def _chunk(data: bytes, at: int) -> tuple[bytes, int]:
    """The bytes behind a 32-bit length, and where they end."""
    (length,) = _LENGTH.unpack_from(data, at)
    end = at + 4 + length
    if length < 0 or end > len(data):
        raise BodyMalformed(_NAME, "a length points past its end")
    return data[at + 4 : end], end


def _topic_of_line(line: str) -> TopicConfig:
    """A topic as "name read write permission filter [attributes]"."""
    parts = line.split(" ", 5)
    if len(parts) < 5:
        raise BodyMalformed(_NAME, f"topic {line!r:.60} has fewer than five parts")
    attributes: dict[str, str] = {}
    if len(parts) == 6 and parts[5].strip():
        attributes = JsonObject.parse(_NAME, parts[5].encode()).named_texts()
    read, write, permission = map(read_int64, parts[1:4])
    if read is None or write is None or permission is None:
        raise BodyMalformed(_NAME, f"topic {line!r:.60} has no numbers of 64 bits")
    return TopicConfig(parts[0], read, write, permission, parts[4], attributes=attributes)
