"""The topics that exist."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from broker.errors import RequestRefused
from broker.log.state import Rows, StatePart, mapping_rows
from broker.topics.names import FIRST_TOPICS
from broker.topics.settings import read_topic, topic_members
from remoting.bodies.topic_config import TopicConfig


@dataclass(slots=True)
class Topics:
    """The topics.

    Attributes:
        configs: by name.
        created_at: log position of the entry that created a topic; absent for topics that entries
            before version 3 created.
        topic_changes: how often the topics changed; part of the version that name servers compare.
        topics_changed_ms: when they changed last.
    """

    configs: dict[str, TopicConfig] = field(default_factory=lambda: dict(FIRST_TOPICS))
    created_at: dict[str, int] = field(default_factory=dict)
    topic_changes: int = 0
    topics_changed_ms: int = 0

    def existed(self, topic: str, position: int) -> bool:
        return topic in self.configs and self.created_at.get(topic, -1) < position

    def found(self, topic: str) -> TopicConfig:
        """Return a topic's configuration. Raises RequestRefused (17): there is no such topic."""
        config = self.configs.get(topic)
        if config is None:
            raise RequestRefused.no_topic(f"No topic {topic:.127}: create it")
        return config

    def changed(self, at_ms: int) -> None:
        self.topic_changes += 1
        self.topics_changed_ms = max(self.topics_changed_ms, at_ms)


def _captured(topics: Topics) -> Iterator[object]:
    configs = list(topics.configs.values())
    return (topic_members(config) for config in configs)


def _take(topics: Topics, rows: list[Any]) -> None:
    topics.configs.update((topic.topic, topic) for topic in map(read_topic, rows))


TOPICS: Final = StatePart(
    "topics",
    Topics,
    blank=lambda: Topics(configs={}),
    numbers=("topic_changes", "topics_changed_ms"),
    rows=(
        Rows("topics", _captured, _take),
        mapping_rows("created", lambda topics: topics.created_at, int),
    ),
)
