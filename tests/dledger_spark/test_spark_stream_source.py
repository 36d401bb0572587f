"""The stream's reader, called as Spark calls it, without Spark."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: run make setup-spark")

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
)

from broker.formats.commands import RaiseFormat
from broker.log.entry import RUNS_VERSION, encode_log_command
from dledger.entry import Body
from dledger_spark.errors import (
    DataLost,
    DledgerSparkError,
    LogBehind,
    LogFolderInvalid,
    LogReplaced,
    OffsetUnreadable,
    OptionInvalid,
    RangeUnavailable,
)
from dledger_spark.query.stream_source import IDLE_S, DledgerStreamReader
from dledger_spark.scan import arrow_batches
from dledger_spark.source import DledgerDataSource
from remoting.message.record import MessageRecord
from tests.dledger_spark.broker_bodies import BrokerBodies
from tests.dledger_spark.test_spark_output_history import cut

LogWriter = Callable[..., Path]
Offset = dict[str, Any]


@pytest.fixture(autouse=True)
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the reader wanted to sleep; it does not.

    Not `time.sleep` itself: a thread of Spark, where it was started, sleeps by it again and again.
    """
    found = list[float]()
    monkeypatch.setattr("dledger_spark.query.stream_source.sleep", found.append)
    return found


def numbers(count: int, first: int = 0, word: str = "entry") -> Sequence[Body]:
    return [b"%s %05d" % (word.encode(), at) * 9 for at in range(first, first + count)]


def stream(path: Path, **options: object) -> DledgerStreamReader:
    texts = {name: str(value) for name, value in options.items()}
    source = DledgerDataSource({"path": str(path), **texts})
    return source.streamReader(source.schema())


def rows(reader: DledgerStreamReader, start: Offset, end: Offset) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for partition in reader.partitions(start, end):
        for batch in reader.read(partition):
            found += batch.to_pylist()
    return found


def batches(
    reader: DledgerStreamReader, start: Offset | None = None, limit: ReadLimit | None = None
) -> Iterator[tuple[Offset, list[dict[str, Any]]]]:
    """The end and the rows of each batch, until there is nothing new. Offsets become JSON."""
    start = reader.initialOffset() if start is None else start
    while True:
        found = reader.latestOffset(start, limit or reader.getDefaultReadLimit())
        end = json.loads(json.dumps(found))
        if end == start:
            return
        yield end, rows(reader, start, end)
        start = end


def indexes(found: list[dict[str, Any]], group: str = "g") -> list[int]:
    return [row["index"] for row in found if row["raft_group"] == group]


def last_offset(reader: DledgerStreamReader) -> Offset:
    return reader.latestOffset(reader.initialOffset(), ReadAllAvailable())


def test_batches_follow_one_another_without_a_gap(write_log: LogWriter) -> None:
    folder = write_log(numbers(100))
    found = list(batches(stream(folder, maxOffsetsPerTrigger=30, partitionBytes=1500)))
    assert [len(batch) for _end, batch in found] == [30, 30, 30, 10]
    assert [at for _end, batch in found for at in indexes(batch)] == list(range(100))
    write_log(numbers(5, 100))
    assert [indexes(batch) for _, batch in batches(stream(folder), found[-1][0])] == [
        list(range(100, 105))
    ]


def test_each_batch_can_be_read_again_from_the_offsets_alone(write_log: LogWriter) -> None:
    folder = write_log(numbers(50))
    reader = stream(folder, maxOffsetsPerTrigger=20)
    start = reader.initialOffset()
    for end, found in batches(reader):
        assert rows(stream(folder), start, end) == found
        start = end


def test_a_limit_is_shared_among_the_groups(write_log: LogWriter, tmp_path: Path) -> None:
    base = tmp_path / "logs"
    for group, count in (("a", 60), ("b", 30), ("c", 1)):
        write_log(numbers(count), base=base / group, group=group)
    found = list(batches(stream(base, maxOffsetsPerTrigger=10)))
    assert [len(batch) for _end, batch in found] == [10] * 9 + [1]
    for group, count in (("a", 60), ("b", 30), ("c", 1)):
        all_of_it = [at for _end, batch in found for at in indexes(batch, group)]
        assert all_of_it == list(range(count))


