from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_mq.received_message import ReceivedMessage, cut_messages, received
from remoting.bodies.message_queue import MessageQueue
from remoting.message.errors import MessageMalformed
from remoting.message.properties import encode_properties
from remoting.message.record import (
    BORN_HOST_V6_FLAG,
    COMPRESSED_FLAG,
    STORE_HOST_V6_FLAG,
    MessageRecord,
    decode_records,
    encode_record,
)

QUEUE = MessageQueue("T", "broker-a", 3)
UNIQUE = "7F0000010001000000000000000001"

texts = st.text("a\u00e9 0", max_size=8)
runs = st.one_of(
    st.binary(max_size=40),
    st.dictionaries(
        st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "RETRY_TOPIC", "own"]), texts, max_size=4
    ).map(encode_properties),
)
numbers = st.integers(-(1 << 63), (1 << 63) - 1)


@st.composite
def records(draw: st.DrawFn) -> MessageRecord:
    """Mostly of the queue that is read, as brokers write them; some of every other kind."""
    body = draw(st.binary(max_size=60))
    flag = draw(st.sampled_from([0, 0, 0, 2, COMPRESSED_FLAG, 16, 32, 48, COMPRESSED_FLAG | 16]))
    if flag & COMPRESSED_FLAG and draw(st.booleans()):
        body = zlib.compress(body)
    return MessageRecord(
        draw(st.sampled_from(["T", "T", "T", "T2", "%RETRY%g", "\u00e9", ""])),
        body,
        draw(runs),
        queue_id=draw(st.sampled_from([3, 3, 3, 4])),
        flag=draw(st.integers(-5, 5)),
        queue_offset=draw(numbers),
        physical_offset=draw(numbers),
        system_flag=flag,
        born_timestamp=draw(numbers),
        born_host="::1" if flag & BORN_HOST_V6_FLAG else "1.2.3.4",
        born_port=5,
        store_timestamp=draw(numbers),
        store_host="::2" if flag & STORE_HOST_V6_FLAG else "5.6.7.8",
        store_port=draw(st.integers(0, 65535)),
        reconsume_times=draw(st.integers(0, 20)),
    )


def plainly(body: bytes) -> tuple[list[ReceivedMessage], list[MessageRecord]] | None:
    """Each record decoded by itself; None when one is damaged or something else is there."""
    messages, unreadable = [], []
    try:
        found = decode_records(body)
    except MessageMalformed:
        return None
    for record in found:
        if zlib.crc32(record.body) & 0x7FFFFFFF != record.body_crc:
            return None
        try:
            messages.append(received(record, QUEUE))
        except MessageMalformed:
            unreadable.append(record)
    return messages, unreadable


def cut(body: bytes) -> tuple[list[ReceivedMessage], list[MessageRecord]] | None:
    try:
        return cut_messages(body, QUEUE)
    except MessageMalformed:
        return None


@given(st.lists(records(), max_size=6))
def test_messages_that_are_cut_are_those_that_are_decoded(some: list[MessageRecord]) -> None:
    body = b"".join(map(encode_record, some))
    found = cut(body)
    assert found == plainly(body)
    assert found is not None
    assert len(found[0]) + len(found[1]) == len(some)


@given(st.lists(records(), min_size=1, max_size=3), st.data())
def test_damaged_answers_are_refused_or_read_alike(
    some: list[MessageRecord], data: st.DataObject
) -> None:
    body = bytearray(b"".join(map(encode_record, some)))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body) - 1))
        what = data.draw(st.sampled_from(["change", "cut", "add"]))
        if what == "change":
            body[at] = data.draw(st.sampled_from([0, 1, 2, 127, 128, 255]))
        elif what == "cut" and at:
            del body[at:]
        else:
            body += bytes([at & 255])
    assert cut(bytes(body)) == plainly(bytes(body))


