"""All readers of a run of properties find the same pairs, whatever the run is."""

import random

import pytest

from broker.messages.record_facts import properties_run, read_record_facts
from broker.messages.record_run import RecordRun, read_run
from broker.query.keys import keys_of
from dledger_mq.received_message import received
from remoting.bodies.message_queue import MessageQueue
from remoting.message.properties import (
    decode_properties,
    decode_some,
    edit_properties,
    first_pair,
    found_value,
    has_pair,
    last_pair,
    mended_runs,
    name_mark,
    with_last_pair_alone,
)
from remoting.message.record import MessageRecord, decode_record, encode_record
from remoting.message.tags import tags_code

NAMES = ("TAGS", "KEYS", "UNIQ_KEY")
PIECES = (
    *(b"TAGS", b"KEYS", b"UNIQ_KEY", b"XTAGS", b"XUNIQ_KEY", b"\x01", b"\x02", b"", b"a", b"b "),
    *(b"\x02TAGS\x01one", b"\x02TAGS\x01two\x02", b"KEYS\x01k1UNIQ_KEY\x01", "é".encode(), b"\xff"),
)


def runs(count: int) -> list[bytes]:
    chance = random.Random(7)
    return [b"".join(chance.choices(PIECES, k=chance.randrange(12))) for _ in range(count)]


def test_every_reader_takes_the_same_value_for_a_name() -> None:
    for run in runs(20_000):
        pairs = decode_properties(run)
        for name in NAMES:
            mark = name_mark(name)
            assert found_value(run, name.encode()) == pairs.get(name), run
            assert decode_some(run, {name.encode(): name}).get(name) == pairs.get(name), run
            assert has_pair(run, mark) == (name in pairs), run
            at, first = last_pair(run, mark), first_pair(run, mark)
            assert (at >= 0) == (first >= 0) == (name in pairs), run
            for place in (at, first):
                assert place < 0 or run[:place].endswith(b"\x02") or place == 0, run


def test_records_are_read_alike_by_the_broker_its_index_and_clients() -> None:
    for run in runs(3_000):
        body = encode_record(MessageRecord("t", b"x", run, queue_offset=0))
        facts = read_record_facts(body)
        pairs = decode_properties(run)
        assert facts is not None
        assert facts.tags_code == tags_code(pairs.get("TAGS", ""))
        assert properties_run(body) == run
        words = [*filter(None, [pairs.get("UNIQ_KEY")]), *pairs.get("KEYS", "").split(" ")]
        assert list(keys_of(body)) == [word for word in words if word]
        record, _end = decode_record(body)
        assert record.property_map() == pairs
        assert received(record, MessageQueue("t", "broker", 0)).properties == pairs


def test_the_fold_takes_the_first_tag_one_by_one_and_in_runs() -> None:
    for run in runs(3_000):
        body = encode_record(MessageRecord("t", b"x", run, queue_offset=0))
        facts = read_record_facts(body, folds=True)
        first = first_pair(run, b"TAGS\x01")
        tag = run[first + 5 :].split(b"\x02")[0] if first >= 0 else b""
        assert facts is not None
        assert facts.tags_code == tags_code(tag.decode("utf-8", "replace"))
        several = read_run(body, 0)
        assert isinstance(several, RecordRun)
        assert several.arrivals["t", 0].codes == [facts.tags_code]


def test_a_run_with_one_tag_means_what_it_meant_with_several() -> None:
    for run in runs(20_000):
        alone = with_last_pair_alone(run, b"TAGS\x01")
        assert decode_properties(alone) == decode_properties(run), run
        assert first_pair(alone, b"TAGS\x01") == last_pair(alone, b"TAGS\x01"), run
        if first_pair(run, b"TAGS\x01") == last_pair(run, b"TAGS\x01"):
            assert alone == run


def test_only_runs_that_lack_something_are_mended() -> None:
    def mend(run: bytes) -> bytes:
        if not has_pair(run, b"UNIQ_KEY\x01"):
            run = edit_properties(run, {"UNIQ_KEY": "made"})
        return with_last_pair_alone(run, b"TAGS\x01")

    before = runs(5_000)
    for run, mended in zip(
        before, mended_runs(before, b"UNIQ_KEY\x01", b"TAGS\x01", mend), strict=True
    ):
        assert mended == mend(run)
        assert decode_properties(mended) == {"UNIQ_KEY": "made", **decode_properties(run)}


@pytest.mark.parametrize("run", [b"XUNIQ_KEY\x01a\x02", b"K\x01UNIQ_KEY\x01a\x02", b"UNIQ_KEY\x02"])
def test_a_name_is_not_found_in_another_name_or_in_a_value(run: bytes) -> None:
    assert not has_pair(run, b"UNIQ_KEY\x01")
    assert found_value(run, b"UNIQ_KEY") is None
