"""Which records count as messages: those that the brokers have taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import msgpack
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.features import empty_state
from broker.formats.commands import RaiseFormat
from broker.log.entry import (
    ATTACHED_VERSION,
    LARGE_ENTRIES_VERSION,
    RUNS_VERSION,
    encode_log_command,
)
from broker.log.fold import fold
from broker.log.folded import EntryRefused
from broker.log.state import BrokerState
from broker.messages.state import MESSAGES
from broker.topics.commands import DeleteTopic, PutTopic
from dledger.entry import HEADER_BYTES, Entry
from dledger_spark.log.folder_log import FolderLog
from dledger_spark.log.log_folder import open_log
from dledger_spark.records.acceptance import COLUMNS, Acceptance, without
from dledger_spark.records.message_columns import message_batch
from dledger_spark.replay.replay import plan_replay, write_piece
from dledger_spark.replay.table_folder import file_notes, published, replay_run
from dledger_spark.scan import arrow_batches
from dledger_spark.schema import ENTRY_SCHEMA
from remoting.bodies.topic_config import TopicConfig
from remoting.message.record import (
    BORN_HOST_V6_FLAG,
    MESSAGE_MAGIC_V2,
    MessageRecord,
    encode_record,
)
from tests.dledger_spark.broker_bodies import BrokerBodies
from tests.examples import examples

LogWriter = Callable[..., Path]


def framed(content: bytes, version: int = 1) -> bytes:
    return (8 + len(content)).to_bytes(4, "big") + b"DLB" + bytes((version,)) + content


CONFIG = ["A", 4, 4, 6, "SINGLE_TAG", 0, False, {}]
COMMANDS = [
    encode_log_command(RaiseFormat(RUNS_VERSION)),
    encode_log_command(PutTopic(TopicConfig("A"), 1, max_topics=4)),
    encode_log_command(PutTopic(TopicConfig("B"), 1, max_topics=5)),
    encode_log_command(PutTopic(TopicConfig("A"), 1, max_topics=4)),
    encode_log_command(DeleteTopic("A", 9, with_locks=True)),
    encode_log_command(DeleteTopic("A", 9, with_locks=True, keeps_ends=True)),
    encode_log_command(DeleteTopic("B", 9, with_locks=True, keeps_ends=True)),
    encode_log_command(PutTopic(TopicConfig("A"), 1)),
    encode_log_command(PutTopic(TopicConfig("B"), 1, only_if_absent=True)),
    framed(msgpack.packb([2, "A", 9])),
    framed(msgpack.packb([2, "B", 9])),
    framed(msgpack.packb([4, "A", True])),
    framed(msgpack.packb([1, CONFIG, 1, False]), 3),
    framed(msgpack.packb([1, CONFIG, 1, False, "9"]), 3),
    framed(msgpack.packb([1, CONFIG, 1, False, 9]), 2),
    encode_log_command(DeleteTopic("TBW102", 9)),
    *(
        framed(msgpack.packb(content))
        for content in (
            [1, CONFIG, 1, False],
            [1, CONFIG, 1],
            [1, CONFIG, "1", False],
            [1, CONFIG[:7], 1, False],
            [1, ["A b", *CONFIG[1:]], 1, False],
            [1, ["", *CONFIG[1:]], 1, False],
            [1, [7, *CONFIG[1:]], 1, False],
            [1, ["A", "4", *CONFIG[2:]], 1, False],
            [1, [*CONFIG[:7], {"a": 1}], 1, False],
            [1, [*CONFIG[:7], 7], 1, False],
            [2, "A"],
            [2, "A", "9"],
            [2, 7, 9],
            [2, b"A", 9],
            [],
            7,
        )
    ),
    encode_log_command(RaiseFormat(ATTACHED_VERSION)),
    encode_log_command(RaiseFormat(LARGE_ENTRIES_VERSION)),
    framed(msgpack.packb([9, 1]), RUNS_VERSION),
    framed(b"\xc1"),
    framed(b""),
    framed(msgpack.packb([2, "A", 9]))[:-1],
    b"foreign",
    b"",
]
records = st.tuples(
    st.sampled_from(("A", "B", "A b")),
    st.sampled_from((0, 0, 0, 1, -1)),
    st.sampled_from((0, 0, 0, 0, 1, -1)),  # off the next offset
    st.sampled_from((0, 0, 0, 0, 0, 0, 8)),  # off the place
    st.sampled_from((*[0] * 9, BORN_HOST_V6_FLAG)),
    st.sampled_from((*[0] * 9, 2, 90)),  # bytes that are missing at the end
)
# Most of the records of one entry are right, or hardly any entry would be taken.
right = st.tuples(st.sampled_from("AB"), st.sampled_from((0, 1)), *[st.just(0)] * 4)
runs = st.lists(right | right | right | records, min_size=2, max_size=5)
scripts = st.lists(
    st.sampled_from(COMMANDS[:13]) | st.sampled_from(COMMANDS) | records | runs, max_size=60
)
Step = tuple[str, int, int, int, int, int]
Script = Sequence[bytes | Step | list[Step]]


def body_of(steps: Sequence[Step], state: BrokerState, pos: int) -> bytes:
    """The records of one entry."""
    body = b""
    before: Counter[tuple[str, int]] = Counter()
    for topic, queue_id, off, misplaced, flag, cut in steps:
        key = (topic, queue_id)
        end = state[MESSAGES].queue_end(topic, queue_id)
        record = encode_record(
            MessageRecord(
                topic,
                b"body",
                queue_id=queue_id,
                queue_offset=end + before[key] + off,
                physical_offset=pos + HEADER_BYTES + len(body) + misplaced,
                system_flag=flag,
                born_host="::1" if flag else "127.0.0.1",
            )
        )
        before[key] += 1
        body += record[: len(record) - cut]
    return body


def entries_of(script: Script) -> tuple[list[Entry], BrokerState]:
    """The log that a script writes, as the broker folds it."""
    state, entries, pos = empty_state(), list[Entry](), 0
    for index, step in enumerate(script):
        if isinstance(step, bytes):
            body = step
        else:
            body = body_of(step if isinstance(step, list) else [step], state, pos)
        entry = Entry(index, 1, pos, 1, body)
        fold(state, [entry])
        entries.append(entry)
        pos += HEADER_BYTES + len(body)
    return entries, state


def batch_of(entries: Sequence[Entry]) -> pa.RecordBatch:
    zeros: dict[str, object] = {**dict.fromkeys(ENTRY_SCHEMA.names, 0), "raft_group": "g"}
    return pa.RecordBatch.from_pylist(
        [{**zeros, "index": e.index, "term": 1, "pos": e.pos, "body": e.body} for e in entries],
        schema=ENTRY_SCHEMA,
    )


def accepted(entries: Sequence[Entry], cuts: Sequence[int]) -> list[int]:
    """The messages, judged in several batches by states that were written down in between."""
    state, found = Acceptance(is_whole=True), list[int]()
    for first, stop in pairwise([0, *sorted(cuts), len(entries)]):
        batch = batch_of(entries[first:stop])
        records = message_batch(batch, COLUMNS)
        found += without(records, state.judge(batch, records)).column("index").to_pylist()
        state = Acceptance.decode(state.encode())
    return found


@settings(deadline=None, max_examples=examples(300))
@given(scripts, st.lists(st.integers(0, 60), max_size=3))
def test_what_the_brokers_take_is_what_counts(script: Script, cuts: list[int]) -> None:
    entries, _state = entries_of(script)
    results = fold(empty_state(), entries).results
    taken: list[int] = []
    for entry, result in zip(entries, results, strict=True):
        step = script[entry.index]
        if result is None and not isinstance(step, bytes):
            taken += [entry.index] * (len(step) if isinstance(step, list) else 1)
    assert accepted(entries, [min(cut, len(entries)) for cut in cuts]) == taken


def test_a_record_of_the_second_format_is_none_of_our_brokers() -> None:
    entries, state = entries_of(COMMANDS[:1])
    pos = HEADER_BYTES + len(entries[0].body)
    body = encode_record(MessageRecord("A", b"x", physical_offset=pos + HEADER_BYTES))
    second = body[:4] + MESSAGE_MAGIC_V2.to_bytes(4, "big") + body[8:88] + b"x\0\1A\0\0"
    second = len(second).to_bytes(4, "big") + second[4:]
    entries.append(Entry(1, 1, pos, 1, second))
    assert len(message_batch(batch_of(entries))) == 1
    assert isinstance(fold(state, entries[1:]).results[0], EntryRefused)
    assert accepted(entries, []) == []


def deleted_on_the_way() -> BrokerBodies:
    """A topic is deleted while two messages are on their way, and made again."""
    bodies = BrokerBodies()
    bodies.put_topic("A")
    for number in range(5):
        bodies.message(MessageRecord("A", b"%d" % number))
    bodies.delete_topic("A")
    bodies.record(MessageRecord("A", b"late", queue_offset=5))
    bodies.put_topic("A")
    bodies.record(MessageRecord("A", b"late", queue_offset=6))
    for number in range(5):
        bodies.message(MessageRecord("A", b"%d" % number))
    return bodies


def messages(folder: Path, **options: object) -> list[int]:
    batches = arrow_batches(str(folder), table="messages", batch_bytes=300, **options)  # type: ignore[arg-type]
    return [index for batch in batches for index in batch.column("index").to_pylist()]


def test_records_that_came_too_late_for_their_topic_are_no_messages(write_log: LogWriter) -> None:
    folder = write_log(deleted_on_the_way().bodies)
    assert messages(folder) == [1, 2, 3, 4, 5, 10, 11, 12, 13, 14]
    found = list(arrow_batches(str(folder), table="messages", columns=["body", "topic"]))
    assert found[0].schema.names == ["body", "topic"]
    assert sum(map(len, found)) == 10
    assert len(next(iter(arrow_batches(str(folder))))) == 15  # entries are all there


def test_a_log_whose_beginning_is_not_read_says_nothing_of_a_topic_until_it_is_deleted(
    write_log: LogWriter,
) -> None:
    folder = write_log(deleted_on_the_way().bodies)
    assert messages(folder, first=2) == [2, 3, 4, 5, 10, 11, 12, 13, 14]
    assert messages(folder, first=9) == [9, 10, 11, 12, 13, 14]


def test_a_topic_made_again_goes_on_where_it_ended_in_whole_logs_and_in_others(
    write_log: LogWriter,
) -> None:
    bodies = BrokerBodies()
    bodies.put_topic("A")
    for _ in range(2):
        bodies.message(MessageRecord("A", b"old"))
    bodies.delete_topic("A", keeps_ends=True)
    bodies.put_topic("A")
    bodies.record(MessageRecord("A", b"late", queue_offset=1))  # 5
    for offset in range(2, 4):
        bodies.record(MessageRecord("A", b"new", queue_offset=offset))
    bodies.delete_topic("A", keeps_ends=True)
    bodies.put_topic("A")
    bodies.record(MessageRecord("A", b"new", queue_id=1, queue_offset=4))  # 10
    folder = write_log(bodies.bodies)
    assert messages(folder) == [1, 2, 6, 7, 10]
    # Where the topic began before the log, nothing says where it ended.
    assert messages(folder, first=2) == [2, 5, 6, 7, 10]

    put = encode_log_command(PutTopic(TopicConfig("A"), 1))
    delete = encode_log_command(DeleteTopic("A", 1, with_locks=True, keeps_ends=True))
    message, late = ("A", 0, 0, 0, 0, 0), ("A", 0, -1, 0, 0, 0)
    entries, _state = entries_of([put, message, message, delete, put, late, message, delete])
    for cut in range(len(entries)):
        assert accepted(entries, [cut]) == [1, 2, 6]


def test_records_that_share_an_entry_count_where_the_log_begins_later_as_well(
    write_log: LogWriter,
) -> None:
    bodies = BrokerBodies()
    bodies.put_topic("A")
    bodies.bodies.append(encode_log_command(RaiseFormat(RUNS_VERSION)))
    bodies.message(MessageRecord("A", b"x"))
    bodies.messages(
        [MessageRecord("A", b"%d" % number, queue_id=number % 2) for number in range(5)]
    )
    bodies.delete_topic("A")
    bodies.messages([MessageRecord("A", b"late"), MessageRecord("A", b"late")])
    folder = write_log(bodies.bodies)
    assert messages(folder) == [2, *[3] * 5]
    assert messages(folder, first=3) == [3] * 5
    found = pa.Table.from_batches(arrow_batches(str(folder), table="messages"))
    assert found["offset"].to_pylist() == [0, 1, 0, 2, 1, 3]
    assert found["body"].to_pylist() == [b"x", b"0", b"1", b"2", b"3", b"4"]


def test_a_log_of_java_is_not_judged(write_log: LogWriter) -> None:
    folder = write_log(deleted_on_the_way().bodies[7:8])
    assert messages(folder) == []
    (folder / "hard-state").unlink()
    assert messages(folder, last="end") == [0]


@pytest.mark.parametrize("file_bytes", [300, 1 << 20])
def test_a_replay_in_steps_judges_as_one_at_a_stroke(
    file_bytes: int, write_log: LogWriter, tmp_path: Path
) -> None:
    folder, out = write_log(deleted_on_the_way().bodies), str(tmp_path / "out")
    log = FolderLog(open_log(str(folder)))
    counted = 0
    for end in (3, 7, 9, 15):
        with replay_run(out) as run:
            for piece in plan_replay(log, range(end), out, file_bytes).pieces:
                counted += write_piece(log, out, run, piece)
    files = published(out, "messages")
    table = pa.parquet.read_table([file.path for file in files])
    assert table["index"].to_pylist() == [1, 2, 3, 4, 5, 10, 11, 12, 13, 14]
    assert counted == 10
    assert file_notes(files[0]).acceptance
    # A file that was lost comes back as it was.
    for file in files:
        before = pa.parquet.read_table(file.path)
        Path(file.path).unlink()
        with replay_run(out) as run:
            for piece in plan_replay(log, range(15), out, 1 << 20).pieces:
                write_piece(log, out, run, piece)
        assert pa.parquet.read_table(file.path).equals(before)
