"""Message records, batches, properties, ids and tag hashes."""

import zlib
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remoting.message import properties
from remoting.message.batch import BatchMessage, decode_batch_body, encode_batch_body
from remoting.message.errors import MessageMalformed
from remoting.message.host import NO_IPV4_HOST, ipv4_host
from remoting.message.message_id import (
    OffsetMessageId,
    message_id,
    month_start_ms,
    parse_message_id,
    unique_message_key,
)
from remoting.message.record import (
    BORN_HOST_V6_FLAG,
    COMPRESSED_FLAG,
    COMPRESSION_LZ4,
    COMPRESSION_ZLIB,
    PHYSICAL_OFFSET_AT,
    STORE_HOST_V6_FLAG,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    MessageRecord,
    body_crc,
    body_of,
    decode_record,
    decode_records,
    encode_parts_of_all,
    encode_record,
    encode_record_parts,
)
from remoting.message.record_batch import RecordBatch
from remoting.message.tags import tags_code
from remoting.wire.frame import decode_frame

DATA = Path(__file__).parents[1] / "data"

GOLDEN = bytes.fromhex(
    "00000070daa320a758932aac00000003000000000000000000000007"
    "00000000000003e8000000000000018bcfe568007f0000010000c350"
    "0000018bcfe568017f00000100002a9f000000000000000000000000"
    "0000000268690154001254414753015461674102"
    "4b455953016b3102"
)
GOLDEN_RECORD = MessageRecord(
    topic="T",
    body=b"hi",
    properties=b"TAGS\x01TagA\x02KEYS\x01k1\x02",
    queue_id=3,
    queue_offset=7,
    physical_offset=1000,
    born_timestamp=1_700_000_000_000,
    born_port=50000,
    store_timestamp=1_700_000_000_001,
    store_port=10911,
)

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
IPV4 = st.ip_addresses(v=4).map(str)
TOPIC = st.text(st.characters(exclude_categories=["Cs"]), max_size=127).filter(
    lambda topic: len(topic.encode()) <= 127
)


@st.composite
def records(draw: st.DrawFn) -> MessageRecord:
    is_born_v6, is_stored_v6 = draw(st.booleans()), draw(st.booleans())
    flag = draw(INT32) & ~(BORN_HOST_V6_FLAG | STORE_HOST_V6_FLAG)
    flag |= (BORN_HOST_V6_FLAG if is_born_v6 else 0) | (STORE_HOST_V6_FLAG if is_stored_v6 else 0)
    v6 = st.ip_addresses(v=6).map(str)
    return MessageRecord(
        topic=draw(TOPIC),
        body=draw(st.binary(max_size=200)),
        properties=draw(st.binary(max_size=100)),
        queue_id=draw(INT32),
        flag=draw(INT32),
        queue_offset=draw(INT64),
        physical_offset=draw(INT64),
        system_flag=flag,
        born_timestamp=draw(INT64),
        born_host=draw(v6 if is_born_v6 else IPV4),
        born_port=draw(INT32),
        store_timestamp=draw(INT64),
        store_host=draw(v6 if is_stored_v6 else IPV4),
        store_port=draw(INT32),
        reconsume_times=draw(INT32),
        prepared_transaction_offset=draw(INT64),
    )


def test_the_known_record_is_written_and_read() -> None:
    assert encode_record(GOLDEN_RECORD) == GOLDEN
    record, end = decode_record(GOLDEN)
    assert record == GOLDEN_RECORD
    assert end == len(GOLDEN) == 112
    assert record.body_crc == 0x58932AAC


def test_the_parts_leave_out_exactly_the_physical_offset() -> None:
    head, tail = encode_record_parts(GOLDEN_RECORD)
    assert len(head) == PHYSICAL_OFFSET_AT
    assert head + GOLDEN[28:36] + tail == GOLDEN