def test_bytes_limit_a_batch_as_well(write_log: LogWriter) -> None:
    folder = write_log(numbers(100))
    size = next(arrow_batches(str(folder))).column("size")[0].as_py()
    reader = stream(folder, maxBytesPerTrigger=10 * size + 5)
    assert reader.getDefaultReadLimit() == ReadMaxBytes(10 * size + 5)
    sizes = [len(batch) for _end, batch in batches(reader)]
    assert sizes == [10] * 10
    for path in (folder / "index").iterdir():
        path.unlink()
    assert [len(batch) for _end, batch in batches(reader)] == sizes
    assert [len(batch) for _, batch in batches(stream(folder, maxBytesPerTrigger=1))] == [1] * 100
    both = stream(folder, maxBytesPerTrigger=10 * size, maxOffsetsPerTrigger=7)
    assert [len(batch) for _end, batch in batches(both)][:2] == [7, 7]


def test_a_trigger_may_ask_for_all(write_log: LogWriter) -> None:
    reader = stream(write_log(numbers(40)), maxOffsetsPerTrigger=7, maxBytesPerTrigger=9)
    assert reader.getDefaultReadLimit() == ReadMaxRows(7)
    assert [len(batch) for _, batch in batches(reader, limit=ReadAllAvailable())] == [40]


def test_available_now_ends_with_what_there_was_when_it_began(write_log: LogWriter) -> None:
    folder = write_log(numbers(20))
    reader = stream(folder, maxOffsetsPerTrigger=8)
    reader.prepareForTriggerAvailableNow()
    found = []
    for _end, batch in islice(batches(reader), 5):
        found.append(len(batch))
        write_log(numbers(10, 100))
    assert found == [8, 8, 4]
    assert reader.reportLatestOffset()["groups"]["g"]["next"] == 50


def test_a_stream_with_nothing_to_do_takes_its_time(
    write_log: LogWriter, naps: list[float]
) -> None:
    reader = stream(write_log(numbers(20)), maxOffsetsPerTrigger=8)
    start = reader.initialOffset()
    for _ in range(3):
        start = reader.latestOffset(start, ReadMaxRows(8))
    assert naps == []
    assert reader.latestOffset(start, ReadMaxRows(8)) == start
    assert naps == [IDLE_S]
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(start, ReadMaxRows(8)) == start
    assert naps == [IDLE_S]


@pytest.mark.parametrize("count", [30, 31, 50])
def test_another_log_behind_the_path_is_refused(count: int, write_log: LogWriter) -> None:
    folder = write_log(numbers(30))
    start = last_offset(stream(folder))
    shutil.rmtree(folder)
    write_log(numbers(count, word="other"))
    reader = stream(folder)
    with pytest.raises(LogReplaced, match="entry 29 is another one than the stream has read"):
        reader.latestOffset(start, ReadAllAvailable())
    later = {"v": 1, "groups": {"g": {"next": count, "term": 1}}}
    if count > 30:
        with pytest.raises(LogReplaced):
            reader.partitions(start, later)


def test_a_log_with_fewer_entries_is_waited_for(write_log: LogWriter) -> None:
    folder = write_log(numbers(30))
    start = last_offset(stream(folder))
    shutil.rmtree(folder)
    write_log(numbers(20))
    assert stream(folder).latestOffset(start, ReadAllAvailable()) == start
    write_log(numbers(15, 20))
    assert [indexes(batch) for _, batch in batches(stream(folder), start)] == [list(range(30, 35))]


def test_a_batch_that_had_begun_is_read_from_a_node_that_has_its_entries(
    write_log: LogWriter,
) -> None:
    folder = write_log(numbers(30))
    begin, end = stream(folder).initialOffset(), last_offset(stream(folder))
    shutil.rmtree(folder)
    write_log(numbers(30), committed=19)
    assert indexes(rows(stream(folder), begin, end)) == list(range(30))
    shutil.rmtree(folder)
    write_log([*numbers(29), b"what a leader of an earlier term had"], committed=19)
    with pytest.raises(LogBehind, match=r"ends with entry 29, and this node has .* up to 19"):
        stream(folder).partitions(begin, end)
    shutil.rmtree(folder)
    write_log(numbers(20))
    with pytest.raises(LogBehind):
        stream(folder).partitions(begin, end)


