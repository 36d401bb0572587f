from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger_spark.records.message_columns import message_batch
from dledger_spark.records.property_columns import PropertyColumns
from dledger_spark.scan import arrow_batches
from dledger_spark.schema import ENTRY_SCHEMA, MESSAGE_SCHEMA
from remoting.message.message_id import message_id
from remoting.message.properties import decode_properties
from remoting.message.record import (
    BORN_HOST_V6_FLAG,
    STORE_HOST_V6_FLAG,
    MessageRecord,
    decode_record,
    encode_record,
)
from tests.dledger_spark.broker_bodies import BrokerBodies
from tests.examples import examples

VECTOR = bytes.fromhex(
    "00000070daa320a758932aac0000000300000000000000000000000700000000000003e800000000"
    "0000018bcfe568007f0000010000c3500000018bcfe568017f00000100002a9f0000000000000000"
    "0000000000000002686901540012544147530154616741024b455953016b3102"
)


def as_entries(bodies: list[bytes], first: int = 0) -> pa.RecordBatch:
    rows = [
        {
            **dict.fromkeys(ENTRY_SCHEMA.names, 0),
            **{"raft_group": "g", "index": first + at, "term": 3, "body": body},
        }
        for at, body in enumerate(bodies)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=ENTRY_SCHEMA)


