"""The heartbeat that a client sends to every broker every 30 seconds (request 34).

Java, Go and JavaScript clients write enumerations by name, the C++ client by number. The C++ client
omits empty members, and the hashes it sends for its tags are wrong, so no broker may filter by
them. Source: RocketMQ's HeartbeatData and frames of these clients.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, TypeVar

from remoting.bodies.json_object import JsonObject
from remoting.wire.errors import BodyMalformed
from remoting.wire.loose_json import JsonValue, compact_json

_NAME: Final = "heartbeat"

# The longest heartbeat: about 2500 subscriptions of 200 bytes, many times more than clients have.
# The broker reads one from each client every 30 s, and the longest takes less than 100 ms.
MAX_HEARTBEAT_BYTES: Final = 512 * 1024

# The most groups that a client produces for, and those that it consumes for. A broker looks up the
# members of each.
MAX_HEARTBEAT_GROUPS: Final = 1000

# The producer group of all proxies of this project. No topic has such a name, so no transaction is
# ever asked about in it.
PROXIES_GROUP: Final = "rmq_sys_proxies"

# Python's memory for a consumer, for a subscription and for a tag or a hash, besides their texts.
_MEMBER_BYTES: Final = 1024
_SUBSCRIPTION_BYTES: Final = 512
_ITEM_BYTES: Final = 64

# The most subscriptions of all groups of a heartbeat.
MAX_HEARTBEAT_SUBSCRIPTIONS: Final = 10_000


class ConsumeType(IntEnum):
    CONSUME_ACTIVELY = 0
    CONSUME_PASSIVELY = 1
    CONSUME_POP = 2


class MessageModel(IntEnum):
    """Whether each consumer of a group gets every message, or they share them."""

    BROADCASTING = 0
    CLUSTERING = 1


class ConsumeFromWhere(IntEnum):
    CONSUME_FROM_LAST_OFFSET = 0
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = 1
    CONSUME_FROM_MIN_OFFSET = 2
    CONSUME_FROM_MAX_OFFSET = 3
    CONSUME_FROM_FIRST_OFFSET = 4
    CONSUME_FROM_TIMESTAMP = 5


Choice = TypeVar("Choice", ConsumeType, MessageModel, ConsumeFromWhere)


def _by_text(kind: type[Choice]) -> dict[str, Choice]:
    return {text: choice for choice in kind for text in (choice.name, str(choice.value))}


# Looked up instead of searched: a heartbeat may have 1000 groups.
_CONSUME_TYPES: Final = _by_text(ConsumeType)
_MESSAGE_MODELS: Final = _by_text(MessageModel)
_CONSUME_FROM_WHERE: Final = _by_text(ConsumeFromWhere)


@dataclass(slots=True)
class SubscriptionData:
    """A topic a group subscribes to.

    Attributes:
        topic: its name.
        expression: "*", "A || B", or an SQL92 condition.
        expression_type: "TAG" or "SQL92".
        version: grows when the subscription changes; milliseconds or nanoseconds since 1970, or 0.
        tags: the tags of the expression, as the client split them.
        codes: their hashes as the client computed them; not to be trusted.
        class_filter_mode: obsolete.
    """

    topic: str
    expression: str = "*"
    expression_type: str = "TAG"
    version: int = 0
    tags: list[str] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    class_filter_mode: bool = False

    def to_json(self) -> dict[str, JsonValue]:
        return {
            "classFilterMode": self.class_filter_mode,
            "codeSet": list[JsonValue](self.codes),
            "expressionType": self.expression_type,
            "subString": self.expression,
            "subVersion": self.version,
            "tagsSet": list[JsonValue](self.tags),
            "topic": self.topic,
        }

    @property
    def size(self) -> int:
        """Roughly the bytes of memory that it takes."""
        texts = len(self.topic) + len(self.expression) + sum(map(len, self.tags))
        return _SUBSCRIPTION_BYTES + texts + _ITEM_BYTES * (len(self.tags) + len(self.codes))

    @classmethod
    def from_json(cls, value: JsonObject) -> "SubscriptionData":
        """Decode it; an absent expression means all messages. Raises BodyMalformed."""
        return cls(
            value.name("topic"),
            value.text("subString", "*"),
            value.name("expressionType", "TAG") or "TAG",
            value.integer("subVersion", 0),
            value.texts("tagsSet"),
            [code for code in value.array("codeSet") if isinstance(code, int)],
            value.boolean("classFilterMode"),
        )


@dataclass(slots=True)
class ConsumerData:
    """A consumer group this client is a member of.

    Attributes:
        group: its name.
        consume_type: how this client asks for messages.
        message_model: sharing or broadcasting.
        consume_from_where: where a group without an offset begins.
        subscriptions: its topics.
        unit_mode: passed on.
    """

    group: str
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    subscriptions: list[SubscriptionData] = field(default_factory=list)
    unit_mode: bool = False

    @property
    def size(self) -> int:
        """Roughly the bytes of memory that it takes."""
        return _MEMBER_BYTES + sum([one.size for one in self.subscriptions])


@dataclass(slots=True)
class Heartbeat:
    """A client's groups.

    Attributes:
        client_id: the client's name; unique among the members of a group.
        producer_groups: groups it sends for.
        consumers: groups it consumes for.
        fingerprint: hash of its subscriptions (version 5), or 0.
        without_subscriptions: the subscriptions were left out because the broker has seen the
            fingerprint (version 5).
    """

    client_id: str
    producer_groups: list[str] = field(default_factory=list)
    consumers: list[ConsumerData] = field(default_factory=list)
    fingerprint: int = 0
    without_subscriptions: bool = False


def encode_heartbeat(heartbeat: Heartbeat) -> bytes:
    """Encode a heartbeat as the Java client does."""
    consumers = [
        {
            "consumeFromWhere": consumer.consume_from_where.name,
            "consumeType": consumer.consume_type.name,
            "groupName": consumer.group,
            "messageModel": consumer.message_model.name,
            "subscriptionDataSet": [item.to_json() for item in consumer.subscriptions],
            "unitMode": consumer.unit_mode,
        }
        for consumer in heartbeat.consumers
    ]
    return compact_json(
        {
            "clientID": heartbeat.client_id,
            "consumerDataSet": consumers,
            "heartbeatFingerprint": heartbeat.fingerprint,
            "producerDataSet": [{"groupName": group} for group in heartbeat.producer_groups],
            "withoutSub": heartbeat.without_subscriptions,
        }
    ).encode()


def decode_heartbeat(body: bytes) -> Heartbeat:
    """Decode a heartbeat of any client.

    An unknown name or number of an enumeration becomes the default, so that newer clients are
    served.

    Raises:
        BodyMalformed: it is no heartbeat, a name is missing, or it is too long.
    """
    value = JsonObject.parse(_NAME, body, MAX_HEARTBEAT_BYTES)
    producers = value.objects("producerDataSet", MAX_HEARTBEAT_GROUPS)
    consumers = value.objects("consumerDataSet", MAX_HEARTBEAT_GROUPS)
    subscriptions = sum(len(consumer.array("subscriptionDataSet")) for consumer in consumers)
    if subscriptions > MAX_HEARTBEAT_SUBSCRIPTIONS:
        raise BodyMalformed(
            _NAME, f"{subscriptions} subscriptions, at most {MAX_HEARTBEAT_SUBSCRIPTIONS} are read"
        )
    return Heartbeat(
        value.name("clientID"),
        [producer.name("groupName") for producer in producers],
        [_consumer(consumer) for consumer in consumers],
        value.integer("heartbeatFingerprint", 0),
        value.boolean("withoutSub"),
    )


def _consumer(value: JsonObject) -> ConsumerData:
    text = value.text
    return ConsumerData(
        value.name("groupName"),
        _CONSUME_TYPES.get(text("consumeType", ""), ConsumeType.CONSUME_PASSIVELY),
        _MESSAGE_MODELS.get(text("messageModel", ""), MessageModel.CLUSTERING),
        _CONSUME_FROM_WHERE.get(
            text("consumeFromWhere", ""), ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        ),
        [SubscriptionData.from_json(item) for item in value.objects("subscriptionDataSet")],
        value.boolean("unitMode"),
    )
