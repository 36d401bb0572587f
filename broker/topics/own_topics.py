"""RocketMQ's own topics: some always exist, others are created by their first message."""

from collections.abc import Sequence
from typing import Final

from broker.config import BrokerConfig
from broker.log.submissions import submit_commands
from broker.serving.parts import Parts, Shared
from broker.topics.commands import PutTopic
from broker.topics.names import is_legal_name
from broker.topics.state import TOPICS
from remoting.bodies.topic_config import PERMISSION_INHERIT, PERMISSION_READ_WRITE, TopicConfig
from remoting.message.topic_names import TRACE_TOPIC

# RocketMQ's number of queues of the topic with the cluster's name.
_CLUSTER_QUEUES: Final = 16


def standing_topics(config: BrokerConfig) -> tuple[TopicConfig, ...]:
    """Return the topics that exist as soon as a leader serves, as in RocketMQ's TopicConfigManager.

    Tools measure a cluster and a broker by messages to topics with their names, if these are legal
    names of topics. Clients send the traces of their messages to the trace topic.
    """
    inherited = PERMISSION_READ_WRITE | PERMISSION_INHERIT
    named = (
        TopicConfig(config.cluster, _CLUSTER_QUEUES, _CLUSTER_QUEUES, inherited),
        TopicConfig(config.group, 1, 1, inherited),
        TopicConfig(TRACE_TOPIC, 1, 1, PERMISSION_READ_WRITE),
    )
    return tuple(topic for topic in named if is_legal_name(topic.topic))


class OwnTopics:
    """Creates these topics. No send waits for one of them."""

    def __init__(self, parts: Parts) -> None:
        self._standing = standing_topics(parts.config)
        self._topics = parts.state[TOPICS]
        self._log = parts.log
        self._wall_clock_ms = parts.wall_clock_ms
        self._making: set[str] = set()

    def make(self, topic: str, queues: int = 1) -> None:
        """Create a topic, if it is missing, before the next message to it."""
        self._make([TopicConfig(topic, queues, queues, PERMISSION_READ_WRITE)])

    def begin_term(self) -> None:
        """Create missing standing topics. Commands of an earlier term are applied or lost."""
        self._making.clear()
        self._make(self._standing)

    def is_standing(self, topic: str) -> bool:
        return any(topic == config.topic for config in self._standing)

    def _make(self, configs: Sequence[TopicConfig]) -> None:
        known, making = self._topics.configs, self._making
        missing = [one for one in configs if one.topic not in known and one.topic not in making]
        if not missing:
            return
        names = {config.topic for config in missing}
        self._making |= names
        puts = [PutTopic(config, self._wall_clock_ms(), only_if_absent=True) for config in missing]
        submit_commands(self._log, puts, lambda _: self._making.difference_update(names))


OWN_TOPICS: Final = Shared("own topics", OwnTopics)
