"""Names of topics and groups, RocketMQ's special topics, and configurations of new topics."""

import re
from typing import Final

from broker.errors import RequestRefused
from broker.limits import MAX_QUEUES_PER_TOPIC
from remoting.bodies.topic_config import PERMISSION_INHERIT, PERMISSION_READ_WRITE, TopicConfig
from remoting.message.record import MAX_TOPIC_BYTES
from remoting.message.topic_names import (
    BENCHMARK_TOPIC,
    DEAD_LETTER_PREFIX,
    OFFSET_MOVED_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_GROUP_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    TEMPLATE_TOPIC,
    TRACE_TOPIC,
    UNDELIVERED_TOPIC,
)

# Where delayed messages wait that have a time of their own instead of a level.
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"

# Where half messages wait for the ends of their transactions, and where those go that never end.
# Java's brokers have another topic for the ends; here an end follows its message in the log.
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
GIVEN_UP_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"

# Topics that only RocketMQ's own features write to.
SEND_FORBIDDEN: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        TIMER_TOPIC,
        HALF_TOPIC,
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        GIVEN_UP_TOPIC,
        UNDELIVERED_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
    }
)

# Topics that RocketMQ reserves, whether they exist or not. The names of the broker and the cluster
# are reserved as well.
SYSTEM_TOPICS: Final = SEND_FORBIDDEN | {
    TEMPLATE_TOPIC,
    BENCHMARK_TOPIC,
    TRACE_TOPIC,
}

# Topics of an empty log. RocketMQ has more, for features that this broker lacks.
FIRST_TOPICS: Final = {
    config.topic: config
    for config in (
        TopicConfig(TEMPLATE_TOPIC, 8, 8, PERMISSION_READ_WRITE | PERMISSION_INHERIT),
        TopicConfig(SELF_TEST_TOPIC, 1, 1),
        TopicConfig(OFFSET_MOVED_TOPIC, 1, 1),
    )
}

# Groups of RocketMQ's own tools and features.
SYSTEM_GROUPS: Final = frozenset(
    {
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SCHEDULE_CONSUMER",
        "__MONITOR_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
    }
)

_LEGAL: Final = re.compile(r"[%|a-zA-Z0-9_-]+", re.ASCII)

# RocketMQ's TopicFilterType. It goes into the log, and into each registration with a name server.
FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")

# Earlier name servers refuse a broker with all of its topics if one topic has more bits. RocketMQ
# uses two.
MAX_SYSTEM_FLAG: Final = 255

# With its prefix, a group's name is the name of its retry topic.
MAX_GROUP_CHARACTERS: Final = MAX_TOPIC_BYTES - len(RETRY_PREFIX)


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    return DEAD_LETTER_PREFIX + group


def is_system_topic(topic: str) -> bool:
    """Return whether RocketMQ reserves the topic."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_system_group(group: str) -> bool:
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def is_legal_name(topic: str) -> bool:
    """Return whether RocketMQ allows the name and a record can hold it."""
    return len(topic) <= MAX_TOPIC_BYTES and _LEGAL.fullmatch(topic) is not None


def check_topic_name(topic: str) -> None:
    """Raise RequestRefused (29) for a name that RocketMQ does not allow."""
    if not _LEGAL.fullmatch(topic):
        raise RequestRefused.invalid(
            f"topic {topic!r:.80}: use letters, digits, '%', '|', '_' and '-'"
        )
    if len(topic) > MAX_TOPIC_BYTES:
        raise RequestRefused.invalid(f"topic of {len(topic)} characters: at most {MAX_TOPIC_BYTES}")


def check_group_name(group: str) -> None:
    """Raise RequestRefused (29) for a name that RocketMQ does not allow."""
    if not _LEGAL.fullmatch(group) or len(group) > MAX_GROUP_CHARACTERS:
        raise RequestRefused.invalid(
            f"group {group!r:.80}: use up to {MAX_GROUP_CHARACTERS} letters, digits, '%', '|', "
            "'_' and '-'"
        )


def check_topic_config(config: TopicConfig) -> None:
    check_topic_name(config.topic)
    for count in (config.read_queue_count, config.write_queue_count):
        if not 1 <= count <= MAX_QUEUES_PER_TOPIC:
            raise RequestRefused.invalid(
                f"topic {config.topic} with {count} queues: 1 to {MAX_QUEUES_PER_TOPIC}"
            )
    if config.topic_filter_type not in FILTER_TYPES:
        raise RequestRefused.invalid(
            f"topic {config.topic} with filter type {config.topic_filter_type!r:.40}: give "
            + " or ".join(FILTER_TYPES)
        )
    if not 0 <= config.topic_system_flag <= MAX_SYSTEM_FLAG:
        raise RequestRefused.invalid(
            f"topic {config.topic} with system flag {config.topic_system_flag}: give 0 to "
            f"{MAX_SYSTEM_FLAG}"
        )
    if not 0 <= config.permission <= 15:
        raise RequestRefused.invalid(
            f"topic {config.topic} with permission {config.permission}: add up 4 read and 2 write"
        )


def created_by_send(topic: str, template: TopicConfig, asked_queues: int) -> TopicConfig:
    """Return the topic that a first message creates from its template, as in RocketMQ.

    Raises RequestRefused (17): topics may not inherit from the template.
    """
    if not template.permission & PERMISSION_INHERIT:
        raise RequestRefused.no_topic(
            f"topic {topic} does not exist and {template.topic} creates none: create it first"
        )
    queues = max(1, min(asked_queues, template.write_queue_count, MAX_QUEUES_PER_TOPIC))
    permission = template.permission & ~PERMISSION_INHERIT
    return TopicConfig(topic, queues, queues, permission)


def created_for_group(topic: str, queues: int = 1) -> TopicConfig:
    return TopicConfig(topic, queues, queues, PERMISSION_READ_WRITE)
