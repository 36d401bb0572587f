"""What filters, times and places leave to be read of a log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: run make setup-spark")

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from dledger.entry import Body
from dledger_spark.errors import DataLost, OptionInvalid, RangeUnavailable
from dledger_spark.log import entry_batches, log_folder
from dledger_spark.log.folder_log import FolderLog
from dledger_spark.log.log_folder import open_log
from dledger_spark.query.source_plan import entry_at_time
from dledger_spark.source import DledgerDataSource, FilteringReader
from remoting.message.record import MessageRecord
from tests.dledger_spark.broker_bodies import BrokerBodies

LogWriter = Callable[..., Path]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BEGIN_MS = 1_700_000_000_000
TOPICS = ("orders", "bills", "mail")


def mixed(count: int) -> list[Body]:
    """Three topics, then messages a second apart; every fifth entry is no message."""
    found = BrokerBodies()
    for at in range(count):
        if at < len(TOPICS):
            found.put_topic(TOPICS[at])
        elif at % 5 == 0:
            found.command()
        else:
            found.message(
                MessageRecord(
                    topic=TOPICS[at % 3],
                    body=b"%d" % at * 5,
                    queue_id=at % 4,
                    store_timestamp=BEGIN_MS + 1000 * at,
                )
            )
    return found.bodies


def instant(at: float) -> datetime:
    return EPOCH + timedelta(milliseconds=BEGIN_MS + 1000 * at)


def filtering(path: Path, **options: str) -> FilteringReader:
    source = DledgerDataSource({"path": str(path), "pushFilters": "true", **options})
    found = source.reader(source.schema())
    assert isinstance(found, FilteringReader)
    return found


def read(path: Path, filters: Sequence[Filter] = (), **options: Any) -> list[dict[str, Any]]:
    """The rows of a batch query, as Spark would read them before it filters itself."""
    texts = {name.rstrip("_"): str(value) for name, value in options.items()}
    reader = filtering(path, **texts)
    left = list(reader.pushFilters(list(filters)))
    assert all(any(one is filter for filter in filters) for one in left)
    return [
        row
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


def indexes(found: list[dict[str, Any]]) -> list[int]:
    return [row["index"] for row in found]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([EqualTo(("index",), 7)], range(7, 8)),
        ([GreaterThan(("index",), 7)], range(8, 100)),
        ([GreaterThanOrEqual(("index",), 7), LessThan(("index",), 20)], range(7, 20)),
        ([LessThanOrEqual(("index",), 20), GreaterThan(("index",), -5)], range(21)),
        ([LessThan(("index",), 5), GreaterThan(("index",), 50)], range(0)),
        ([GreaterThan(("index",), 500)], range(0)),
        ([EqualTo(("raft_group",), "g")], range(100)),
        ([In(("raft_group",), ("a", "b"))], range(0)),
        ([EqualTo(("raft_group",), "g"), EqualTo(("raft_group",), "h")], range(0)),
    ],
)
def test_exact_filters_leave_nothing_for_spark_to_do(
    filters: list[Filter], expected: range, write_log: LogWriter
) -> None:
    folder = write_log(mixed(100))
    assert indexes(read(folder, filters)) == list(expected)
    assert list(filtering(folder).pushFilters(filters)) == []
    in_range = indexes(read(folder, filters, startingOffsets=10, endingOffsets=90))
    assert in_range == [index for index in expected if 10 <= index < 90]


@pytest.mark.parametrize(
    "filters",
    [
        [EqualTo(("topic",), "bills")],
        [In(("topic",), ("bills", "none"))],
        [In(("topic",), ("bills", "mail")), EqualTo(("topic",), "bills")],
    ],
)
def test_topics_are_picked_where_they_are_read(filters: list[Filter], write_log: LogWriter) -> None:
    folder = write_log(mixed(100))
    found = read(folder, filters, table="messages")
    assert indexes(found) == [at for at in range(3, 100) if at % 5 and at % 3 == 1]
    assert read(folder, filters, table="messages", subscribe="orders") == []


def test_store_times_narrow_the_range_and_are_left_to_spark(write_log: LogWriter) -> None:
    folder = write_log(mixed(100))
    for filters, first, last in (
        ([GreaterThan(("store_time",), instant(31.5))], 32, 99),
        ([GreaterThanOrEqual(("store_time",), instant(32))], 32, 99),
        ([LessThan(("store_time",), instant(31.5))], 3, 31),
        ([LessThanOrEqual(("store_time",), instant(32))], 3, 32),
        ([EqualTo(("store_time",), instant(32))], 32, 32),
        ([EqualTo(("store_time",), instant(200))], 1, 0),
    ):
        assert list(filtering(folder, table="messages").pushFilters(filters)) == filters
        found = indexes(read(folder, filters, table="messages"))
        assert found == [at for at in range(first, last + 1) if at % 5 and at >= 3]


def test_filters_that_it_cannot_apply_are_left_to_spark(write_log: LogWriter) -> None:
    reader = filtering(write_log(mixed(9)), table="messages")
    left: list[Filter] = [
        Not(EqualTo(("index",), 7)),
        EqualTo(("queue",), 1),
        EqualTo(("properties", "index"), 1),
        IsNotNull(("tags",)),
        IsNotNull(("raft_group",)),
        GreaterThan(("store_time",), datetime(2023, 1, 1)),  # of no zone
    ]
    assert list(reader.pushFilters([*left, IsNotNull(("index",))])) == left
    assert len(reader.partitions()) == 1
    topic = EqualTo(("topic",), "t")
    assert list(filtering(Path("p")).pushFilters([topic])) == [topic]


def test_filters_are_pushed_only_if_an_option_asks_for_it() -> None:
    for options, expected in (({}, False), ({"pushFilters": "true"}, True)):
        source = DledgerDataSource({"path": "p", **options})
        found = source.reader(source.schema())
        assert isinstance(found, FilteringReader) is expected


def test_a_range_of_a_hundred_rows_opens_one_segment(
    write_log: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_log(mixed(1000), segment_bytes=65536)
    segments = open_log(str(folder)).segments
    first = segments[1].first_index + 5
    assert segments[2].first_index > first + 100
    opened = set[str]()

    def open_file(path: str) -> AbstractContextManager[int]:
        opened.add(path)
        return log_folder.open_file(path)

    monkeypatch.setattr(entry_batches, "open_file", open_file)
    filters = [GreaterThanOrEqual(("index",), first), LessThan(("index",), first + 100)]
    assert indexes(read(folder, filters)) == list(range(first, first + 100))
    assert opened == {segments[1].path}


def test_a_filter_changes_no_message(write_log: LogWriter) -> None:
    """A record behind its topic's deletion is refused, also if a filter leaves out the deletion."""
    bodies = BrokerBodies()
    bodies.put_topic("t")
    bodies.message(MessageRecord(topic="t", body=b"x"))
    bodies.delete_topic("t")
    bodies.record(MessageRecord(topic="t", body=b"late", queue_offset=1))
    bodies.put_topic("t")
    bodies.message(MessageRecord(topic="t", body=b"y"))
    folder = write_log(bodies.bodies)
    for first, expected in ((0, [1, 5]), (3, [5]), (5, [5])):
        filters = [GreaterThanOrEqual(("index",), first)]
        assert indexes(read(folder, filters, table="messages")) == expected