def clean(text: str) -> str:
    """What a string column holds of text that is not all UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def instant(time_ms: int) -> datetime | None:
    if not -62_135_596_800_000 <= time_ms <= 253_402_300_799_999:
        return None
    days, rest = divmod(time_ms, 86_400_000)
    day = datetime.fromordinal(719_163 + days).replace(tzinfo=UTC)
    seconds, thousandths = divmod(rest, 1000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return day.replace(hour=hour, minute=minute, second=second, microsecond=thousandths * 1000)


def row_of(record: MessageRecord, index: int) -> dict[str, Any]:
    properties = {clean(k): clean(v) for k, v in decode_properties(record.properties).items()}
    return {
        "raft_group": "g",
        "index": index,
        "term": 3,
        "topic": record.topic,
        "queue": record.queue_id,
        "offset": record.queue_offset,
        "message_id": message_id(record.store_host, record.store_port, record.physical_offset),
        "unique_key": properties.get("UNIQ_KEY"),
        "keys": properties.get("KEYS"),
        "tags": properties.get("TAGS"),
        "born_time": instant(record.born_timestamp),
        "store_time": instant(record.store_timestamp),
        "born_host": record.born_host,
        "born_port": record.born_port,
        "store_host": record.store_host,
        "store_port": record.store_port,
        "reconsume_times": record.reconsume_times,
        "flag": record.flag,
        "system_flag": record.system_flag,
        "physical_offset": record.physical_offset,
        "prepared_transaction_offset": record.prepared_transaction_offset,
        "body_size": len(record.body),
        "properties": properties,
        "body": record.body,
    }


def rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = batch.to_pylist()
    for row in found:
        names = [name for name, _value in row["properties"]]
        assert len(names) == len(set(names)), "Spark refuses a map with a name twice"
        row["properties"] = dict(row["properties"])
    return found


def as_v2(record: bytes) -> bytes:
    """The same record with two bytes of topic length."""
    decoded, _end = decode_record(record)
    at = len(record) - 3 - len(decoded.topic.encode()) - len(decoded.properties)
    longer = record[:at] + b"\0" + record[at:]
    return (len(longer)).to_bytes(4, "big") + b"\xda\xa3\x20\xab" + longer[8:]


GOOD = MessageRecord("T", b"body", b"KEYS\x01k\x02")
I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
PIECES = st.sampled_from(
    [b"TAGS", b"KEYS", b"UNIQ_KEY", b"a", b"\x01", b"\x02", b"", b"\xff", "é".encode(), b"v w"]
)
RUNS = st.lists(PIECES, max_size=14).map(b"".join)


@st.composite
def records(draw: st.DrawFn) -> MessageRecord:
    born_v6, store_v6 = draw(st.booleans()), draw(st.booleans())
    flags = draw(I32) & ~(BORN_HOST_V6_FLAG | STORE_HOST_V6_FLAG)
    return MessageRecord(
        topic=draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=30)),
        body=draw(st.binary(max_size=60)),
        properties=draw(RUNS),
        queue_id=draw(I32),
        flag=draw(I32),
        queue_offset=draw(I64),
        physical_offset=draw(I64),
        system_flag=flags
        | (BORN_HOST_V6_FLAG if born_v6 else 0)
        | (STORE_HOST_V6_FLAG if store_v6 else 0),
        born_timestamp=draw(I64 | st.integers(0, 2**42)),
        born_host=draw(st.ip_addresses(v=6 if born_v6 else 4).map(str)),
        born_port=draw(I32),
        store_timestamp=draw(I64 | st.integers(0, 2**42)),
        store_host=draw(st.ip_addresses(v=6 if store_v6 else 4).map(str)),
        store_port=draw(I32),
        reconsume_times=draw(I32),
        prepared_transaction_offset=draw(I64),
    )


@settings(deadline=None, max_examples=examples(150))
@given(
    found=st.lists(st.tuples(records(), st.booleans()), max_size=8),
    others=st.lists(st.binary(max_size=120), max_size=4),
    order=st.randoms(use_true_random=False),
)
def test_columns_equal_the_records_decoded_one_by_one(
    found: list[tuple[MessageRecord, bool]], others: list[bytes], order: Any
) -> None:
    bodies = [as_v2(encode_record(r)) if v2 else encode_record(r) for r, v2 in found] + others
    order.shuffle(bodies)
    expected = [
        row_of(decode_record(body)[0], 10 + at)
        for at, body in enumerate(bodies)
        if body not in others
    ]
    assert rows(message_batch(as_entries(bodies, 10))) == expected


def test_the_record_of_the_documentation_is_read() -> None:
    (row,) = rows(message_batch(as_entries([VECTOR])))
    assert row["topic"] == "T"
    assert row["message_id"] == "7F00000100002A9F00000000000003E8"
    assert row["properties"] == {"TAGS": "TagA", "KEYS": "k1"}
    assert (row["queue"], row["offset"], row["body"]) == (3, 7, b"hi")
    assert row["born_time"] == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert row["store_time"] == datetime(2023, 11, 14, 22, 13, 20, 1000, tzinfo=UTC)


def test_a_record_with_a_command_behind_it_is_the_record() -> None:
    command = b"\0\0\0\x0bDLB\x04abc"
    found = rows(message_batch(as_entries([VECTOR, VECTOR + command, VECTOR + command[:-1]])))
    assert [row.pop("index") for row in found] == [0, 1]
    assert found[0] == found[1]


@settings(deadline=None, max_examples=examples(100))
@given(
    st.lists(st.lists(records(), min_size=1, max_size=4) | st.binary(max_size=99), max_size=6),
    st.integers(0, len(encode_record(GOOD)) - 2),
)
def test_each_record_of_an_entry_is_a_message(
    found: list[list[MessageRecord] | bytes], cut: int
) -> None:
    bodies: list[bytes] = []
    expected = []
    for one in found:
        if isinstance(one, list):
            expected += [row_of(decode_record(encode_record(r))[0], len(bodies)) for r in one]
            bodies.append(b"".join(map(encode_record, one)))
        else:
            bodies.append(one)
    # An entry that is not whole has no message.
    spoilt = b"".join(map(encode_record, [GOOD, GOOD, GOOD]))
    bodies.append(spoilt[: len(spoilt) - 1 - cut])
    assert rows(message_batch(as_entries(bodies))) == expected
    assert len(message_batch(as_entries([spoilt, spoilt]))) == 6


def test_an_entry_with_a_record_whose_lengths_lie_has_no_message() -> None:
    good = encode_record(GOOD)
    lies = good[:84] + (1).to_bytes(4, "big") + good[88:]
    assert len(message_batch(as_entries([good + lies, good, lies + good, good + good]))) == 3


def test_what_is_no_record_is_passed_over() -> None:
    bodies = [b"", b"command", bytes(200), VECTOR, VECTOR[:-1], VECTOR + b"\0", b"\0" * 91]
    assert [row["index"] for row in rows(message_batch(as_entries(bodies)))] == [3]


def test_a_batch_without_messages_has_the_columns_all_the_same() -> None:
    for bodies in ([], [b""], [b"command", b"x" * 300]):
        found = message_batch(as_entries(bodies))
        assert found.schema == MESSAGE_SCHEMA
        assert len(found) == 0


@pytest.mark.parametrize(
    ("at", "content"),
    [
        (84, b"\x00\x00\x10\x00"),
        (84, b"\xff\xff\xff\xff"),
        (84, b"\x7f\xff\xff\xff"),
        (90, b"\x7f"),
        (92, b"\x00\x11"),
        (92, b"\xff\xff"),
        (36, b"\xff\xff\xff\xff"),
    ],
)
def test_a_record_whose_lengths_lie_is_no_message(at: int, content: bytes) -> None:
    broken = VECTOR[:at] + content + VECTOR[at + len(content) :]
    found = message_batch(as_entries([VECTOR, broken, VECTOR], 7))
    assert [row["index"] for row in rows(found)] == [7, 9]
    assert len(message_batch(as_entries([broken]))) == 0


def test_only_the_columns_asked_for_are_made() -> None:
    found = message_batch(as_entries([VECTOR]), ["offset", "topic"])
    assert found.to_pylist() == [{"offset": 7, "topic": "T"}]


def test_a_record_may_be_a_slice_of_a_larger_array() -> None:
    entries = as_entries([b"x", VECTOR, b"y", VECTOR, VECTOR])
    assert [row["index"] for row in rows(message_batch(entries.slice(2, 2)))] == [3]


@settings(deadline=None, max_examples=examples(200))
@given(st.lists(RUNS, max_size=6))
def test_properties_equal_those_decoded_one_by_one(runs: list[bytes]) -> None:
    found = PropertyColumns(pa.array(runs, pa.binary()))
    expected = [{clean(k): clean(v) for k, v in decode_properties(run).items()} for run in runs]
    assert [dict(pairs) for pairs in found.map_column().to_pylist()] == expected
    assert found.column("TAGS").to_pylist() == [pairs.get("TAGS") for pairs in expected]


def test_many_different_names_are_not_counted_in_a_huge_table() -> None:
    runs = [f"name{at}\x01{at}\x02twice\x01a\x02twice\x01b\x02".encode() for at in range(6000)]
    found = PropertyColumns(pa.array(runs, pa.binary())).map_column().to_pylist()
    assert found[5999] == [("name5999", "5999"), ("twice", "b")]
    assert all(len(pairs) == 2 for pairs in found)


def test_messages_of_a_log_carry_their_place(write_log: Callable[..., Path]) -> None:
    bodies = BrokerBodies()
    bodies.put_topic("t")
    for at in range(30):
        bodies.message(MessageRecord(topic="t", body=bytes([at]) * at))
        bodies.command()
    folder = write_log(bodies.bodies, segment_bytes=2048)
    found = [
        row
        for batch in arrow_batches(str(folder), table="messages", batch_bytes=700)
        for row in rows(batch)
    ]
    places = [row["pos"] for batch in arrow_batches(str(folder)) for row in batch.to_pylist()]
    assert [row["index"] for row in found] == list(range(1, 61, 2))
    assert [row["physical_offset"] for row in found] == [at + 48 for at in places[1::2]]
    assert [row["offset"] for row in found] == list(range(30))
    assert [row["body"] for row in found] == [bytes([at]) * at for at in range(30)]
    assert np.all([row["term"] == 1 for row in found])
    assert {row["topic"] for row in found} == {"t"}