@given(records())
def test_a_record_survives_writing_and_reading(record: MessageRecord) -> None:
    raw = encode_record(record)
    again, end = decode_record(b"before" + raw, 6)
    assert again == record
    assert end == 6 + len(raw)
    assert again.body_crc == zlib.crc32(record.body) & 0x7FFFFFFF == body_crc(record.body)


@given(st.lists(records(), max_size=4))
def test_records_one_after_another_are_read_in_order(sent: list[MessageRecord]) -> None:
    assert decode_records(b"".join(map(encode_record, sent))) == sent


FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "topic": TOPIC,
    "body": st.binary(max_size=20),
    "properties": st.binary(max_size=20),
    "queue_id": INT32,
    "flag": INT32,
    "queue_offset": INT64,
    "system_flag": INT32.map(lambda flag: flag & ~(BORN_HOST_V6_FLAG | STORE_HOST_V6_FLAG)),
    "born_timestamp": INT64,
    "born_host": IPV4,
    "born_port": INT32,
    "store_timestamp": INT64,
    "store_host": IPV4,
    "store_port": INT32,
    "reconsume_times": INT32,
    "prepared_transaction_offset": INT64,
}


@pytest.mark.parametrize("name", FIELDS)
@given(st.data())
@settings(max_examples=10)
def test_records_are_encoded_together_as_they_are_one_by_one(
    name: str, data: st.DataObject
) -> None:
    values = data.draw(st.lists(FIELDS[name], min_size=2, max_size=4))
    sent = [replace(GOLDEN_RECORD, **{name: value}) for value in values]
    assert encode_parts_of_all(sent) == [encode_record_parts(one) for one in sent]


@given(
    st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=20), INT32), min_size=1),
    st.integers(0, 2**40),
)
def test_a_batch_is_encoded_as_its_records_are_one_by_one(
    messages: list[tuple[bytes, bytes, int]], first: int
) -> None:
    shared = replace(GOLDEN_RECORD, queue_offset=first, store_host="10.0.0.1")
    batch = RecordBatch(shared, *map(list, zip(*messages, strict=True)))
    one_by_one = [
        replace(shared, body=body, properties=run, flag=flag, queue_offset=first + at)
        for at, (body, run, flag) in enumerate(messages)
    ]
    assert list(batch) == [batch[at] for at in range(len(batch))] == one_by_one
    assert batch.encode_parts() == [encode_record_parts(one) for one in one_by_one]


@pytest.mark.parametrize("wrong", [{"properties": bytes(40_000)}, {"flag": 1 << 31}])
def test_a_batch_with_a_record_that_cannot_be_encoded_is_not_encoded(wrong: dict[str, Any]) -> None:
    records = [GOLDEN_RECORD, replace(GOLDEN_RECORD, **wrong)]
    columns = ([getattr(one, name) for one in records] for name in ("body", "properties", "flag"))
    with pytest.raises(MessageMalformed) as caught:
        RecordBatch(GOLDEN_RECORD, *columns).encode_parts()
    with pytest.raises(MessageMalformed) as alone:
        encode_record_parts(records[1])
    assert str(caught.value) == str(alone.value)


def test_a_batch_with_a_common_number_that_does_not_fit_is_not_encoded() -> None:
    batch = RecordBatch(replace(GOLDEN_RECORD, reconsume_times=1 << 31), [b"a"], [b""], [0])
    with pytest.raises(MessageMalformed, match="does not fit"):
        batch.encode_parts()


def test_a_record_with_two_bytes_of_topic_length_is_read() -> None:
    raw = bytearray(GOLDEN)
    raw[0:8] = (113).to_bytes(4, "big") + b"\xda\xa3\x20\xab"
    at = 88 + 2
    raw[at : at + 1] = b"\x00\x01"
    assert decode_record(bytes(raw)) == (GOLDEN_RECORD, 113)


