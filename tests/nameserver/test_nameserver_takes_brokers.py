"""What a broker lets its clients make, a name server takes: one topic hides no others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker.errors import RequestRefused
from broker.topics.names import FIRST_TOPICS, check_group_name, check_topic_config
from nameserver.brokers import BrokerIdentity, Speaker
from nameserver.routes import RouteTable
from remoting.bodies.registration import (
    BrokerRegistration,
    decode_registration,
    encode_registration,
)
from remoting.bodies.topic_config import DataVersion, TopicConfig
from remoting.message.topic_names import DEAD_LETTER_PREFIX, RETRY_PREFIX

edges = st.sampled_from([-(1 << 31), 1 << 31, -1, 0, 1, 15, 255, 256, 1024, 16_385, (1 << 31) - 1])
numbers = edges | st.integers(0, 16)
names = st.text("aZ0%|_-", min_size=1, max_size=255) | st.sampled_from(
    ["T" * 127, "null", "0", "|", "%", "-"]
)
groups = st.text("aZ0%|_-", min_size=1, max_size=130)
attributes = st.dictionaries(
    st.sampled_from(["message.type", "queue.type", "cleanup.policy", "+x", "é"]),
    st.text(max_size=8) | st.sampled_from(["NORMAL", "SimpleCQ", "DELETE"]),
    max_size=2,
)


def registered(config: TopicConfig) -> bool:
    """Whether a broker with this topic, and its own, is in the route of another topic."""
    topics = {**FIRST_TOPICS, "other": TopicConfig("other"), config.topic: config}
    told = encode_registration(BrokerRegistration(topics, DataVersion(1, 1, 1)))
    table = RouteTable()
    table.register(
        BrokerIdentity("cl", "b", 0, "10.0.0.1:1"),
        decode_registration(told),
        speaker=Speaker("c", "10.0.0.1"),
        now=0.0,
    )
    return table.route("other") is not None and table.route(config.topic) is not None


# One number at a time is odd: brokers refuse most of those.
NUMBERS = ("read_queue_count", "write_queue_count", "permission", "topic_system_flag")


@given(names, st.sampled_from(NUMBERS), numbers, attributes, st.booleans())
def test_each_topic_that_a_client_can_make_is_taken(
    topic: str, odd: str, number: int, more: dict[str, str], order: bool
) -> None:
    changed: dict[str, Any] = {odd: number}
    config = replace(TopicConfig(topic, order=order, attributes=more), **changed)
    try:
        check_topic_config(config)
    except RequestRefused:
        return
    assert registered(config)


@given(groups, st.sampled_from([RETRY_PREFIX, DEAD_LETTER_PREFIX]))
def test_each_topic_of_a_group_is_taken(group: str, prefix: str) -> None:
    try:
        check_group_name(group)
    except RequestRefused:
        return
    assert registered(TopicConfig(prefix + group, 1, 1))


@given(st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 31), (1 << 31) - 1))
def test_topics_that_brokers_of_earlier_versions_hold_are_taken(
    permission: int, system_flag: int
) -> None:
    assert registered(TopicConfig("T", 1, 1, permission, topic_system_flag=system_flag))