def test_entries_that_retention_has_removed_are_an_error_that_names_both_places(
    write_log: LogWriter,
) -> None:
    folder = write_log(numbers(200))
    reader = stream(folder, maxOffsetsPerTrigger=20)
    start, _rows = next(batches(reader))
    end = reader.latestOffset(start, ReadMaxRows(60))
    begin = cut(folder, 100)
    with pytest.raises(DataLost, match=f"goes on at entry 20, and .* begins with {begin}"):
        reader.partitions(start, end)
    # An offset would be in the checkpoint before anybody asks for the batch.
    with pytest.raises(DataLost, match=f"goes on at entry 20, and .* begins with {begin}"):
        reader.latestOffset(start, ReadMaxRows(60))
    going_on = stream(folder, failOnDataLoss="false")
    assert [at for _end, batch in batches(going_on, start) for at in indexes(batch)] == list(
        range(begin, 200)
    )


def test_a_stream_goes_on_at_the_first_entry_that_retention_has_left(write_log: LogWriter) -> None:
    folder = write_log(numbers(200))
    begin = cut(folder, 100)
    reader = stream(folder)
    offset = reader.initialOffset()
    assert offset["groups"]["g"]["next"] == begin
    assert offset["groups"]["g"]["chain"] != 0
    assert [indexes(batch) for _end, batch in batches(reader)] == [list(range(begin, 200))]


def test_a_group_that_is_new_is_read_from_its_first_entry(
    write_log: LogWriter, tmp_path: Path
) -> None:
    base = tmp_path / "logs"
    write_log(numbers(10), base=base / "a", group="a")
    reader = stream(base)
    start = last_offset(reader)
    write_log(numbers(20), base=base / "b", group="b")
    [(_end, found)] = batches(reader, start)
    assert (indexes(found, "a"), indexes(found, "b")) == ([], list(range(20)))


def test_a_group_that_is_gone_is_lost_data(write_log: LogWriter, tmp_path: Path) -> None:
    base = tmp_path / "logs"
    for group in ("a", "b"):
        write_log(numbers(10), base=base / group, group=group)
    begin, end = stream(base).initialOffset(), last_offset(stream(base))
    shutil.rmtree(base / "b")
    problem = "no longer holds a log of group 'b'"
    with pytest.raises(DataLost, match=problem):
        stream(base).latestOffset(begin, ReadAllAvailable())
    with pytest.raises(DataLost, match=problem):
        stream(base).partitions(begin, end)
    reader = stream(base, failOnDataLoss="false")
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert len(rows(reader, begin, end)) == 10


def deleted_on_the_way() -> BrokerBodies:
    """Messages of a topic that is deleted while some are on their way, twice."""
    found = BrokerBodies()
    for _ in range(2):
        found.put_topic("t")
        for offset in range(3):
            found.record(MessageRecord(topic="t", body=b"x", queue_id=0, queue_offset=offset))
        found.delete_topic("t")
        found.record(MessageRecord(topic="t", body=b"late", queue_id=0, queue_offset=3))
    return found


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 12])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_stream_counts_the_messages_that_a_batch_counts(
    limit: int, restarts: bool, write_log: LogWriter
) -> None:
    folder = write_log(deleted_on_the_way().bodies)
    expected = [
        index
        for batch in arrow_batches(str(folder), table="messages")
        for index in batch.column("index").to_pylist()
    ]
    assert expected == [1, 2, 3, 7, 8, 9]
    reader = stream(folder, table="messages", maxOffsetsPerTrigger=limit)
    found, start = list[int](), reader.initialOffset()
    for end, batch in batches(reader):
        again = stream(folder, table="messages")
        found += indexes(rows(again, start, end) if restarts else batch)
        start = end
    assert found == expected


