"""A consumer group's configuration: RocketMQ's SubscriptionGroupConfig."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final

from broker.errors import RequestRefused
from broker.log.command_layout import number, text
from broker.topics.attributes import (
    ANY_COUNT,
    BOOLEAN,
    LITE_BIND_TOPIC,
    Range,
    TopicName,
    Values,
    Words,
    check_attributes,
)
from broker.topics.names import check_group_name
from remoting.bodies.json_object import JsonObject
from remoting.wire.command import Command
from remoting.wire.errors import BodyMalformed
from remoting.wire.field_values import read_int64, read_natural
from remoting.wire.loose_json import JsonValue, compact_json, parse_json

# Of values that are stored for tools as JSON. RocketMQ's default policy has 150 characters.
MAX_KEPT_CHARACTERS: Final = 4096

# Of arrays and objects within each other. RocketMQ's have three.
MAX_KEPT_LEVELS: Final = 16

# More deliveries would be forever.
_MAX_RETRY_TIMES: Final = 1_000_000
_MAX_INT32: Final = (1 << 31) - 1

PRIORITY_FACTOR: Final = "priority.factor"
DEFAULT_PRIORITY_FACTOR: Final = 100
LITE_MODEL: Final = "lite.sub.model"
LITE_QUOTA: Final = "lite.sub.client.quota"
LITE_RESET_EXCLUSIVE: Final = "lite.sub.reset.offset.exclusive"
LITE_RESET_UNSUBSCRIBE: Final = "lite.sub.reset.offset.unsubscribe"
LITE_WILDCARD: Final = "lite.sub.wildcard"

# Of one client; RocketMQ's value.
DEFAULT_LITE_QUOTA: Final = 2_000

# RocketMQ's attributes of groups.
GROUP_ATTRIBUTES: Final[Mapping[str, Values]] = {
    PRIORITY_FACTOR: Range(0, 100),
    LITE_BIND_TOPIC: TopicName(),
    LITE_MODEL: Words(("Shared", "Exclusive")),
    LITE_QUOTA: Range(-1, ANY_COUNT),
    "lite.sub.client.max.event.cnt": Range(10, ANY_COUNT),
    LITE_RESET_EXCLUSIVE: BOOLEAN,
    LITE_RESET_UNSUBSCRIBE: BOOLEAN,
    LITE_WILDCARD: Words(("true",), "without the attribute a group has it off"),
}

# Fields that versions 4 and 8 of the log have added, with their defaults.
_ADDED: Final[dict[str, object]] = {
    "broker_id": 0,
    "slow_broker_id": 1,
    "system_flag": 0,
    "retry_policy": "",
    "subscriptions": "",
    "attributes": {},
}

# RocketMQ's number of deliveries before a message goes to the dead letter topic.
DEFAULT_RETRY_MAX_TIMES: Final = 16

# From this version on, clients say how often a message may fail; RocketMQ 3.4.9.
_VERSION_WITH_MAX_TIMES: Final = 121


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """One consumer group. Defaults are RocketMQ's. Fields that are not described are stored for
    tools.

    Attributes:
        consume_enable: whether its pulls are answered.
        consume_broadcast_enable: whether each member may consume all messages.
        retry_queue_count: queues of its retry topic; 0 drops failed messages.
        retry_max_times: deliveries before a message goes to the dead letter topic.
        notify_change: whether members are told at once when others come and go.
        retry_policy: a JSON object, which RocketMQ's proxy uses.
        subscriptions: a JSON array.
        attributes: RocketMQ 5's further settings, by name: see `GROUP_ATTRIBUTES`.
    """

    group: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_count: int = 1
    retry_max_times: int = DEFAULT_RETRY_MAX_TIMES
    notify_change: bool = True
    consume_timeout_minutes: int = 15
    broker_id: int = 0
    slow_broker_id: int = 1
    system_flag: int = 0
    retry_policy: str = ""
    subscriptions: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def lite_parent(self) -> str | None:
        """The topic whose lite topics it reads."""
        return self.attributes.get(LITE_BIND_TOPIC)

    @property
    def is_lite_exclusive(self) -> bool:
        """Whether the newest subscriber of a lite topic is the only one."""
        return self.attributes.get(LITE_MODEL) == "Exclusive"

    @property
    def is_lite_wildcard(self) -> bool:
        """Whether each of its clients reads all lite topics."""
        return LITE_WILDCARD in self.attributes

    @property
    def lite_quota(self) -> int:
        """How many lite topics a client may subscribe to."""
        quota = read_int64(self.attributes.get(LITE_QUOTA, ""))
        if quota is None:
            return DEFAULT_LITE_QUOTA
        return quota if quota >= 0 else ANY_COUNT

    def lite_resets(self, name: str) -> bool:
        """Return whether an attribute that has offsets reset is set."""
        return self.attributes.get(name) == "true"

    @property
    def priority_factor(self) -> int:
        """How many pops of a hundred begin with the queue of the highest priority."""
        factor = read_natural(self.attributes.get(PRIORITY_FACTOR, ""))
        return DEFAULT_PRIORITY_FACTOR if factor is None else factor

    def to_text(self) -> str:
        """Return it as RocketMQ's JSON. Kept values stand in it as they are: to parse those of many
        groups takes long.
        """
        found: dict[str, JsonValue] = {
            "attributes": dict[str, JsonValue](self.attributes),
            "brokerId": self.broker_id,
            "consumeBroadcastEnable": self.consume_broadcast_enable,
            "consumeEnable": self.consume_enable,
            "consumeFromMinEnable": self.consume_from_min_enable,
            "consumeMessageOrderly": self.consume_message_orderly,
            "consumeTimeoutMinute": self.consume_timeout_minutes,
            "groupName": self.group,
            "groupSysFlag": self.system_flag,
            "notifyConsumerIdsChangedEnable": self.notify_change,
            "retryMaxTimes": self.retry_max_times,
            "retryQueueNums": self.retry_queue_count,
            "whichBrokerWhenConsumeSlowly": self.slow_broker_id,
        }
        members = compact_json(found)[1:-1]
        for name, kept in (
            ("groupRetryPolicy", self.retry_policy),
            ("subscriptionDataSet", self.subscriptions),
        ):
            if kept:
                members += f',"{name}":{kept}'
        return f"{{{members}}}"

    @classmethod
    def from_json(cls, value: JsonObject) -> "ConsumerGroup":
        """Read it without its attributes; absent members have RocketMQ's defaults.

        Raises BodyMalformed: the name is missing or a member is of a wrong type; RequestRefused
        (29): a value is not kept.
        """
        return cls(
            value.name("groupName"),
            value.boolean("consumeEnable", True),
            value.boolean("consumeFromMinEnable", True),
            value.boolean("consumeBroadcastEnable", True),
            value.boolean("consumeMessageOrderly"),
            value.int32("retryQueueNums", 1),
            value.int32("retryMaxTimes", DEFAULT_RETRY_MAX_TIMES),
            value.boolean("notifyConsumerIdsChangedEnable", True),
            value.int32("consumeTimeoutMinute", 15),
            value.integer("brokerId", 0),
            value.integer("whichBrokerWhenConsumeSlowly", 1),
            value.int32("groupSysFlag", 0),
            _kept(value.object("groupRetryPolicy").members),
            _kept(value.array("subscriptionDataSet")),
        )

    @property
    def is_plain(self) -> bool:
        return all(getattr(self, name) == default for name, default in _ADDED.items())

    def as_dict(self) -> dict[str, object]:
        """Return plain values for the log, without added fields that have their defaults."""
        members: dict[str, object] = {name: getattr(self, name) for name in self.__slots__}
        for name, default in _ADDED.items():
            if members[name] == default:
                del members[name]
        return members


def read_group(members: dict[str, Any]) -> ConsumerGroup:
    """Read a group's `as_dict`. Raises ValueError, TypeError, KeyError."""
    text(members["group"])
    # Members that a later version adds are refused here: they come with a new format version.
    for name, value in members.items():
        if name in ("retry_policy", "subscriptions"):
            _check_kept(text(value))
        elif name == "attributes":
            for word in (*value.keys(), *value.values()):
                text(word)
        elif name != "group":
            number(value)
    return ConsumerGroup(**members)