@pytest.mark.parametrize("name", ["java49-pull-reply", "java53-compressed-pull-reply"])
def test_the_records_of_a_java_broker_are_written_back_byte_for_byte(name: str) -> None:
    body = decode_frame((DATA / f"{name}.bin").read_bytes()).body
    found = decode_records(body)
    assert b"".join(map(encode_record, found)) == body
    assert all(record.body_crc == body_crc(record.body) for record in found)


def test_a_committed_transaction_of_a_java_broker_is_recognised() -> None:
    body = decode_frame((DATA / "java49-pull-reply.bin").read_bytes()).body
    record = decode_records(body)[1]
    assert record.system_flag & TRANSACTION_MASK == TRANSACTION_COMMIT
    assert record.prepared_transaction_offset == 7513
    assert record.property_map()["TAGS"] == "X"


def test_the_body_compressed_by_a_java_client_is_inflated() -> None:
    body = decode_frame((DATA / "java53-compressed-pull-reply.bin").read_bytes()).body
    (record,) = decode_records(body)
    assert record.system_flag & (COMPRESSED_FLAG | COMPRESSION_ZLIB)
    assert len(body_of(record)) == 10000
    assert len(set(body_of(record))) == 1


def test_a_body_that_would_inflate_over_the_limit_is_refused() -> None:
    record = MessageRecord("T", zlib.compress(bytes(5000)), system_flag=COMPRESSED_FLAG)
    assert body_of(record, 5000) == bytes(5000)
    with pytest.raises(MessageMalformed, match="more than 4999"):
        body_of(record, 4999)


@pytest.mark.parametrize(
    ("body", "flag"),
    [
        (b"plain", COMPRESSED_FLAG),
        (zlib.compress(b"x" * 100)[:-6], COMPRESSED_FLAG),
        (b"x", COMPRESSED_FLAG | COMPRESSION_LZ4),
    ],
)
def test_a_body_that_cannot_be_inflated_is_refused(body: bytes, flag: int) -> None:
    with pytest.raises(MessageMalformed):
        body_of(MessageRecord("T", body, system_flag=flag))


@given(records(), st.data())
def test_a_damaged_record_raises_nothing_but_its_error(
    record: MessageRecord, data: st.DataObject
) -> None:
    raw = bytearray(encode_record(record))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(raw)))
    for damaged in (bytes(raw), bytes(raw[:cut])):
        with suppress(MessageMalformed):
            found = decode_records(damaged)
            assert sum(len(one.body) + 91 for one in found) <= len(damaged)


def test_a_record_longer_than_its_fields_is_refused() -> None:
    longer = (len(GOLDEN) + 3).to_bytes(4, "big") + GOLDEN[4:] + b"???"
    with pytest.raises(MessageMalformed, match="record of 115 bytes has fields of 112"):
        decode_record(longer)


@pytest.mark.parametrize("cut", [1, 7, 8, 50, 111])
def test_a_record_that_is_cut_off_is_refused(cut: int) -> None:
    with pytest.raises(MessageMalformed):
        decode_records(GOLDEN + GOLDEN[:cut])


@pytest.mark.parametrize(
    "record",
    [
        replace(GOLDEN_RECORD, topic="t" * 128),
        replace(GOLDEN_RECORD, properties=bytes(32768)),
        replace(GOLDEN_RECORD, born_host="localhost"),
        replace(GOLDEN_RECORD, store_host="::1"),
        replace(GOLDEN_RECORD, system_flag=BORN_HOST_V6_FLAG),
        replace(GOLDEN_RECORD, queue_id=1 << 31),
        replace(GOLDEN_RECORD, physical_offset=1 << 63),
    ],
)
def test_a_record_that_has_no_place_in_the_layout_is_refused(record: MessageRecord) -> None:
    with pytest.raises(MessageMalformed):
        encode_record(record)


