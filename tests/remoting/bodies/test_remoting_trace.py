"""What clients tell of messages in the trace topic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.bodies.trace import TraceRecord, decode_trace, encode_trace_record

ID = "7F00000100002A9F0000000000000001"

# As RocketMQ's TraceDataEncoder writes them: 4.9 for another cloud's channel, 4.9, and 4.7 with the
# client's host.
PUB = [
    "Pub", "1700000000000", "DefaultRegion", "shop", "Orders", ID, "eu", "order-7",
    "10.0.0.1:10911", "9", "3", "0", "0A000001000029CC000000000000A1B2", "true",
]  # fmt: skip
BEFORE = ["SubBefore", "1700000000100", "null", "billing", "R1", ID, "1", "order-7"]
AFTER = ["SubAfter", "R1", ID, "42", "false", "order-7", "4"]
END = [
    "EndTransaction", "1700000000050", "DefaultRegion", "shop", "Orders", ID, "null", "order-7",
    "10.0.0.1:10911", "2", "T1", "COMMIT_MESSAGE", "false",
]  # fmt: skip


def body(*records: list[str]) -> bytes:
    return "".join("\x01".join(fields) + "\x02" for fields in records).encode()


def test_a_sent_message_is_told() -> None:
    details = {
        "region": "DefaultRegion",
        "tags": "eu",
        "keys": "order-7",
        "store_host": "10.0.0.1:10911",
        "body_bytes": "9",
        "message_type": "normal",
        "offset_message_id": PUB[12],
    }
    expected = TraceRecord("Pub", ID, 1_700_000_000_000, "shop", "Orders", 3, True, "", details)
    assert decode_trace(body(PUB)) == [expected]
    (with_host,) = decode_trace(body([*PUB, "10.0.0.9"]))
    assert with_host.details["client_host"] == "10.0.0.9"


def test_a_call_of_a_listener_is_told_by_two_records() -> None:
    before, after = decode_trace(body(BEFORE, AFTER))
    assert (before.kind, before.group, before.request) == ("SubBefore", "billing", "R1")
    assert before.details == {"retry_times": "1", "keys": "order-7"}
    assert (after.request, after.cost_ms, after.succeeded, after.at_ms) == ("R1", 42, False, 0)
    assert after.details == {"keys": "order-7", "outcome": "failed"}
    (newer,) = decode_trace(body([*AFTER, "1700000000142", "billing"]))
    assert (newer.at_ms, newer.group) == (1_700_000_000_142, "billing")


def test_ends_of_transactions_and_recalls_are_told() -> None:
    end, recall = decode_trace(body(END, ["Recall", "5", "r", "shop", "Orders", ID, "true"]))
    assert (end.details["state"], end.details["message_type"]) == ("COMMIT_MESSAGE", "commit")
    assert (recall.kind, recall.at_ms, recall.succeeded) == ("Recall", 5, True)


def test_what_rocketmqs_java_client_4_9_8_writes_is_read() -> None:
    sent = (
        b"Pub\x011795577411467\x01DefaultRegion\x01shop\x01Orders\x01FD00022C8D4E0E2F2A7C590F8A0000\x01eu"
        b"\x01order-7\x01127.0.0.1:27312\x0110\x0125\x010\x017F00000100006AB0000000000000036A\x01true\x02"
    )
    taken = (
        b"SubBefore\x011795577411831\x01null\x01billing\x01FD000000022C8D4E0E2F2A7C5910F70002"
        b"\x01FD00022C8D4E0E2F2A7C590F8A0000\x010\x01order-7\x02"
        b"SubAfter\x01FD000000022C8D4E0E2F2A7C5910F70002\x01FD00022C8D4E0E2F2A7C590F8A0000\x010\x01true"
        b"\x01order-7\x010\x011795577411831\x01billing\x02"
        b"SubBefore\x011795577411831\x01null\x01billing\x01FD000000022C8D4E0E2F2A7C5910F70004"
        b"\x017F00000121D2000000017C581D6D0001\x010\x01null\x02"
    )
    (pub,) = decode_trace(sent)
    assert (pub.at_ms, pub.group, pub.topic, pub.cost_ms) == (1795577411467, "shop", "Orders", 25)
    assert (pub.succeeded, pub.details["body_bytes"]) == (True, "10")
    before, after, other = decode_trace(taken)
    assert (before.request, before.message_id) == (after.request, pub.message_id)
    assert (after.cost_ms, after.succeeded, after.details["outcome"]) == (0, True, "success")
    assert other.details == {"retry_times": "0"}


@pytest.mark.parametrize(
    "wrong",
    [b"", b"\x02\x02", b"Pub", b"Pub\x01\x02", b"Pib\x01" + ID.encode(), b"\xff\xfe\x01\x02"],
)
def test_what_is_no_record_is_left_out(wrong: bytes) -> None:
    assert decode_trace(wrong) == []
    assert len(decode_trace(wrong + b"\x02" + body(PUB))) == 1


def test_values_of_another_type_are_not_told() -> None:
    (told,) = decode_trace(body(["Pub", "9" * 5000, *PUB[2:10], "soon", "7", "x", "perhaps"]))
    assert (told.at_ms, told.cost_ms, told.succeeded) == (0, None, None)
    assert told.details["message_type"] == "7"


@given(st.binary(max_size=200), st.lists(st.sampled_from([*PUB, *AFTER, "\x01", "\x02"])))
def test_any_bytes_are_read(raw: bytes, parts: list[str]) -> None:
    decode_trace(raw)
    decode_trace("\x01".join(parts).encode())


def test_records_are_written_as_javas_clients_write_them() -> None:
    (sent,) = decode_trace(body(PUB))
    fields = {
        **sent.details,
        "at_ms": "1700000000000",
        "group": "shop",
        "topic": "Orders",
        "message_id": ID,
        "cost_ms": "3",
        "message_type": "0",
        "succeeded": "true",
    }
    assert encode_trace_record("Pub", fields).encode() == body(PUB)
    called = {"request": "R1", "message_id": ID, "cost_ms": "42", "succeeded": "false"}
    ended = {**called, "keys": "order-7", "outcome": "4", "at_ms": "9", "group": "billing"}
    assert encode_trace_record("SubAfter", ended).encode() == body([*AFTER, "9", "billing"])


@given(st.text(max_size=20))
def test_any_text_is_one_field(text: str) -> None:
    fields = {"message_id": ID, "at_ms": "5", "group": text, "request": "R1"}
    (read,) = decode_trace(encode_trace_record("SubBefore", fields).encode("utf-8", "replace"))
    assert (read.message_id, read.at_ms, read.request) == (ID, 5, "R1")


def test_a_field_that_a_kind_does_not_have_is_an_error() -> None:
    with pytest.raises(ValueError, match="Recall has no field keys"):
        encode_trace_record("Recall", {"keys": "k"})
