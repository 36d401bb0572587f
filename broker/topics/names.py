"""Names of topics and groups, RocketMQ's special topics, and what a new topic looks like."""

import re
from collections.abc import Mapping
from typing import Final

from broker.errors import RequestRefused
from broker.limits import MAX_QUEUES_PER_TOPIC
from remoting.bodies.topic_config import PERMISSION_INHERIT, PERMISSION_READ_WRITE, TopicConfig
from remoting.message.record import MAX_TOPIC_BYTES

RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"

# The template of topics that are created by their first message.
TEMPLATE_TOPIC: Final = "TBW102"

# Where messages wait that are for later: queue 0 to 17 for the levels, and one for other times.
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"

# Where messages wait for the end of their transactions, and those whose end never came. Java's
# brokers have one more, for the ends; here they stand in the log behind the messages.
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
GIVEN_UP_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"

# Where messages stand in for copies that could not be stored (see `sends.copies`).
UNDELIVERED_TOPIC: Final = "rmq_sys_undelivered"

# Where clients put what they tell about their messages, when they are told to.
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"

# Topics that only RocketMQ's own features write to.
SEND_FORBIDDEN: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        TIMER_TOPIC,
        HALF_TOPIC,
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        GIVEN_UP_TOPIC,
        UNDELIVERED_TOPIC,
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)

# Topics that RocketMQ keeps for itself, whether they exist or not. Those of a broker and a cluster
# have their names besides.
SYSTEM_TOPICS: Final = SEND_FORBIDDEN | {
    TEMPLATE_TOPIC,
    "BenchmarkTest",
    TRACE_TOPIC,
}

SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"

# What exists in an empty log. RocketMQ has more; the others belong to features it is not there for.
FIRST_TOPICS: Final = {
    config.topic: config
    for config in (
        TopicConfig(TEMPLATE_TOPIC, 8, 8, PERMISSION_READ_WRITE | PERMISSION_INHERIT),
        TopicConfig("SELF_TEST_TOPIC", 1, 1),
        TopicConfig("OFFSET_MOVED_EVENT", 1, 1),
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
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"

_LEGAL: Final = re.compile(r"[%|a-zA-Z0-9_-]+", re.ASCII)

# RocketMQ's TopicFilterType. It goes into the log, and into each registration with a name server.
FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")

# Earlier name servers refuse a broker, with all of its topics, if one has more bits. RocketMQ has
# two.
MAX_SYSTEM_FLAG: Final = 255

# RocketMQ knows a handful. They stand in each registration with a name server.
MAX_ATTRIBUTES: Final = 16
MAX_ATTRIBUTE_CHARACTERS: Final = 64

# With its prefix, a group's name is the name of its retry topic.
MAX_GROUP_CHARACTERS: Final = MAX_TOPIC_BYTES - len(RETRY_PREFIX)


def retry_topic(group: str) -> str:
    """The topic that a consumer group's failed messages go to."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """The topic that a consumer group's hopeless messages go to."""
    return DEAD_LETTER_PREFIX + group


def is_system_topic(topic: str) -> bool:
    """Whether RocketMQ keeps a topic for itself."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_system_group(group: str) -> bool:
    """Whether a consumer group is RocketMQ's own."""
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def is_legal_name(topic: str) -> bool:
    """Whether RocketMQ allows the name and a record can hold it."""
    return len(topic) <= MAX_TOPIC_BYTES and _LEGAL.fullmatch(topic) is not None


def check_topic_name(topic: str) -> None:
    """Raises RequestRefused (29) for a name that RocketMQ does not allow."""
    if not _LEGAL.fullmatch(topic):
        raise RequestRefused.invalid(
            f"topic {topic!r:.80}: use letters, digits, '%', '|', '_' and '-'"
        )
    if len(topic) > MAX_TOPIC_BYTES:
        raise RequestRefused.invalid(f"topic of {len(topic)} characters: at most {MAX_TOPIC_BYTES}")


def check_group_name(group: str) -> None:
    """Raises RequestRefused (29) for a name that RocketMQ does not allow."""
    if not _LEGAL.fullmatch(group) or len(group) > MAX_GROUP_CHARACTERS:
        raise RequestRefused.invalid(
            f"group {group!r:.80}: use up to {MAX_GROUP_CHARACTERS} letters, digits, '%', '|', "
            "'_' and '-'"
        )


def check_topic_config(config: TopicConfig) -> None:
    """Raises RequestRefused (29) when a topic cannot be as it is asked for."""
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
    if len(config.attributes) > MAX_ATTRIBUTES or any(
        len(text) > MAX_ATTRIBUTE_CHARACTERS or not text.isprintable()
        for pair in config.attributes.items()
        for text in pair
    ):
        raise RequestRefused.invalid(
            f"attributes of topic {config.topic}: at most {MAX_ATTRIBUTES}, each name and value "
            f"{MAX_ATTRIBUTE_CHARACTERS} printable characters"
        )
    check_attributes(config.topic, config.attributes)
    if not 0 <= config.permission <= 15:
        raise RequestRefused.invalid(
            f"topic {config.topic} with permission {config.permission}: add up 4 read and 2 write"
        )


def created_by_send(topic: str, template: TopicConfig, asked_queues: int) -> TopicConfig:
    """The topic that a first message creates from its template, as RocketMQ does it.

    Raises:
        RequestRefused (17): the template does not pass itself on.
    """
    if not template.permission & PERMISSION_INHERIT:
        raise RequestRefused.no_topic(
            f"topic {topic} does not exist and {template.topic} creates none: create it first"
        )
    queues = max(1, min(asked_queues, template.write_queue_count, MAX_QUEUES_PER_TOPIC))
    permission = template.permission & ~PERMISSION_INHERIT
    return TopicConfig(topic, queues, queues, permission)


def created_for_group(topic: str, queues: int = 1) -> TopicConfig:
    """The retry or dead letter topic of a group."""
    return TopicConfig(topic, queues, queues, PERMISSION_READ_WRITE)


_MESSAGE_TYPES: Final = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "UNSPECIFIED")

# What each attribute may be, and why it may not be what else RocketMQ knows.
_ATTRIBUTES: Final = {
    "message.type": (_MESSAGE_TYPES, "there are no other types"),
    # With BatchCQ RocketMQ has a unit for a batch instead of one for each message, for producers
    # whose batches stay together. Offsets and pulls are the same, so here it has no effect.
    "queue.type": (("SimpleCQ", "BatchCQ"), "there are no other queues"),
    "cleanup.policy": (("DELETE",), "messages are dropped by their age only"),
    "reserve.time": (("-1",), "all topics are kept for as long as the broker says"),
}


def check_attributes(topic: str, attributes: Mapping[str, str]) -> None:
    """Raises RequestRefused (29) for an attribute that is not obeyed here.

    A topic's message type is kept for clients that ask for it, and brokers take every message: as
    in RocketMQ, where only the proxy compares the two.
    """
    for name, value in attributes.items():
        if name not in _ATTRIBUTES:
            raise RequestRefused.invalid(
                f"topic {topic}: unsupported key {name!r:.80}: give " + ", ".join(_ATTRIBUTES)
            )
        values, why = _ATTRIBUTES[name]
        if value not in values:
            raise RequestRefused.invalid(
                f"topic {topic}: {name}={value:.80} is not supported, {why}: give "
                + " or ".join(values)
            )
