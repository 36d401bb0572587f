"""The form of a topic's configuration in the log and in snapshots."""

from typing import Any

from broker.log.command_layout import number, text
from broker.topics.names import is_legal_name
from remoting.bodies.topic_config import TopicConfig


def topic_members(config: TopicConfig) -> list[object]:
    """Return a topic's configuration as plain values, for `read_topic`."""
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
    """Read a topic's configuration. Raises ValueError, TypeError."""
    topic, read, write, permission, filter_type, system_flag, order, attributes = members
    # A topic's name becomes a folder's name on every member, so the fold checks it again.
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
