"""A topic's configuration as brokers send it to name servers and tools."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from json.encoder import encode_basestring_ascii
from typing import Final

from remoting.bodies.json_object import JsonObject
from remoting.wire.errors import BodyMalformed
from remoting.wire.field_values import INT64_MAX, INT64_MIN
from remoting.wire.loose_json import JsonValue

# The most topics of one table. Our brokers have at most 20 000; a name server takes about a quarter
# of a second to read this many.
MAX_TABLE_TOPICS: Final = 50_000

# Bits of a permission.
PERMISSION_INHERIT: Final = 1
PERMISSION_WRITE: Final = 2
PERMISSION_READ: Final = 4
PERMISSION_READ_WRITE: Final = PERMISSION_READ | PERMISSION_WRITE


@dataclass(frozen=True, slots=True)
class DataVersion:
    """Shows a name server whether a broker's topics changed since it last registered them.

    Attributes:
        counter: grows by one with each change.
        timestamp: when it changed, milliseconds since 1970.
        state_version: a broker's own number; 0 before version 5.
    """

    counter: int = 0
    timestamp: int = 0
    state_version: int = 0

    def to_json(self) -> dict[str, JsonValue]:
        return {
            "counter": self.counter,
            "stateVersion": self.state_version,
            "timestamp": self.timestamp,
        }

    @classmethod
    def from_json(cls, value: JsonObject) -> "DataVersion":
        """Decode it; absent members are 0. Raises BodyMalformed."""
        return cls(
            value.integer("counter", 0),
            value.integer("timestamp", 0),
            value.integer("stateVersion", 0),
        )


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic on one broker. Defaults are RocketMQ's.

    Attributes:
        topic: its name.
        read_queue_count: queues consumers see.
        write_queue_count: queues producers see.
        permission: bits of 4 read, 2 write, 1 inherit (a template for new topics).
        topic_filter_type: "SINGLE_TAG"; nothing else is in use.
        topic_system_flag: 1 unit, 2 unit subscription.
        order: whether queues are fixed by an order configuration.
        attributes: further settings of version 5.
    """

    topic: str
    read_queue_count: int = 16
    write_queue_count: int = 16
    permission: int = PERMISSION_READ_WRITE
    topic_filter_type: str = "SINGLE_TAG"
    topic_system_flag: int = 0
    order: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, JsonValue]:
        return {
            "attributes": dict(self.attributes),
            "order": self.order,
            "perm": self.permission,
            "readQueueNums": self.read_queue_count,
            "topicFilterType": self.topic_filter_type,
            "topicName": self.topic,
            "topicSysFlag": self.topic_system_flag,
            "writeQueueNums": self.write_queue_count,
        }

    def to_text(self) -> str:
        """Return `to_json` as text, five times as fast: a registration has one for each topic."""
        attributes = json.dumps(dict(self.attributes)) if self.attributes else "{}"
        quote = encode_basestring_ascii
        return (
            f'{{"attributes":{attributes},"order":{"true" if self.order else "false"},'
            f'"perm":{self.permission:d},"readQueueNums":{self.read_queue_count:d},'
            f'"topicFilterType":{quote(self.topic_filter_type)},"topicName":{quote(self.topic)},'
            f'"topicSysFlag":{self.topic_system_flag:d},"writeQueueNums":{self.write_queue_count:d}}}'
        )

    @classmethod
    def from_json(cls, value: JsonObject, topic: str | None = None) -> "TopicConfig":
        """Decode it. Raises BodyMalformed.

        `topic` is the name under which an object without its own name is listed.
        """
        return cls(
            value.text("topicName", topic),
            value.integer("readQueueNums", 16),
            value.integer("writeQueueNums", 16),
            value.integer("perm", PERMISSION_READ_WRITE),
            value.text("topicFilterType", "SINGLE_TAG"),
            value.integer("topicSysFlag", 0),
            value.boolean("order"),
            value.object("attributes").named_texts(),
        )


def read_topic_config_table(value: JsonObject) -> tuple[dict[str, TopicConfig], DataVersion]:
    """Decode a TopicConfigSerializeWrapper of any version of RocketMQ (21, and in 103).

    Raises:
        BodyMalformed: a member is of a wrong type, or there are too many topics.
    """
    members = value.object("topicConfigTable").members
    if len(members) > MAX_TABLE_TOPICS:
        raise BodyMalformed(
            value.body_name, f"{len(members)} topics, at most {MAX_TABLE_TOPICS} are read"
        )
    body_name = value.body_name
    topics = {
        name: _plain(config) or TopicConfig.from_json(JsonObject(body_name, config), name)
        for name, config in members.items()
        if config is not None
    }
    return topics, DataVersion.from_json(value.object("dataVersion"))


def _plain(value: JsonValue) -> TopicConfig | None:
    """Decode a topic in which every member is present with its own type, as brokers write it; else
    return None.

    Much faster than `TopicConfig.from_json`, for tables of thousands of topics.
    """
    if not isinstance(value, dict):
        return None
    get = value.get
    topic, kind, order = get("topicName"), get("topicFilterType"), get("order")
    read, write = get("readQueueNums"), get("writeQueueNums")
    permission, flag = get("perm"), get("topicSysFlag")
    if (
        type(topic) is str
        and type(kind) is str
        and type(order) is bool
        and type(read) is int
        and type(write) is int
        and type(permission) is int
        and type(flag) is int
        and get("attributes") in (None, {})
        and min(read, write, permission, flag) >= INT64_MIN
        and max(read, write, permission, flag) <= INT64_MAX
    ):
        return TopicConfig(topic, read, write, permission, kind, flag, order)
    return None
