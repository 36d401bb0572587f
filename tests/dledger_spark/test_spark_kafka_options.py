"""Options and habits that users know from Spark's source for Kafka."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: run make setup-spark")

from dledger.entry import Body
from dledger_spark.errors import OptionInvalid, TopicUnknown
from dledger_spark.query import stream_source
from dledger_spark.query.stream_source import DledgerStreamReader
from dledger_spark.source import DledgerDataSource
from remoting.message.record import MessageRecord
from tests.dledger_spark.batch_query import source_of, table_of
from tests.dledger_spark.broker_bodies import BrokerBodies

LogWriter = Callable[..., Path]
ROOT = Path(__file__).parents[2]
TOPICS = ("orders", "orders_retry", "carts")


def bodies(count: int = 30) -> list[Body]:
    """The topics, then messages of each in turn, one second apart."""
    found = BrokerBodies()
    for topic in TOPICS:
        found.put_topic(topic)
    for at in range(count):
        topic = TOPICS[at % len(TOPICS)]
        found.message(MessageRecord(topic=topic, body=b"%d" % at, store_timestamp=1000 * at))
    return list(found.bodies)


def read(**options: Any) -> list[dict[str, Any]]:
    return list(table_of(source_of(**options)).to_pylist())


def stream(path: Path, **options: Any) -> DledgerStreamReader:
    texts = {name: str(value) for name, value in options.items()}
    source = DledgerDataSource({"path": str(path), **texts})
    return source.streamReader(source.schema())


def topics_of(rows: list[dict[str, Any]]) -> set[str]:
    return {row["topic"] for row in rows}


def test_a_pattern_chooses_the_topics_whose_whole_names_match(write_log: LogWriter) -> None:
    folder = write_log(bodies())
    for pattern, wanted in (
        ("orders", {"orders"}),
        (r"orders.*", {"orders", "orders_retry"}),
        (r"(?i)CARTS|nothing", {"carts"}),
        ("none.*", set()),  # topics may come later
    ):
        found = read(path=folder, table="messages", subscribePattern=pattern)
        assert topics_of(found) == wanted, pattern
        assert len(found) == 10 * len(wanted)
    reader = stream(folder, table="messages", subscribePattern="c.*")
    end = reader.latestOffset(start := reader.initialOffset(), reader.getDefaultReadLimit())
    rows = [b for piece in reader.partitions(start, end) for b in reader.read(piece)]
    assert {topic for batch in rows for topic in batch.column("topic").to_pylist()} == {"carts"}


def test_several_paths_are_one_read_and_of_a_group_the_copy_that_is_ahead(
    write_log: LogWriter, tmp_path: Path
) -> None:
    behind = write_log(bodies(10), base=tmp_path / "n0", group="a")
    ahead = write_log(bodies(30), base=tmp_path / "n1", group="a")
    other = write_log(bodies(5), base=tmp_path / "n2", group="b")
    # Spark makes this of load([A, B]).
    found = read(paths=json.dumps([str(behind), str(ahead), str(other)]), table="messages")
    counts = [sum(row["raft_group"] == group for row in found) for group in "ab"]
    assert counts == [30, 5]


def test_a_topic_that_never_existed_is_an_error(write_log: LogWriter) -> None:
    folder = write_log(bodies())
    with pytest.raises(TopicUnknown, match=r"never had a topic 'order'; the topics are .*carts"):
        read(path=folder, table="messages", subscribe="carts,order")
    assert read(path=folder, table="messages", subscribe="carts")
    reader = stream(folder, table="messages", subscribe="order")
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    with pytest.raises(TopicUnknown):
        reader.partitions(start, end)
    # It may come behind what a batch reads, or have been before it.
    assert read(path=folder, table="messages", subscribe="order", endingOffsets=2) == []
    assert read(path=folder, table="messages", subscribe="order", startingOffsets=9) == []


def test_a_time_behind_the_last_message_is_an_error_or_the_end(write_log: LogWriter) -> None:
    folder = write_log(bodies())
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    for begin in (
        {"startingTimestamp": 10**9},
        {"startingOffsetsByTimestamp": json.dumps({"g": 10**9})},
    ):
        with pytest.raises(OptionInvalid, match="startingOffsetsByTimestampStrategy=latest"):
            read(path=folder, **begin)
        with pytest.raises(OptionInvalid, match="was stored then or later"):
            stream(folder, **begin).initialOffset()
        assert read(path=folder, **begin, **latest) == []
        end = len(bodies())
        assert stream(folder, **begin, **latest).initialOffset()["groups"]["g"]["next"] == end
    # The last message was stored at 29 s.
    assert len(read(path=folder, table="messages", startingTimestamp=29_000)) == 1


def test_a_time_of_one_group_leaves_the_others_at_the_default(
    write_log: LogWriter, tmp_path: Path
) -> None:
    for group in "ab":
        write_log(bodies(), base=tmp_path / "logs" / group, group=group)
    found = read(
        path=tmp_path / "logs",
        table="messages",
        startingOffsetsByTimestamp=json.dumps({"a": 20_000}),
        endingOffsetsByTimestamp=json.dumps({"b": 5000}),
    )
    assert [sum(row["raft_group"] == group for row in found) for group in "ab"] == [10, 5]
    with pytest.raises(OptionInvalid, match="the groups are 'a', 'b'"):
        read(path=tmp_path / "logs", startingOffsetsByTimestamp=json.dumps({"c": 5}))


def test_a_batch_waits_for_enough_entries_but_not_longer_than_the_delay(
    write_log: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 100.0
    monkeypatch.setattr(stream_source, "monotonic", lambda: now_s)
    monkeypatch.setattr(stream_source, "sleep", lambda _s: None)
    folder = write_log(bodies(1))  # four entries
    reader = stream(folder, minOffsetsPerTrigger=10, maxTriggerDelay="5m")
    ends = [reader.initialOffset()]

    def ask() -> None:
        ends.append(reader.latestOffset(ends[-1], reader.getDefaultReadLimit()))

    ask()  # the first batch waits for nothing
    write_log([b"x"] * 9)
    ask()  # too few
    now_s += 299
    ask()  # still too few, and not late
    write_log([b"x"])
    ask()  # enough
    write_log([b"x"])
    ask()
    now_s += 301
    ask()  # late
    places = [end["groups"]["g"]["next"] for end in ends]
    assert places == [0, 4, 4, 4, 14, 14, 15]
    write_log([b"x"])
    once = stream(folder, minOffsetsPerTrigger=10)
    once.prepareForTriggerAvailableNow()
    assert once.latestOffset(ends[-1], once.getDefaultReadLimit())["groups"]["g"]["next"] == 16


def test_the_progress_says_how_far_the_stream_is_behind(
    write_log: LogWriter, tmp_path: Path
) -> None:
    for group, count in (("a", 27), ("b", 7)):
        write_log(bodies(count), base=tmp_path / "logs" / group, group=group)
    reader = stream(tmp_path / "logs", maxOffsetsPerTrigger=20)
    end = reader.initialOffset()
    found = []
    for _ in range(2):
        end = reader.latestOffset(end, reader.getDefaultReadLimit())
        found.append(reader.reportLatestOffset()["metrics"])
    # The groups have 30 and 10 entries.
    assert [one["maxOffsetsBehindLatest"] for one in found] == [15, 0]
    assert [one["minOffsetsBehindLatest"] for one in found] == [5, 0]
    assert [one["avgOffsetsBehindLatest"] for one in found] == [10, 0]


def test_an_older_pyspark_is_told_what_to_install(tmp_path: Path) -> None:
    # pyspark 3.5 lacks modules of data sources; that it is too old must be said before.
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text('__version__ = "3.5.8"\n')
    program = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport dledger_spark.source\n"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, cwd=ROOT, text=True
    )
    assert ended.stderr.splitlines()[-1] == (
        "dledger_spark.errors.SparkTooOld: [DLEDGER_SPARK_TOO_OLD] the data source needs pyspark "
        "4.0 or later, and 3.5.8 is installed: run `pip install 'pyspark>=4.0'` (batches need 4.0, "
        "streams 4.2)"
    )
