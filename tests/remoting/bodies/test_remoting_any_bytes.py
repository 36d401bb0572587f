"""Every decoder of a body ends with a value or with its own error, whatever the bytes."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.bodies.consumer_group import (
    QueueLock,
    decode_consumer_list,
    decode_locked_queues,
    decode_queue_lock,
    encode_consumer_list,
    encode_locked_queues,
    encode_queue_lock,
)
from remoting.bodies.heartbeat import (
    ConsumerData,
    Heartbeat,
    SubscriptionData,
    decode_heartbeat,
    encode_heartbeat,
)
from remoting.bodies.message_queue import MessageQueue, decode_queue_keyed, encode_queue_keyed
from remoting.bodies.registration import (
    BrokerRegistration,
    decode_registration,
    encode_registration,
)
from remoting.bodies.route import (
    BrokerData,
    ClusterInfo,
    QueueData,
    TopicRoute,
    decode_cluster_info,
    decode_route,
    encode_cluster_info,
    encode_route,
)
from remoting.bodies.table import (
    decode_properties_text,
    decode_table,
    decode_topic_list,
    encode_properties_text,
    encode_table,
    encode_topic_list,
)
from remoting.bodies.topic_config import DataVersion, TopicConfig
from remoting.wire.errors import BodyMalformed

QUEUE = MessageQueue("T", "b", 1)
BROKER = BrokerData("cl", "b", {0: "10.0.0.1:1"})

# Each decoder, and a body that it takes.
DECODERS: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "heartbeat": (
        decode_heartbeat,
        encode_heartbeat(
            Heartbeat("c", ["p"], [ConsumerData("g", subscriptions=[SubscriptionData("T")])])
        ),
    ),
    "route": (decode_route, encode_route(TopicRoute([QueueData("b", 1, 1, 6)], [BROKER]))),
    "cluster": (
        decode_cluster_info,
        encode_cluster_info(ClusterInfo({"b": BROKER}, {"cl": ["b"]})),
    ),
    "registration": (
        decode_registration,
        encode_registration(BrokerRegistration({"T": TopicConfig("T")}, DataVersion(), ["f:1"])),
    ),
    "compressed": (lambda body: decode_registration(body, compressed=True), b""),
    "lock": (decode_queue_lock, encode_queue_lock(QueueLock("g", "c", [QUEUE]))),
    "locked": (decode_locked_queues, encode_locked_queues([QUEUE])),
    "consumers": (decode_consumer_list, encode_consumer_list(["c"])),
    "table": (decode_table, encode_table({"a": "b"})),
    "topics": (decode_topic_list, encode_topic_list(["T"], "10.0.0.1:1")),
    "offsets": (
        lambda body: decode_queue_keyed("offsets", "offsetTable", body),
        encode_queue_keyed("offsetTable", [(QUEUE, 7)]),
    ),
    "properties": (decode_properties_text, encode_properties_text({"a": "b"})),
}

PIECES = st.binary(max_size=8) | st.sampled_from(
    [b"null", b"[]", b"{}", b"{{}:1}", b'"', b"1e999", b"-1", b"NaN", b'"\\ud800"', b"9" * 30]
)


@pytest.mark.parametrize("name", DECODERS)
@given(at=st.integers(0, 400), length=st.integers(0, 40), piece=PIECES)
def test_a_damaged_body_ends_with_a_value_or_its_error(
    name: str, at: int, length: int, piece: bytes
) -> None:
    decode, body = DECODERS[name]
    with suppress(BodyMalformed):
        decode(body)
    with suppress(BodyMalformed):
        decode(body[:at] + piece + body[at + length :])


@pytest.mark.parametrize("name", DECODERS)
@given(raw=st.binary(max_size=60))
def test_any_bytes_end_with_a_value_or_the_error(name: str, raw: bytes) -> None:
    with suppress(BodyMalformed):
        DECODERS[name][0](raw)