def test_only_ipv4_addresses_are_stored_for_peers() -> None:
    assert ipv4_host("10.1.2.3") == "10.1.2.3"
    assert ipv4_host("::ffff:10.1.2.3") == "10.1.2.3"
    assert ipv4_host("fe80::1") == NO_IPV4_HOST
    assert ipv4_host("unix") == NO_IPV4_HOST


BATCH_MESSAGES = st.lists(
    st.builds(BatchMessage, st.binary(max_size=100), st.binary(max_size=100), INT32), max_size=6
)


@given(BATCH_MESSAGES)
def test_a_batch_survives_writing_and_reading(messages: list[BatchMessage]) -> None:
    assert decode_batch_body(encode_batch_body(messages)) == messages


def test_reading_a_batch_ends_at_the_first_message_above_the_limit() -> None:
    body = encode_batch_body([BatchMessage(b"x")] * 3)
    assert len(decode_batch_body(body, 3)) == 3
    with pytest.raises(MessageMalformed, match="over 2 messages"):
        # The third message is not even one: nothing behind the limit is looked at.
        decode_batch_body(body[:46] + b"\xff" * 23, 2)


def test_a_message_of_a_batch_without_properties_takes_24_bytes() -> None:
    raw = encode_batch_body([BatchMessage(b"hi")])
    assert raw[:4] == b"\x00\x00\x00\x18"
    assert len(raw) == 24


@pytest.mark.parametrize(("at", "value"), [(3, 29), (19, 3), (19, 200), (16, 255), (23, 2)])
def test_a_batch_whose_lengths_contradict_one_another_is_refused(at: int, value: int) -> None:
    raw = bytearray(encode_batch_body([BatchMessage(b"hi", b"a\x01b\x02"), BatchMessage(b"x")]))
    raw[at] = value
    with pytest.raises(MessageMalformed, match="batch"):
        decode_batch_body(bytes(raw))


@pytest.mark.parametrize("name", ["cpp-send-batch", "java53-send-batch"])
def test_the_batch_of_a_real_client_is_written_back_byte_for_byte(name: str) -> None:
    command = decode_frame((DATA / f"{name}.bin").read_bytes())
    messages = decode_batch_body(command.body)
    assert len(messages) > 1
    assert all(message.property_map()["UNIQ_KEY"] for message in messages)
    assert encode_batch_body(messages) == command.body


@given(BATCH_MESSAGES, st.data())
def test_a_damaged_batch_raises_nothing_but_its_error(
    messages: list[BatchMessage], data: st.DataObject
) -> None:
    raw = bytearray(encode_batch_body(messages) or b"\0")
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    for damaged in (bytes(raw), bytes(raw[:-1])):
        try:
            again = decode_batch_body(damaged)
        except MessageMalformed:
            continue
        assert sum(22 + len(one.body) + len(one.properties) for one in again) == len(damaged)


@pytest.mark.parametrize(
    ("tag", "code"),
    [
        ("", 0),
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("*", 42),
        ("中文", 646394),
        ("😀", 1772899),
        ("polygenelubricants", -(1 << 31)),
    ],
)
def test_a_tag_hashes_as_in_java(tag: str, code: int) -> None:
    assert tags_code(tag) == code


def test_an_offset_id_is_written_and_read() -> None:
    text = message_id("127.0.0.1", 10911, 1000)
    assert text == "7F00000100002A9F00000000000003E8"
    assert parse_message_id(text) == OffsetMessageId("127.0.0.1", 10911, 1000)
    long_text = message_id("fe80::1", 10911, 5)
    assert len(long_text) == 56
    assert parse_message_id(long_text) == OffsetMessageId("fe80::1", 10911, 5)


@pytest.mark.feature("F45")
@given(IPV4, INT32, INT64)
def test_every_offset_id_is_read_as_it_was_written(host: str, port: int, offset: int) -> None:
    assert parse_message_id(message_id(host, port, offset)) == OffsetMessageId(host, port, offset)


