"""What times and places leave to be read of a log."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: run make setup-spark")

from dledger.entry import Body
from dledger_spark.errors import DataLost, OptionInvalid, RangeUnavailable
from dledger_spark.log import entry_batches, log_folder
from dledger_spark.log.folder_log import FolderLog
from dledger_spark.log.log_folder import open_log
from dledger_spark.query.source_plan import entry_at_time
from dledger_spark.source import DledgerDataSource
from remoting.message.record import MessageRecord
from tests.dledger_spark.batch_query import source_of, table_of
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


def read(path: Path, **options: Any) -> list[dict[str, Any]]:
    """The rows of a batch query."""
    return list(table_of(source_of(path=path, **options)).to_pylist())


def indexes(found: list[dict[str, Any]]) -> list[int]:
    return [row["index"] for row in found]


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
    found = read(folder, startingOffsets=first, endingOffsets=first + 100)
    assert indexes(found) == list(range(first, first + 100))
    assert opened == {segments[1].path}


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
            read(folder, **{option: 81})
        with pytest.raises(OptionInvalid, match="the groups are 'g'"):
            read(folder, **{option: '{"h": 1}'})


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