def test_a_stream_may_pick_topics(write_log: LogWriter) -> None:
    bodies = BrokerBodies()
    for topic in ("x", "y", "z"):
        bodies.put_topic(topic)
    for at in range(9):
        bodies.message(MessageRecord(topic="xyz"[at % 3], body=b"%d" % at))
    bodies.bodies.append(encode_log_command(RaiseFormat(RUNS_VERSION)))
    bodies.messages([MessageRecord(topic=topic, body=b"") for topic in ("x", "y", "z")])
    folder = write_log(bodies.bodies)
    reader = stream(folder, table="messages", subscribe="x, z", includeProperties="false")
    [(_end, found)] = batches(reader)
    assert [row["topic"] for row in found] == ["x", "z"] * 4
    assert "properties" not in found[0]


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({}, 0),
        ({"startingOffsets": "earliest"}, 0),
        ({"startingOffsets": "Latest"}, 40),
        ({"startingOffsets": "7"}, 7),
        ({"startingOffsets": "40"}, 40),
        ({"startingOffsets": '{"g": 9}'}, 9),
        ({"startingOffsets": '{"g": "latest"}'}, 40),
        ({"startingOffsets": '{"g": -2}'}, 0),
        ({"from": "11"}, 11),
    ],
)
def test_a_stream_begins_where_it_is_told(
    options: dict[str, str], first: int, write_log: LogWriter
) -> None:
    reader = stream(write_log(numbers(40)), **options)
    assert reader.initialOffset()["groups"]["g"]["next"] == first


@pytest.mark.parametrize(
    ("options", "error", "problem"),
    [
        ({"startingOffsets": "41"}, RangeUnavailable, r"must be 0 .* to 40 \(behind"),
        ({"from": "41"}, RangeUnavailable, "from must be 0"),
        ({"startingOffsets": '{"h": 0}'}, OptionInvalid, "the groups are 'g'"),
        ({"endingOffsets": "9"}, OptionInvalid, "a stream has no end"),
        ({"to": "end"}, OptionInvalid, "a stream has no end"),
    ],
)
def test_a_stream_refuses_what_it_cannot_do(
    options: dict[str, str], error: type[DledgerSparkError], problem: str, write_log: LogWriter
) -> None:
    folder = write_log(numbers(40))
    with pytest.raises(error, match=problem):
        stream(folder, **options).initialOffset()


def test_an_index_for_several_groups_is_refused(write_log: LogWriter, tmp_path: Path) -> None:
    base = tmp_path / "logs"
    for group in ("a", "b"):
        write_log(numbers(10), base=base / group, group=group)
    with pytest.raises(OptionInvalid, match="an index is one group's"):
        stream(base, startingOffsets=5).initialOffset()
    offset = stream(base, startingOffsets='{"a": 5}').initialOffset()
    assert [at["next"] for at in offset["groups"].values()] == [5, 0]


def test_a_folder_of_java_is_no_stream(write_log: LogWriter) -> None:
    folder = write_log(numbers(10))
    (folder / "hard-state").unlink()
    with pytest.raises(LogFolderInvalid, match="does not say how far it is committed"):
        stream(folder).initialOffset()


@pytest.mark.parametrize(
    "content",
    [
        {"v": 2, "groups": {}},
        {"groups": {}},
        {"v": 1, "groups": {"g": {"next": -1, "term": 1}}},
        {"v": 1, "groups": {"g": {"next": "1", "term": 1}}},
        {"v": 1, "groups": {"g": {"next": 1, "term": 1, "chain": None}}},
        {"v": 1, "groups": {"g": 7}},
        [],
    ],
)
def test_an_offset_of_another_version_is_refused(content: Any, write_log: LogWriter) -> None:
    reader = stream(write_log(numbers(10)))
    with pytest.raises(OffsetUnreadable, match="use the version that wrote it, or a new"):
        reader.latestOffset(content, ReadAllAvailable())


def test_a_wrong_log_that_begins_later_does_not_move_the_checkpoint(
    write_log: LogWriter, tmp_path: Path
) -> None:
    folder = write_log(numbers(30), base=tmp_path / "right", term=5)
    wrong = write_log(numbers(300, word="other"), base=tmp_path / "wrong", term=4)
    assert cut(wrong, 200) > 31
    end = last_offset(stream(folder))
    for loses in ("true", "false"):
        # Spark writes an offset once `latestOffset` has returned it.
        with pytest.raises(LogReplaced, match="entry 29 is another one"):
            stream(wrong, failOnDataLoss=loses).latestOffset(end, ReadAllAvailable())
    assert last_offset(stream(folder)) == end