def test_a_damaged_body_that_comes_again_keeps_no_other_from_being_read() -> None:
    some = [
        MessageRecord("T", body, queue_id=3, queue_offset=at)
        for at, body in enumerate((b"first", b"second", b"third"))
    ]
    body = b"".join(map(encode_record, some)).replace(b"second", b"sEcond")
    messages, unreadable = cut_messages(body, QUEUE, come_again=True)
    assert [message.body for message in messages] == [b"first", b"third"]
    assert [record.queue_offset for record in unreadable] == [1]


def test_a_message_shows_what_a_record_has() -> None:
    run = encode_properties({"TAGS": "a", "KEYS": "k l", "UNIQ_KEY": UNIQUE, "own": "1"})
    record = MessageRecord(
        "T", b"body", run, queue_id=3, queue_offset=7, physical_offset=900, reconsume_times=2
    )
    ((message,), _unreadable) = cut_messages(encode_record(record), QUEUE)
    assert (message.topic, message.body, message.queue) == ("T", b"body", QUEUE)
    assert (message.tags, message.keys, message.message_id) == ("a", "k l", UNIQUE)
    assert message.properties["own"] == "1"
    assert (message.queue_offset, message.physical_offset) == (7, 900)
    assert "b'body'" in repr(message)
    assert message != object()
    assert message == ReceivedMessage(QUEUE, 7, b"body", message.properties, 900, 2)
    assert message != ReceivedMessage(QUEUE, 7, b"body", message.properties, 900, 3)


def test_a_message_that_was_retried_has_its_own_topic_and_an_id_of_the_broker() -> None:
    record = MessageRecord(
        "%RETRY%g",
        b"x",
        encode_properties({"RETRY_TOPIC": "Orders"}),
        physical_offset=0x10,
        store_host="127.0.0.1",
        store_port=10911,
    )
    retry = MessageQueue("%RETRY%g", "broker-a", 0)
    ((message,), _unreadable) = cut_messages(encode_record(record), retry)
    assert (message.topic, message.queue) == ("Orders", retry)
    assert message.message_id == "7F00000100002A9F0000000000000010"


def test_a_body_that_cannot_be_inflated_is_told_before_a_listener_could_see_it() -> None:
    bad = MessageRecord("T", b"no zlib", queue_id=3, system_flag=COMPRESSED_FLAG)
    good = MessageRecord("T", zlib.compress(b"x"), queue_id=3, system_flag=COMPRESSED_FLAG)
    messages, unreadable = cut_messages(encode_record(bad) + encode_record(good), QUEUE)
    assert [message.body for message in messages] == [b"x"]
    assert unreadable == [bad]


def test_properties_that_are_too_long_are_refused_as_by_every_other_reader() -> None:
    record = bytearray(encode_record(MessageRecord("T", b"x", b"a" * 32767, queue_id=3)))
    assert cut(bytes(record)) is not None
    record[:4] = (len(record) + 1).to_bytes(4, "big")
    record[-32769:-32767] = (32768).to_bytes(2, "big")
    assert cut(bytes(record) + b"a") is None


@pytest.mark.parametrize("flag", [0, BORN_HOST_V6_FLAG, COMPRESSED_FLAG])
def test_an_answer_with_a_damaged_body_is_refused_whole(flag: int) -> None:
    whole = encode_record(MessageRecord("T", b"whole", queue_id=3))
    host = "::1" if flag & BORN_HOST_V6_FLAG else "1.2.3.4"
    stored = zlib.compress(b"body") if flag & COMPRESSED_FLAG else b"body"
    record = MessageRecord(
        "T", stored, queue_id=3, queue_offset=41, system_flag=flag, born_host=host
    )
    raw = encode_record(record)
    body_at = raw.index(stored)
    for at in range(body_at, body_at + len(stored)):
        damaged = bytearray(raw)
        damaged[at] ^= 1
        with pytest.raises(MessageMalformed, match="offset 41 is damaged"):
            cut_messages(whole + bytes(damaged), QUEUE)
    assert len(cut_messages(whole + raw, QUEUE)[0]) == 2
