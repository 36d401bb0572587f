"""Names of topics, groups and lite topics that clients may use. Source: RocketMQ's Validators."""

import re
from functools import lru_cache
from typing import Final

from proxy.statuses import Refused
from proxy.wire.messages_pb2 import Code, Resource
from remoting.message.topic_names import (
    BENCHMARK_TOPIC,
    OFFSET_MOVED_TOPIC,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_GROUP_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    TEMPLATE_TOPIC,
)

_TOPIC: Final = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")
# RocketMQ's proxy takes 255, and its brokers too few: the group's topic of retries has 127.
_GROUP: Final = re.compile(r"[%|a-zA-Z0-9_-]{1,120}")
_LITE_TOPIC: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")

# Topics in which brokers keep what is theirs.
_SYSTEM_TOPICS: Final = frozenset(
    {
        *(TEMPLATE_TOPIC, SCHEDULE_TOPIC, BENCHMARK_TOPIC, SELF_TEST_TOPIC),
        *(OFFSET_MOVED_TOPIC, "CHECKPOINT_TOPIC"),
    }
)
_SYSTEM_TOPIC_PREFIXES: Final = ("RMQ_SYS_", SYSTEM_TOPIC_PREFIX)
_NAMES_REMEMBERED: Final = 4096


def topic_name(resource: Resource) -> str:
    """Return the name of a topic. Raises Refused (40002)."""
    return _checked_topic(resource.name)


# A name has at most 127 characters, or 120. One that is refused is not remembered.
@lru_cache(_NAMES_REMEMBERED)
def _checked_topic(name: str) -> str:
    if not _TOPIC.fullmatch(name):
        raise Refused(Code.ILLEGAL_TOPIC, f"topic {name!r:.140}: {_CHARACTERS}, at most 127")
    if name in _SYSTEM_TOPICS or name.startswith(_SYSTEM_TOPIC_PREFIXES):
        raise Refused(Code.ILLEGAL_TOPIC, f"topic {name} is one of the brokers': choose another")
    return name


def group_name(resource: Resource) -> str:
    """Return the name of a consumer group. Raises Refused (40003)."""
    return _checked_group(resource.name)


@lru_cache(_NAMES_REMEMBERED)
def _checked_group(name: str) -> str:
    if not _GROUP.fullmatch(name):
        raise Refused(
            Code.ILLEGAL_CONSUMER_GROUP, f"group {name!r:.140}: {_CHARACTERS}, at most 120"
        )
    if name.startswith(SYSTEM_GROUP_PREFIX):
        raise Refused(Code.ILLEGAL_CONSUMER_GROUP, f"group {name} is the brokers': choose another")
    return name


def is_lite_topic(name: str) -> bool:
    return _LITE_TOPIC.fullmatch(name) is not None


def lite_topic_name(name: str) -> str:
    """Return the name of a lite topic. Raises Refused (40020)."""
    if not is_lite_topic(name):
        raise Refused(
            Code.ILLEGAL_LITE_TOPIC, f"lite topic {name!r:.80}: 1 to 64 of a-z, A-Z, 0-9, _ and -"
        )
    return name


_CHARACTERS: Final = "use a-z, A-Z, 0-9, _, -, % and |"
