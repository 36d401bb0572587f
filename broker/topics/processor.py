"""Answers administrators' requests about topics (17, 21, 215, 351).

Source: RocketMQ's AdminBrokerProcessor.
"""

from broker.errors import RequestRefused
from broker.log.state import BrokerState
from broker.serving.origin import Origin
from broker.serving.replying import replying
from broker.topics.changes import TopicChanges
from broker.topics.names import FIRST_TOPICS
from broker.topics.state import TOPICS
from remoting.bodies.topic_config import (
    PERMISSION_READ_WRITE,
    DataVersion,
    TopicConfig,
    topic_config_table_json,
)
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from remoting.wire.loose_json import compact_json


class TopicProcessor:
    """Makes, deletes and shows topics."""

    def __init__(self, state: BrokerState, changes: TopicChanges) -> None:
        self._topics = state[TOPICS]
        self._changes = changes

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
            self._attributes(command),
        )
        self._changes.put_topic(config, replying(origin, command))

    def _attributes(self, command: Command) -> dict[str, str]:
        """The topic's attributes, changed as it is asked for: "+name=value,-name"."""
        config = self._topics.configs.get(command.text("topic"))
        attributes = dict(config.attributes) if config is not None else {}
        for change in command.fields.get("attributes", "").split(","):
            name, separator, value = change[1:].partition("=")
            if not change.strip():
                continue
            if change[0] == "+" and name and separator:
                attributes[name] = value
            elif change[0] == "-" and name and not separator:
                attributes.pop(name, None)
            else:
                raise RequestRefused(
                    ResponseCode.INVALID_PARAMETER,
                    f"attributes={change!r:.60}: give +name=value or -name, with commas between",
                )
        return attributes

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
        if topic not in self._topics.configs:
            return command.reply()
        self._changes.delete_topic(topic, replying(origin, command))
        return None

    def topic_config(self, _origin: Origin, command: Command) -> Command:
        """One topic's configuration (351)."""
        topic = command.text("topic")
        return command.reply(body=compact_json(self._topics.found(topic).to_json()).encode())

    def all_topics(self, _origin: Origin, command: Command) -> Command:
        """Every topic's configuration (21)."""
        version = DataVersion(self._topics.topic_changes, self._topics.topics_changed_ms)
        table = topic_config_table_json(self._topics.configs, version)
        return command.reply(body=compact_json(table).encode())
