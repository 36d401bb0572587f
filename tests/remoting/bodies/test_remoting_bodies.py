"""JSON bodies: what real clients and Java servers sent, round trips, and tolerance."""

import json
import struct
import zlib
from contextlib import suppress
from pathlib import Path

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
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    Heartbeat,
    MessageModel,
    SubscriptionData,
    decode_heartbeat,
    encode_heartbeat,
)
from remoting.bodies.json_object import JsonObject
from remoting.bodies.message_queue import MessageQueue, decode_queue_keyed, encode_queue_keyed
from remoting.bodies.registration import (
    BrokerRegistration,
    decode_registration,
    encode_registration,
    registration_crc,
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
from remoting.wire.command import Command
from remoting.wire.errors import BodyMalformed
from remoting.wire.frame import decode_frame
from remoting.wire.loose_json import parse_json

DATA = Path(__file__).parents[1] / "data"


def recorded(name: str) -> Command:
    return decode_frame((DATA / f"{name}.bin").read_bytes())


ROUTE = TopicRoute(
    [QueueData("b", 8, 4, 6), QueueData("c", 1, 1, 7, 1)],
    [BrokerData("cl", "b", {0: "1.2.3.4:10911", 3: "1.2.3.5:10911"}), BrokerData("cl", "c", {})],
    "b:8;c:1",
)


def test_a_route_survives_writing_and_reading() -> None:
    assert decode_route(encode_route(ROUTE)) == ROUTE


def test_a_route_has_no_spaces_quoted_keys_and_always_its_arrays() -> None:
    raw = encode_route(ROUTE)
    assert b" " not in raw
    assert b'"brokerAddrs":{"0":"1.2.3.4:10911","3":"1.2.3.5:10911"}' in raw
    empty = json.loads(encode_route(TopicRoute()))
    assert empty["queueDatas"] == []
    assert empty["brokerDatas"] == []
    assert "orderTopicConf" not in empty


def test_a_route_with_unquoted_numbers_as_keys_is_read() -> None:
    raw = (
        b'{"brokerDatas":[{"brokerAddrs":{0:"1.2.3.4:10911",2 : "1.2.3.5:10911"},'
        b'"brokerName":"b","cluster":"cl"}],"queueDatas":[{"brokerName":"b","perm":6,'
        b'"readQueueNums":4,"topicSynFlag":2,"writeQueueNums":4}]}'
    )
    route = decode_route(raw)
    assert route.brokers[0].addresses == {0: "1.2.3.4:10911", 2: "1.2.3.5:10911"}
    assert route.queues == [QueueData("b", 4, 4, 6, 2)]


def test_the_route_of_a_java_name_server_is_read() -> None:
    route = decode_route(recorded("java53-route").body)
    assert route.brokers == [BrokerData("RecCluster", "rec-a", {0: "127.0.0.1:30911"})]
    assert route.brokers[0].master == "127.0.0.1:30911"
    assert route.queues == [QueueData("rec-a", 8, 8, 7)]


def test_the_cluster_of_a_java_name_server_is_read() -> None:
    info = decode_cluster_info(recorded("java49-cluster-info").body)
    assert info == ClusterInfo(
        {"rec-a": BrokerData("RecCluster", "rec-a", {0: "127.0.0.1:30911"})},
        {"RecCluster": ["rec-a"]},
    )
    assert decode_cluster_info(encode_cluster_info(info)) == info


def test_the_registration_of_a_java_broker_is_read() -> None:
    command = recorded("java49-register-broker")
    registration = decode_registration(command.body)
    assert registration_crc(command.body) == command.integer("bodyCrc32")
    assert registration.topics["SCHEDULE_TOPIC_XXXX"] == TopicConfig("SCHEDULE_TOPIC_XXXX", 18, 18)
    assert registration.data_version == DataVersion(0, 1795221573885)
    assert decode_registration(encode_registration(registration)) == registration


def test_a_registration_is_written_as_the_standard_library_writes_it() -> None:
    odd = TopicConfig('a"\\\u00e9', 1, 2, 6, "\n", 3, True, {"+k": 'v"'})
    registration = BrokerRegistration(
        {"T": TopicConfig("T"), odd.topic: odd}, DataVersion(1, 2, 3), ["1.2.3.4:5"]
    )
    wrapper = {
        "dataVersion": registration.data_version.to_json(),
        "topicConfigTable": {name: one.to_json() for name, one in registration.topics.items()},
    }
    assert json.loads(encode_registration(registration)) == {
        "filterServerList": ["1.2.3.4:5"],
        "topicConfigSerializeWrapper": wrapper,
    }
    assert decode_registration(encode_registration(registration)) == registration


@pytest.mark.parametrize(
    "member",
    [
        '"perm":9223372036854775808',
        '"attributes":[]',
        '"order":7',
        '"readQueueNums":"x"',
        '"perm":"2"',
    ],
)
def test_a_topic_with_an_odd_member_is_read_by_the_rules_of_all_members(member: str) -> None:
    text = TopicConfig("T").to_text()[:-1] + "," + member + "}"
    body = f'{{"topicConfigSerializeWrapper":{{"topicConfigTable":{{"T":{text}}}}}}}'.encode()
    value = JsonObject("register broker", parse_json("x", text.encode()))
    try:
        expected = TopicConfig.from_json(value)
    except BodyMalformed as error:
        with pytest.raises(BodyMalformed, match=str(error)):
            decode_registration(body)
    else:
        assert decode_registration(body).topics == {"T": expected}


def chunk(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def compressed_registration(lines: list[bytes]) -> bytes:
    parts = [chunk(b'{"counter":5,"stateVersion":2,"timestamp":9}'), struct.pack(">i", len(lines))]
    parts += [chunk(line) for line in lines]
    parts.append(chunk(b'["fs:1"]'))
    return zlib.compress(b"".join(parts) + struct.pack(">i", 0))


def test_a_compressed_registration_is_read() -> None:
    body = compressed_registration([b"T 4 8 6 SINGLE_TAG", b'U 1 1 7 SINGLE_TAG {"a":"b"}'])
    assert decode_registration(body, compressed=True) == BrokerRegistration(
        {"T": TopicConfig("T", 4, 8), "U": TopicConfig("U", 1, 1, 7, attributes={"a": "b"})},
        DataVersion(5, 9, 2),
        ["fs:1"],
    )


@pytest.mark.parametrize(
    "body",
    [
        b"not zlib",
        zlib.compress(b"\x00"),
        zlib.compress(b"\x7f\xff\xff\xff"),
        compressed_registration([b"T 4 8"]),
        compressed_registration([b"T a b c SINGLE_TAG"]),
        compressed_registration([b"T 4 9223372036854775808 6 SINGLE_TAG"]),
        compressed_registration([b"T 4 8 -9223372036854775809 SINGLE_TAG"]),
        zlib.compress(chunk(b"{}") + b"\xff\xff\xff\xff" + chunk(b"[]")),
        compressed_registration([b"T 4 8 6 SINGLE_TAG"])[:-8],
        zlib.compress(bytes(17 * 1024 * 1024)),
    ],
)
def test_a_compressed_registration_that_cannot_be_read_is_refused(body: bytes) -> None:
    with pytest.raises(BodyMalformed):
        decode_registration(body, compressed=True)


def test_the_heartbeat_of_the_cpp_client_is_read() -> None:
    heartbeat = decode_heartbeat(recorded("cpp-heartbeat").body)
    assert heartbeat.client_id == "24485-127.0.0.1@DEFAULT"
    assert heartbeat.producer_groups == []
    (consumer,) = heartbeat.consumers
    assert consumer.group == "CG_A"
    assert consumer.consume_type is ConsumeType.CONSUME_PASSIVELY
    assert consumer.message_model is MessageModel.CLUSTERING
    assert consumer.subscriptions[1] == SubscriptionData("TopicTest", version=1795177018502)


def test_the_heartbeats_of_other_clients_are_read() -> None:
    node = decode_heartbeat(recorded("node-heartbeat").body)
    assert node.consumers[0].consume_from_where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    java = decode_heartbeat(recorded("java53-heartbeat").body)
    assert java.producer_groups == ["CLIENT_INNER_PRODUCER", "G_litepull_p"]


def test_a_heartbeat_survives_writing_and_reading() -> None:
    heartbeat = Heartbeat(
        "me@1",
        ["pg"],
        [
            ConsumerData(
                "cg",
                ConsumeType.CONSUME_ACTIVELY,
                MessageModel.BROADCASTING,
                ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
                [
                    SubscriptionData("T", "a > 1", "SQL92", 5),
                    SubscriptionData("U", "A", tags=["A"]),
                ],
                True,
            )
        ],
        -7,
        True,
    )
    assert decode_heartbeat(encode_heartbeat(heartbeat)) == heartbeat


def test_a_choice_of_a_newer_client_is_read_as_the_default() -> None:
    body = b'{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":"BY_PIGEON"}]}'
    assert decode_heartbeat(body).consumers[0].consume_type is ConsumeType.CONSUME_PASSIVELY


def test_the_lock_request_of_the_cpp_client_is_read_and_echoed() -> None:
    lock = decode_queue_lock(recorded("cpp-lock").body)
    assert lock.group == "CG_O"
    assert lock.queues == [MessageQueue("TopicTest", "broker-a", 0)]
    assert decode_locked_queues(encode_locked_queues(lock.queues)) == lock.queues


def test_small_bodies_survive_writing_and_reading() -> None:
    lock = QueueLock("g", "c", [MessageQueue("t", "b", 1)], True)
    assert decode_queue_lock(encode_queue_lock(lock)) == lock
    assert decode_consumer_list(encode_consumer_list(["a", "b"])) == ["a", "b"]
    assert decode_table(encode_table({"k": "v"})) == {"k": "v"}
    assert decode_topic_list(encode_topic_list(["t", "%RETRY%g"], "a:1")) == ["t", "%RETRY%g"]
    settings = {"a": "1", "b": "x=y"}
    assert decode_properties_text(b"# no\n\n" + encode_properties_text(settings)) == settings


def test_the_queue_keyed_body_of_a_java_broker_is_read() -> None:
    table = decode_queue_keyed("stats", "offsetTable", recorded("java49-topic-stats-reply").body)
    assert len(table) == 4
    assert table[MessageQueue("AdminT", "rec-a", 0)] == {
        "lastUpdateTimestamp": 1795223198558,
        "maxOffset": 2,
        "minOffset": 0,
    }


def test_a_queue_keyed_body_is_written_with_objects_as_keys() -> None:
    pairs = [(MessageQueue("t", "b", 0), {"minOffset": 0}), (MessageQueue("t", "b", 1), 7)]
    raw = encode_queue_keyed("offsetTable", pairs)
    assert raw == (
        b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:{"minOffset":0},'
        b'{"brokerName":"b","queueId":1,"topic":"t"}:7}}'
    )
    assert decode_queue_keyed("stats", "offsetTable", raw) == dict(pairs)


def test_queues_sort_as_clients_share_them() -> None:
    queues = [MessageQueue("t", "b", 10), MessageQueue("t", "a", 11), MessageQueue("t", "b", 2)]
    assert sorted(queues) == [queues[1], queues[2], queues[0]]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(JSON)
def test_standard_json_is_read_as_the_standard_library_reads_it(value: object) -> None:
    assert parse_json("x", json.dumps(value).encode()) == value
    loose = json.dumps({"a": value}).encode()[:-1] + b",7:1}"
    assert parse_json("x", loose) == {"a": value, "7": 1}


@given(st.binary(max_size=40) | st.text('{}[]:,"0123abctrue-. ', max_size=40).map(str.encode))
def test_garbage_raises_nothing_but_a_body_error(raw: bytes) -> None:
    with suppress(BodyMalformed):
        json.dumps(parse_json("x", raw))


@pytest.mark.parametrize("raw", [b"[" * 100_000, b'{"a":' * 5000, b"{1:" * 5000, b"{{" * 5000])
def test_json_nested_without_end_is_refused(raw: bytes) -> None:
    with pytest.raises(BodyMalformed):
        parse_json("x", raw)


@pytest.mark.parametrize(
    "raw",
    [
        b"[]",
        b"{}",
        b'{"clientID":[]}',
        b'{"clientID":"c","consumerDataSet":{}}',
        b'{"clientID":"c","consumerDataSet":[7]}',
        b'{"clientID":"c","heartbeatFingerprint":"x"}',
    ],
)
def test_a_heartbeat_of_a_wrong_shape_says_what_is_wrong(raw: bytes) -> None:
    with pytest.raises(BodyMalformed, match="heartbeat body"):
        decode_heartbeat(raw)