@pytest.mark.parametrize("text", ["", "7F", "Z" * 32, "7F00000100002A9F00000000000003E 8"])
def test_a_text_that_is_no_offset_id_is_refused(text: str) -> None:
    with pytest.raises(MessageMalformed, match="32 or 56"):
        parse_message_id(text)


def test_a_unique_key_has_the_parts_of_the_java_clients() -> None:
    began = int(datetime(2026, 2, 1, tzinfo=UTC).timestamp() * 1000)
    key = unique_message_key("10.0.0.1", 0x12345, 0xCAFE, began + 0x1234, 0x10001)
    assert key == "0A000001" + "2345" + "0000CAFE" + "00001234" + "0001"


@given(st.datetimes(datetime(1970, 1, 1), datetime(2999, 12, 31)))
def test_the_month_begins_where_the_calendar_says(moment: datetime) -> None:
    moment = moment.replace(tzinfo=UTC, microsecond=0)
    began = moment.replace(day=1, hour=0, minute=0, second=0)
    assert month_start_ms(int(moment.timestamp()) * 1000) == began.timestamp() * 1000


def is_plain(text: str) -> bool:
    return "\x01" not in text and "\x02" not in text and text.isprintable()


NAMES = st.text(min_size=1, max_size=12).filter(is_plain)
VALUES = st.text(max_size=20).filter(is_plain)


@given(st.dictionaries(NAMES, VALUES, max_size=6))
def test_properties_survive_writing_and_reading(pairs: dict[str, str]) -> None:
    raw = properties.encode_properties(pairs)
    assert properties.decode_properties(raw) == pairs
    assert properties.decode_properties(properties.properties_text(raw)) == pairs


@given(st.lists(st.sampled_from([b"K", b"KK", b"a", b"\x01", b"\x02", b"\xff"]), max_size=16))
def test_one_value_is_found_as_reading_the_whole_run_would(pieces: list[bytes]) -> None:
    run = b"".join(pieces)
    pairs = properties.decode_properties(run)
    assert properties.found_value(run, b"K") == pairs.get("K")
    some = {name: text for name, text in pairs.items() if name in ("K", "a")}
    assert properties.decode_some(run, {b"K": "K", b"a": "a"}) == some


@given(st.binary(max_size=60))
def test_the_text_of_properties_loses_no_byte(raw: bytes) -> None:
    assert properties.properties_bytes(properties.properties_text(raw)) == raw


@given(st.binary(max_size=60))
def test_editing_nothing_changes_nothing(raw: bytes) -> None:
    assert properties.edit_properties(raw, {}, ["NOT_THERE"]) == raw


def test_editing_keeps_every_other_byte() -> None:
    raw = b"TAGS\x01TagA\x02\x01\x02odd\x02DELAY\x013\x02k\x01\xff\xfe\x01v"
    edited = properties.edit_properties(raw, {"TAGS": "B", "NEW": "n"}, ["DELAY"])
    assert edited == b"\x01\x02odd\x02k\x01\xff\xfe\x01v\x02TAGS\x01B\x02NEW\x01n\x02"


def test_the_odd_properties_of_the_javascript_client_are_read() -> None:
    command = decode_frame((DATA / "node-retry-send.bin").read_bytes())
    pairs = properties.decode_properties(command.text("i"))
    assert pairs["RETRY_TOPIC"] == "TopicTest"
    assert pairs["DELAY"] == "0"
    assert "" not in pairs


@pytest.mark.parametrize("pairs", [{"": "v"}, {"a\x01": "v"}, {"a\x02": "v"}, {"a": "v\x02"}])
def test_a_pair_that_would_break_the_run_is_refused(pairs: dict[str, str]) -> None:
    with pytest.raises(MessageMalformed):
        properties.encode_properties(pairs)


def test_half_a_surrogate_pair_in_properties_is_refused() -> None:
    with pytest.raises(MessageMalformed, match="surrogate"):
        properties.properties_bytes("a\ud800")
