"""Answers administrators' requests about topics (17, 18, 21, 215, 305, 316, 351).

Source: RocketMQ's AdminBrokerProcessor.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from broker.errors import RequestRefused
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from broker.serving.replying import replying
from broker.settings.user_shares import USER_SHARES
from broker.topics.attributes import changed_attributes
from broker.topics.changes import TOPIC_CHANGES
from broker.topics.names import FIRST_TOPICS, SYSTEM_TOPICS
from broker.topics.own_topics import OWN_TOPICS
from broker.topics.state import TOPICS
from remoting.bodies.json_object import JsonObject
from remoting.bodies.pieces import pieces
from remoting.bodies.table import encode_topic_list
from remoting.bodies.topic_config import (
    PERMISSION_READ_WRITE,
    DataVersion,
    TopicConfig,
)
from remoting.net.answering import Steps
from remoting.wire.command import Command
from remoting.wire.loose_json import compact_json

# Topics in one request (18): one append.
MAX_TOPICS_AT_ONCE: Final = 500

_TOPICS_A_STEP: Final = 64


class TopicProcessor:
    def __init__(self, parts: Parts) -> None:
        cluster = parts.config.cluster
        self._shares = parts[USER_SHARES]
        self._topics = parts.state[TOPICS]
        self._changes = parts[TOPIC_CHANGES]
        self._own_topics = parts[OWN_TOPICS]
        # The names of the broker and its cluster are topics, too.
        self._own_names = (cluster, parts.config.group, f"{cluster}_REPLY_TOPIC")
        self._address = str(parts.config.address)

    def put_topic(self, origin: Origin, command: Command) -> None:
        """Create or change a topic (17).

        Raises RequestRefused: see `TopicChanges.put_topic`; (2) its user makes too many topics.
        """
        config = TopicConfig(
            command.name("topic"),
            command.int32("readQueueNums", 16),
            command.int32("writeQueueNums", 16),
            command.int32("perm", PERMISSION_READ_WRITE),
            command.fields.get("topicFilterType") or "SINGLE_TAG",
            command.int32("topicSysFlag", 0),
            command.boolean("order"),
            self._attributes(command),
        )
        if config.topic not in self._topics.configs:
            self._shares.make(self._shares.user_of(origin, command))
        self._changes.put_topic(config, replying(origin, command))

    def put_topics(self, origin: Origin, command: Command) -> Steps:
        """Create or change many topics (18): all of them, or none.

        RocketMQ stops at the first topic that needs no change.

        Raises RequestRefused: (2) too many topics, (29) a configuration is invalid, or the list is
        empty.
        """
        body = JsonObject.parse("topics", command.body)
        configs: list[TopicConfig] = []
        for some in pieces(body.objects("topicConfigList", MAX_TOPICS_AT_ONCE), _TOPICS_A_STEP):
            configs += [self._asked(TopicConfig.from_json(one)) for one in some]
            yield
        if not configs:
            raise RequestRefused.invalid("no topic is named")
        self._changes.put_topics(configs, replying(origin, command))
        return None

    def _asked(self, config: TopicConfig) -> TopicConfig:
        """Apply the attributes, which RocketMQ's tools write as changes in this request."""
        changes = [
            f"{name}={value}" if name.startswith("+") else name
            for name, value in config.attributes.items()
        ]
        return replace(config, attributes=self._changed_attributes(config.topic, changes))

    def system_topics(self, _origin: Origin, command: Command) -> Command:
        """List the topics that RocketMQ reserves (305)."""
        names = sorted(SYSTEM_TOPICS.union(self._own_names))
        return command.reply(body=encode_topic_list(names, self._address))

    def clean_unused(self, _origin: Origin, command: Command) -> Command:
        """Answer that no queues of deleted topics are left (316).

        They go with their topic, when its deletion is applied. RocketMQ leaves them.
        """
        return command.reply(remark="nothing to clean: the queues of a topic go with it")

    def _attributes(self, command: Command) -> dict[str, str]:
        """Return the topic's attributes after the requested changes: "+name=value,-name"."""
        changes = command.fields.get("attributes", "").split(",")
        return self._changed_attributes(command.name("topic"), changes)

    def _changed_attributes(self, topic: str, changes: Sequence[str]) -> dict[str, str]:
        config = self._topics.configs.get(topic)
        now = {} if config is None else config.attributes
        return changed_attributes(now, changes)

    def delete_topic(self, origin: Origin, command: Command) -> Command | None:
        """Delete a topic (215). A missing one counts as deleted.

        Raises RequestRefused (29): the broker needs it.
        """
        topic = command.name("topic")
        if topic in FIRST_TOPICS or self._own_topics.is_standing(topic):
            raise RequestRefused.invalid(f"topic {topic} is the broker's own: keep it")
        if topic not in self._topics.configs:
            return command.reply()
        self._changes.delete_topic(topic, replying(origin, command))
        return None

    def topic_config(self, _origin: Origin, command: Command) -> Command:
        topic = command.name("topic")
        return command.reply(body=compact_json(self._topics.found(topic).to_json()).encode())

    def all_topics(self, _origin: Origin, command: Command) -> Steps:
        version = DataVersion(self._topics.topic_changes, self._topics.topics_changed_ms)
        topics: list[str] = []
        for piece in pieces(self._topics.configs.values()):
            topics += [f"{compact_json(config.topic)}:{config.to_text()}" for config in piece]
            yield
        table = f'"topicConfigTable":{{{",".join(topics)}}}'
        body = f'{{"dataVersion":{compact_json(version.to_json())},{table}}}'
        return command.reply(body=body.encode())