def check_group_config(config: ConsumerGroup) -> None:
    check_group_name(config.group)
    check_attributes(f"group {config.group}", config.attributes, GROUP_ATTRIBUTES)
    for value, least, most, what in (
        (config.retry_queue_count, 0, 16, "retry queues"),
        (config.retry_max_times, 0, _MAX_RETRY_TIMES, "retries"),
        (config.consume_timeout_minutes, 0, _MAX_INT32, "minutes to consume a message"),
        (config.system_flag, -_MAX_INT32 - 1, _MAX_INT32, "as system flag"),
        (len(config.retry_policy), 0, MAX_KEPT_CHARACTERS, "characters of a retry policy"),
        (len(config.subscriptions), 0, MAX_KEPT_CHARACTERS, "characters of subscriptions"),
    ):
        if not least <= value <= most:
            raise RequestRefused.invalid(
                f"group {config.group}: {value} {what}: give {least} to {most}"
            )


def _check_kept(kept: str) -> None:
    """Raise ValueError for text that is not JSON."""
    try:
        if kept:
            parse_json("consumer group", kept.encode())
    except BodyMalformed as error:
        raise ValueError(str(error)) from None


def _kept(value: JsonValue) -> str:
    """Return a value as text; "" if it is empty or absent.

    Raises RequestRefused (29): Java and Go cannot read it, or it is nested deeply, so that it would
    depend on a member's stack whether its fold can read it.
    """
    if not value:
        return ""
    if not _is_plain(value, MAX_KEPT_LEVELS):
        raise RequestRefused.invalid(
            "a retry policy or a subscription of a group has NaN, Infinity, or more than "
            f"{MAX_KEPT_LEVELS} levels: write it as RocketMQ's tools do"
        )
    return compact_json(value)


def _is_plain(value: JsonValue, levels: int) -> bool:
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return levels > 0 and all(_is_plain(one, levels - 1) for one in inner)
    return not isinstance(value, float) or isfinite(value)


def max_times(command: Command, said: int | None) -> int | None:
    """Return how often the client lets a message fail; None if the group's number counts."""
    if said is None or said < 0 or command.version < _VERSION_WITH_MAX_TIMES:
        return None
    return said
