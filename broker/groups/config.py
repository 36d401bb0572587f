"""A consumer group's configuration: RocketMQ's SubscriptionGroupConfig."""

from dataclasses import asdict, dataclass
from typing import Any, Final

from broker.log.entry import number, text
from remoting.bodies.json_object import JsonObject
from remoting.wire.loose_json import JsonValue

# RocketMQ's number of deliveries before a message goes to the dead letter topic.
DEFAULT_RETRY_MAX_TIMES: Final = 16


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """One consumer group. Defaults are RocketMQ's.

    Attributes:
        group: its name.
        consume_enable: whether its pulls are answered.
        consume_from_min_enable: kept for tools.
        consume_broadcast_enable: whether its members may all consume everything.
        consume_message_orderly: kept for tools.
        retry_queue_count: queues of its retry topic; 0 drops failed messages.
        retry_max_times: deliveries before a message goes to the dead letter topic.
        notify_change: whether members are told at once when others come and go.
        consume_timeout_minutes: kept for tools.
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

    def to_json(self) -> dict[str, JsonValue]:
        """As it stands in JSON bodies. What we have no use for has RocketMQ's default."""
        return {
            "attributes": {},
            "brokerId": 0,
            "consumeBroadcastEnable": self.consume_broadcast_enable,
            "consumeEnable": self.consume_enable,
            "consumeFromMinEnable": self.consume_from_min_enable,
            "consumeMessageOrderly": self.consume_message_orderly,
            "consumeTimeoutMinute": self.consume_timeout_minutes,
            "groupName": self.group,
            "groupSysFlag": 0,
            "notifyConsumerIdsChangedEnable": self.notify_change,
            "retryMaxTimes": self.retry_max_times,
            "retryQueueNums": self.retry_queue_count,
            "whichBrokerWhenConsumeSlowly": 1,
        }

    @classmethod
    def from_json(cls, value: JsonObject) -> "ConsumerGroup":
        """Read it; what is absent has RocketMQ's default.

        Raises:
            BodyMalformed: the name is missing or a member is of a wrong type.
        """
        return cls(
            value.text("groupName"),
            value.boolean("consumeEnable", True),
            value.boolean("consumeFromMinEnable", True),
            value.boolean("consumeBroadcastEnable", True),
            value.boolean("consumeMessageOrderly"),
            value.integer("retryQueueNums", 1),
            value.integer("retryMaxTimes", DEFAULT_RETRY_MAX_TIMES),
            value.boolean("notifyConsumerIdsChangedEnable", True),
            value.integer("consumeTimeoutMinute", 15),
        )

    def as_dict(self) -> dict[str, object]:
        """Plain values, for the log."""
        return asdict(self)


def read_group(members: dict[str, Any]) -> ConsumerGroup:
    """A group of its `as_dict`. Raises ValueError, TypeError, KeyError."""
    text(members["group"])
    # Members that a later version adds are refused here: they come with a new format version.
    for name, value in members.items():
        if name != "group":
            number(value)
    return ConsumerGroup(**members)
