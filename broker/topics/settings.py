"""A topic's configuration as it stands in the log and in snapshots."""

from typing import Any

from broker.log.command_layout import number, text
from broker.topics.names import is_legal_name
from remoting.bodies.topic_config import TopicConfig


def topic_members(config: TopicConfig) -> list[object]:
    """A topic's configuration as plain values; `read_topic` makes it one again."""
    return [
        config.topic,
        config.read_queue_count,
        config.write_queue_count,
        config.permission,
        config.topic_filter_type,
        config.topic_system_flag,
        config.order,
        dict(config.attributes),
    ]


def read_topic(members: list[Any]) -> TopicConfig:
    """A topic's configuration. Raises ValueError, TypeError."""
    topic, read, write, permission, filter_type, system_flag, order, attributes = members
    # A topic's name is a folder's name on every member, so the fold looks at it again.
    if not is_legal_name(text(topic)):
        raise ValueError(f"{topic!r:.40} is no topic name")
    return TopicConfig(
        topic,
        number(read),
        number(write),
        number(permission),
        text(filter_type),
        number(system_flag),
        bool(order),
        {text(name): text(value) for name, value in dict(attributes).items()},
    )
