"""Answers administrators: topics, groups, settings, run-time figures, single messages.

Source: RocketMQ's AdminBrokerProcessor and QueryMessageProcessor.
"""

from collections.abc import Callable, Mapping
from typing import Final

from broker.consumers import Consumers
from broker.errors import RequestRefused
from broker.group import ConsumerGroup
from broker.message_reader import MessageReader
from broker.origin import Origin
from broker.state import BrokerState
from broker.topic_changes import TopicChanges
from broker.topics import FIRST_TOPICS, check_group_name
from remoting.bodies.json_object import JsonObject
from remoting.bodies.message_queue import MessageQueue, encode_queue_keyed
from remoting.bodies.table import encode_properties_text, encode_table
from remoting.bodies.topic_config import (
    PERMISSION_READ_WRITE,
    DataVersion,
    TopicConfig,
    topic_config_table_json,
)
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from remoting.wire.loose_json import compact_json

# The most deliveries a group may ask for: beyond it, "for ever" was meant.
_MAX_RETRY_TIMES: Final = 1_000_000


class AdminProcessor:
    """What `mqadmin` and `dledger-mq` ask of a broker.

    Args:
        state: the applied state.
        changes: makes and deletes topics and groups.
        reader: reads messages.
        consumers: the members of consumer groups.
        broker_name: the group of brokers this one belongs to.
        settings: what the broker was started with, by name.
        figures: run-time figures by name.
    """

    def __init__(
        self,
        state: BrokerState,
        changes: TopicChanges,
        reader: MessageReader,
        consumers: Consumers,
        broker_name: str,
        settings: Mapping[str, str],
        figures: Callable[[], Mapping[str, str]],
    ) -> None:
        self._state = state
        self._changes = changes
        self._reader = reader
        self._consumers = consumers
        self._broker_name = broker_name
        self._settings = settings
        self._figures = figures

    # --- topics -------------------------------------------------------------------------------

    def put_topic(self, origin: Origin, command: Command) -> None:
        """Create or change a topic (17).

        Raises:
            FieldMissing, RequestRefused: see `TopicChanges.put_topic`.
        """
        config = TopicConfig(
            command.text("topic"),
            command.integer("readQueueNums", 16),
            command.integer("writeQueueNums", 16),
            command.integer("perm", PERMISSION_READ_WRITE),
            command.fields.get("topicFilterType") or "SINGLE_TAG",
            command.integer("topicSysFlag", 0),
            command.boolean("order"),
        )
        self._changes.put_topic(config, _replying(origin, command))

    def delete_topic(self, origin: Origin, command: Command) -> Command | None:
        """Delete a topic (215). One that does not exist is deleted already.

        Raises:
            RequestRefused (29): the broker needs it.
        """
        topic = command.text("topic")
        if topic in FIRST_TOPICS:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER, f"topic {topic} is the broker's own: keep it"
            )
        if topic not in self._state.topics:
            return command.reply()
        self._changes.delete_topic(topic, _replying(origin, command))
        return None

    def topic_config(self, _origin: Origin, command: Command) -> Command:
        """One topic's configuration (351)."""
        topic = command.text("topic")
        return command.reply(body=compact_json(self._topic(topic).to_json()).encode())

    def all_topics(self, _origin: Origin, command: Command) -> Command:
        """Every topic's configuration (21)."""
        version = DataVersion(self._state.topic_changes, self._state.topics_changed_ms)
        table = topic_config_table_json(self._state.topics, version)
        return command.reply(body=compact_json(table).encode())

    def topic_stats(self, _origin: Origin, command: Command) -> Command:
        """The first and last offset of each queue of a topic (202)."""
        config = self._topic(command.text("topic"))
        count = max(config.read_queue_count, config.write_queue_count)
        pairs: list[tuple[MessageQueue, object]] = []
        for queue_id in range(count):
            end = self._reader.end(config.topic, queue_id)
            newest = self._reader.store_timestamp_ms(config.topic, queue_id, end - 1) if end else 0
            offsets = {
                "lastUpdateTimestamp": newest or 0,
                "maxOffset": end,
                "minOffset": self._reader.begin(config.topic, queue_id),
            }
            pairs.append((MessageQueue(config.topic, self._broker_name, queue_id), offsets))
        return command.reply(body=encode_queue_keyed("offsetTable", pairs))

    # --- groups -------------------------------------------------------------------------------

    def put_group(self, origin: Origin, command: Command) -> None:
        """Create or change a consumer group (200).

        Raises:
            BodyMalformed: it cannot be read.
            RequestRefused (29): a name or a number that is not allowed.
        """
        config = ConsumerGroup.from_json(JsonObject.parse("consumer group", command.body))
        check_group_name(config.group)
        if not 0 <= config.retry_queue_count <= 16:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"{config.retry_queue_count} retry queues: give 0 to 16",
            )
        if not 0 <= config.retry_max_times <= _MAX_RETRY_TIMES:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"{config.retry_max_times} retries: give 0 to {_MAX_RETRY_TIMES}",
            )
        self._changes.put_group(config, _replying(origin, command))

    def delete_group(self, origin: Origin, command: Command) -> None:
        """Delete a consumer group (207), and its offsets when asked to.

        Raises:
            RequestRefused (29): a bad name.
        """
        group = command.text("groupName")
        check_group_name(group)
        with_offsets = command.boolean("cleanOffset")
        self._changes.delete_group(group, with_offsets, _replying(origin, command))

    def group_config(self, _origin: Origin, command: Command) -> Command:
        """One group's configuration (352)."""
        name = command.text("group")
        group = self._state.groups.get(name)
        if group is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"no consumer group {name:.120}"
            )
        return command.reply(body=compact_json(group.to_json()).encode())

    def all_groups(self, _origin: Origin, command: Command) -> Command:
        """Every group's configuration (201)."""
        table = {name: group.to_json() for name, group in self._state.groups.items()}
        body = {"dataVersion": DataVersion().to_json(), "subscriptionGroupTable": table}
        return command.reply(body=compact_json(body).encode())

    def consumer_connections(self, _origin: Origin, command: Command) -> Command:
        """The present members of a consumer group (203).

        Raises:
            RequestRefused (206): the group has no member.
        """
        name = command.text("consumerGroup")
        group = self._consumers.group(name)
        if group is None:
            raise RequestRefused(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name:.120}] not online"
            )
        newest = max(group.members.values(), key=lambda member: member.last_heartbeat).data
        body = {
            "connectionSet": [
                {
                    "clientAddr": str(origin.peer),
                    "clientId": member.client_id,
                    "language": getattr(member.language, "name", str(member.language)),
                    "version": member.version,
                }
                for origin, member in group.members.items()
            ],
            "consumeFromWhere": newest.consume_from_where.name,
            "consumeType": newest.consume_type.name,
            "messageModel": newest.message_model.name,
            "subscriptionTable": {
                topic: subscription.to_json() for topic, subscription in group.subscriptions.items()
            },
        }
        return command.reply(body=compact_json(body).encode())

    def consume_stats(self, _origin: Origin, command: Command) -> Command:
        """How far a group is behind, queue by queue (208)."""
        name = command.text("consumerGroup")
        asked = command.fields.get("topic", "")
        topics = {topic for group, topic in self._state.offsets if group == name}
        group = self._consumers.group(name)
        if group is not None:
            topics.update(group.subscriptions)
        pairs: list[tuple[MessageQueue, object]] = []
        for topic in sorted(topics):
            config = self._state.topics.get(topic)
            if config is None or (asked and topic != asked):
                continue
            for queue_id in range(config.read_queue_count):
                pairs.append(self._queue_stats(name, topic, queue_id))
        return command.reply(body=encode_queue_keyed("offsetTable", pairs, {"consumeTps": 0.0}))

    def _queue_stats(
        self, group: str, topic: str, queue_id: int
    ) -> tuple[MessageQueue, dict[str, int]]:
        committed = self._state.committed_offset(group, topic, queue_id) or 0
        last = self._reader.store_timestamp_ms(topic, queue_id, committed - 1) if committed else 0
        return MessageQueue(topic, self._broker_name, queue_id), {
            "brokerOffset": self._reader.end(topic, queue_id),
            "consumerOffset": committed,
            "lastTimestamp": last or 0,
            "pullOffset": committed,
        }

    # --- the broker ---------------------------------------------------------------------------

    def runtime_info(self, _origin: Origin, command: Command) -> Command:
        """Run-time figures (28), all as text."""
        return command.reply(body=encode_table(self._figures()))

    def settings(self, _origin: Origin, command: Command) -> Command:
        """What the broker was started with (26)."""
        return command.reply(body=encode_properties_text(self._settings))

    def refuse_settings(self, _origin: Origin, command: Command) -> Command:
        """A change of settings (25): this broker has none that change while it runs.

        RocketMQ's let anyone write them, which made remote execution possible.

        Raises:
            RequestRefused (16): always.
        """
        raise RequestRefused(
            ResponseCode.NO_PERMISSION, "settings cannot be changed here: restart the broker"
        )

    def view_message(self, _origin: Origin, command: Command) -> Command:
        """The message at a position of the log (33), as it is stored.

        Raises:
            RequestRefused (1): there is none.
        """
        position = command.integer("offset")
        record = self._reader.record_at(position)
        if record is None:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {position}"
            )
        return command.reply(body=record)

    def _topic(self, topic: str) -> TopicConfig:
        config = self._state.topics.get(topic)
        if config is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"No topic {topic:.127}: create it")
        return config


def _replying(origin: Origin, command: Command) -> Callable[[RequestRefused | None], None]:
    """Answers a request when its change is applied."""

    def then(refusal: RequestRefused | None) -> None:
        origin.send(
            command.reply()
            if refusal is None
            else command.reply(refusal.code, remark=refusal.remark)
        )

    return then
