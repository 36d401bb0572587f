"""Loose JSON: what is read, what is refused, and that no body costs more than its length."""

import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from remoting.bodies.consumer_group import MAX_LOCKED_QUEUES, decode_queue_lock
from remoting.bodies.heartbeat import (
    MAX_HEARTBEAT_BYTES,
    MAX_HEARTBEAT_GROUPS,
    MAX_HEARTBEAT_SUBSCRIPTIONS,
    ConsumerData,
    Heartbeat,
    decode_heartbeat,
    encode_heartbeat,
)
from remoting.bodies.json_object import JsonObject
from remoting.bodies.registration import decode_registration
from remoting.bodies.route import decode_route
from remoting.bodies.topic_config import MAX_TABLE_TOPICS
from remoting.wire.errors import BodyMalformed
from remoting.wire.loose_json import LARGE, SMALL, JsonSize, JsonValue, parse_json
from tests.examples import examples

# Long enough that work which grows with the square of the length takes minutes.
BODY_BYTES = 256 * 1024

FRAGMENTS = st.text('{}[]:,"\\ \n\0' + "0123abnu-.$'é", min_size=1, max_size=9)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{0:"a", -1 :2,1.5:3}', {"0": "a", "-1": 2, "1.5": 3}),
        ("{a:1,$b.c : 2}", {"a": 1, "$b.c": 2}),
        (
            '{{"topic":"T}:{","queueId":0} :{"a":[1,{"b":2}]},{"x":1}:7}',
            {'{"queueId":0,"topic":"T}:{"}': {"a": [1, {"b": 2}]}, '{"x":1}': 7},
        ),
        ("{{}:1}", {"{}": 1}),
        ('{{1:"a\\"b"}:1}', {'{"1":"a\\"b"}': 1}),
        ('{{"a":[1,2]}:"1:2,{3:4}",5:{}}', {'{"a":[1,2]}': "1:2,{3:4}", "5": {}}),
        ('{1:"\\ud800",2:"\\ud83d\\ude00","\\\\ud800":3}', {"1": "�", "2": "😀", "\\ud800": 3}),
    ],
)
def test_keys_without_quotes_are_read_as_their_text(text: str, value: JsonValue) -> None:
    assert parse_json("x", text.encode()) == value


@pytest.mark.parametrize("depth", [3, 20, 20_000])
def test_an_object_inside_of_an_object_that_is_a_key_is_refused(depth: int) -> None:
    with pytest.raises(BodyMalformed):
        parse_json("x", b"{" * depth + b'"a":1' + b"}:1" * (depth - 1) + b"}")


@pytest.mark.parametrize("text", ["{1:2}3", '{1:"a}', "{1\0:2}", "{\0:1}", "{1:\0}", "{{1}:2}"])
def test_text_that_is_not_even_loosely_json_is_refused(text: str) -> None:
    with pytest.raises(BodyMalformed, match="x body: not JSON"):
        parse_json("x", text.encode())