def test_a_time_is_found_between_entries_without_one(write_log: LogWriter) -> None:
    log = FolderLog(open_log(str(write_log(mixed(100)))))
    for at in range(3, 100):
        expected = at
        # What is no message belongs to the next message.
        while expected > 3 and (expected - 1) % 5 == 0:
            expected -= 1
        found = entry_at_time(log, range(100), BEGIN_MS + 1000 * at)
        assert found == (0 if at == 3 else expected), at
    assert entry_at_time(log, range(100), 0) == 0
    assert entry_at_time(log, range(100), BEGIN_MS + 10**9) == 100
    assert entry_at_time(log, range(50, 50), BEGIN_MS) == 50
    assert entry_at_time(log, range(50, 60), BEGIN_MS) == 50


def test_a_batch_may_end_and_begin_at_a_time(write_log: LogWriter) -> None:
    folder = write_log(mixed(100))
    cut = BEGIN_MS + 42_500
    before = read(folder, table="messages", endingTimestamp=cut)
    after = read(folder, table="messages", startingTimestamp=cut)
    assert indexes(before + after) == [at for at in range(3, 100) if at % 5]
    assert [row["index"] > 42 for row in before + after].index(True) == len(before)
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert read(folder, startingTimestamp=BEGIN_MS + 10**9, **latest) == []
    with pytest.raises(OptionInvalid, match=r"no message of .* was stored then or later"):
        read(folder, startingTimestamp=BEGIN_MS + 10**9)


def test_a_time_is_found_although_a_file_is_missing(write_log: LogWriter) -> None:
    folder = write_log(mixed(200))
    segments = open_log(str(folder)).segments
    Path(segments[1].path).unlink()
    late = segments[3].first_index + 1
    found = read(folder, startingTimestamp=BEGIN_MS + 1000 * late)
    assert found[0]["index"] in (late, late - 1)
    with pytest.raises(DataLost):
        read(folder, startingTimestamp=0)
    assert len(read(folder, startingTimestamp=0, failOnDataLoss="false")) < 200


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": 90}, range(90, 100)),
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, range(100)),
        ({"endingOffsets": 10}, range(10)),
        ({"endingOffsets": 0}, range(0)),
        ({"endingOffsets": 100}, range(100)),
        ({"startingOffsets": '{"g": 3}', "endingOffsets": '{"g": 5}'}, range(3, 5)),
        ({"startingOffsets": 7, "endingOffsets": 7}, range(0)),
        ({"startingOffsets": 8, "endingOffsets": 7}, range(0)),
        ({"startingOffsets": 8, "to": 9}, range(8, 10)),
        ({"from": 8, "endingOffsets": 9}, range(8, 9)),
    ],
)
def test_a_batch_has_the_entries_between_its_places(
    options: dict[str, Any], expected: range, write_log: LogWriter
) -> None:
    assert indexes(read(write_log(mixed(100)), **options)) == list(expected)


def test_a_batch_refuses_places_outside_of_the_log(write_log: LogWriter) -> None:
    folder = write_log(mixed(100), committed=79)
    for option in ("startingOffsets", "endingOffsets"):
        with pytest.raises(RangeUnavailable, match=rf"{option} must be 0 .* to 80 \(behind"):
            read(folder, [], **{option: 81})
        with pytest.raises(OptionInvalid, match="the groups are 'g'"):
            read(folder, [], **{option: '{"h": 1}'})


def test_a_schema_without_properties_has_no_such_column(write_log: LogWriter) -> None:
    folder = write_log(mixed(10))
    found = read(folder, table="messages", includeProperties="false")
    assert found
    assert "properties" not in found[0]
    options = {"path": str(folder), "table": "messages"}
    with pytest.raises(OptionInvalid, match="the schema has that column"):
        DledgerDataSource({**options, "includeProperties": "false"}).reader(
            DledgerDataSource(options).schema()
        )