def cost(head: str, fragment: str) -> tuple[float, int]:
    """Processor seconds and the most bytes that one parse of a long body takes."""
    body = (head + fragment * (BODY_BYTES // len(fragment.encode()))).encode()
    began = time.process_time()
    with suppress(BodyMalformed):
        parse_json("x", body)
    took_s = time.process_time() - began
    tracemalloc.start()
    try:
        with suppress(BodyMalformed):
            parse_json("x", body)
        return took_s, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@settings(max_examples=examples(40), deadline=None)
@given(st.sampled_from(["", "{1:", '{"a":[', "{{", '{1:"']), FRAGMENTS)
@example("{1:", '\\"')
@example('{1:"', '\\"')
@example("{", "{}:1,")
@example("{", "{{}:1}:")
@example("{1:", ", ")
@example("[", '"\\ud800",')
@example("{1:[", "[],")
def test_time_and_memory_grow_with_the_length_of_a_body_and_not_faster(
    head: str, fragment: str
) -> None:
    took_s, peak_bytes = cost(head, fragment)
    # A pass costs below 0.1 s here; one that looks back at each character costs minutes.
    assert took_s < 5
    assert peak_bytes < 160 * BODY_BYTES


@pytest.mark.parametrize("size", [LARGE, SMALL])
def test_the_values_of_a_body_are_counted_before_it_is_read(size: JsonSize) -> None:
    body = b"[" + b"[]," * (size.values // 2) + b"1]"
    tracemalloc.start()
    try:
        with pytest.raises(BodyMalformed, match=f"more than {size.values} values"):
            parse_json("x", body, size=size)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [LARGE, SMALL])
def test_the_objects_that_are_keys_are_bounded(size: JsonSize) -> None:
    def body(count: int) -> bytes:
        return b"{" + b",".join(b'{"q":%d}:1' % number for number in range(count)) + b"}"

    parsed = parse_json("x", body(size.object_keys), size=size)
    assert isinstance(parsed, dict)
    assert len(parsed) == size.object_keys
    with pytest.raises(BodyMalformed, match="objects as keys"):
        parse_json("x", body(size.object_keys + 1), size=size)


@pytest.mark.parametrize(
    ("decode", "head"),
    [
        (decode_heartbeat, '{"clientID":"c","x":'),
        (decode_queue_lock, '{"clientId":"c","consumerGroup":"g","x":'),
        (decode_route, '{"x":'),
        (lambda body: JsonObject.parse("consumer group", body), '{"groupName":"g","x":'),
    ],
)
def test_a_request_that_lists_little_holds_little(
    decode: Callable[[bytes], object], head: str
) -> None:
    decode(f"{head}{{}}}}".encode())
    with pytest.raises(BodyMalformed, match=f"more than {SMALL.values} values"):
        decode(f"{head}[{'[],' * (SMALL.values // 2)}1]}}".encode())
    keys = ",".join([f'{{"q":{number}}}:1' for number in range(SMALL.object_keys + 1)])
    with pytest.raises(BodyMalformed, match="objects as keys"):
        decode(f"{head}{{{keys}}}}}".encode())


def test_a_heartbeat_is_bounded_in_bytes_and_entries() -> None:
    longest = encode_heartbeat(Heartbeat("c", ["g"]))
    longest += b" " * (MAX_HEARTBEAT_BYTES - len(longest))
    assert decode_heartbeat(longest).producer_groups == ["g"]
    with pytest.raises(BodyMalformed, match=f"at most {MAX_HEARTBEAT_BYTES} are read"):
        decode_heartbeat(longest + b" ")
    with pytest.raises(BodyMalformed, match="producerDataSet has 1001 entries"):
        decode_heartbeat(encode_heartbeat(Heartbeat("c", ["g"] * (MAX_HEARTBEAT_GROUPS + 1))))
    consumers = [ConsumerData("g")] * (MAX_HEARTBEAT_GROUPS + 1)
    with pytest.raises(BodyMalformed, match="consumerDataSet has 1001 entries"):
        decode_heartbeat(encode_heartbeat(Heartbeat("c", [], consumers)))
    half = ",".join(["{}"] * (MAX_HEARTBEAT_SUBSCRIPTIONS // 2 + 1))
    halves = f'{{"subscriptionDataSet":[{half}]}}'
    with pytest.raises(BodyMalformed, match="10002 subscriptions"):
        decode_heartbeat(f'{{"clientID":"c","consumerDataSet":[{halves},{halves}]}}'.encode())


def test_the_queues_of_a_lock_request_are_bounded() -> None:
    body = b'{"consumerGroup":"g","clientId":"c","mqSet":[' + b"{}," * MAX_LOCKED_QUEUES + b"{}]}"
    with pytest.raises(BodyMalformed, match="at most 10240 are read"):
        decode_queue_lock(body)


def test_the_topics_of_a_registration_are_bounded_before_they_are_read() -> None:
    table = b",".join(b'"%d":{}' % number for number in range(MAX_TABLE_TOPICS + 1))
    body = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{' + table + b"}}}"
    with pytest.raises(BodyMalformed, match=r"more than 65536 values|50001 topics"):
        decode_registration(body)
