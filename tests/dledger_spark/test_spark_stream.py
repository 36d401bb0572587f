"""The data source in a running Spark: streams with checkpoints, and filters."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: run make setup-spark")

from pyspark.errors import StreamingQueryException

from tests.dledger_spark.test_spark_session import TOPICS, is_message, orders

pytestmark = pytest.mark.spark
LogWriter = Callable[..., Path]
ROOT = Path(__file__).parents[2]
# A start of Spark and five batches: seconds on a quiet machine, and many times that on a busy one.
PROCESS_S = 300
# Spark gives a new Python process 10 s to report, which is not enough on a very busy machine.
ATTEMPTS = 3

STREAM = """\
import sys, time
from dledger_spark.session import local_session

path, checkpoint, out, last = sys.argv[1:]


def keep(batch, number):
    # A batch that is written again replaces its own file, so every row is there once.
    batch.coalesce(1).write.mode("overwrite").parquet(f"{out}/batch={number}")
    open(f"{out}.{number}", "w").close()
    if number == int(last):
        time.sleep(3600)  # between the rows and the record that the batch is done


with local_session(cores=2) as spark:
    stream = spark.readStream.format("dledger").options(
        path=path, table="messages", maxOffsetsPerTrigger="60"
    )
    query = (
        stream.load()
        .writeStream.option("checkpointLocation", checkpoint)
        .foreachBatch(keep)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
"""


class Sink:
    """What batches of a stream hold, by the numbers that Spark gives them."""

    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[str, int]]] = {}

    def take(self, batch: Any, number: int) -> None:
        rows = batch.select("raft_group", "index").collect()
        self.batches[number] = sorted((row["raft_group"], row["index"]) for row in rows)

    @property
    def rows(self) -> list[tuple[str, int]]:
        return sorted(row for batch in self.batches.values() for row in batch)


def run(spark: Any, path: Path, checkpoint: Path, sink: Sink, **options: object) -> Any:
    """Start a stream, and wait until it has taken what there is."""
    texts = {name: str(value) for name, value in options.items()}
    stream = (
        spark.readStream.format("dledger")
        .options(path=str(path), **texts)
        .load()
        .writeStream.option("checkpointLocation", str(checkpoint))
        .foreachBatch(sink.take)
        .trigger(availableNow=True)
    )
    for _ in range(ATTEMPTS):
        query = stream.start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if "failed to connect back" not in str(query.exception()):
                raise
            late = error
        else:
            return query
        finally:
            query.stop()
    raise late


@pytest.mark.long
def test_a_stream_takes_all_in_batches_and_goes_on_at_its_checkpoint(
    spark: Any, write_log: LogWriter, tmp_path: Path
) -> None:
    base = tmp_path / "logs"
    for group, count in (("a", 60), ("b", 30)):
        write_log(orders(count), base=base / group, group=group)
    sink, checkpoint = Sink(), tmp_path / "checkpoint"
    query = run(spark, base, checkpoint, sink, table="messages", maxOffsetsPerTrigger=45)
    expected = [("a", at) for at in filter(is_message, range(60))]
    expected += [("b", at) for at in filter(is_message, range(30))]
    assert sink.rows == expected
    assert len(sink.batches) == 2
    progress = query.lastProgress["sources"][0]
    assert '"a": {"next": 60, "term": 1' in progress["endOffset"].replace("'", '"')
    assert '"b": {"next": 30}' in progress["latestOffset"].replace("'", '"')

    write_log(orders(70)[60:], base=base / "a", group="a")
    run(spark, base, checkpoint, sink, table="messages")
    assert [row for row in sink.rows if row[1] in (60, 69)] == [("a", 60), ("a", 69)]
    assert len(sink.rows) == len(set(sink.rows)) > len(expected)

    shutil.rmtree(base)
    write_log([b"other"] * 90, base=base / "a", group="a")
    with pytest.raises(Exception, match="entry 69 is another one than the stream has read"):
        run(spark, base, checkpoint, sink, table="messages", failOnDataLoss="false")


def test_a_dataframe_may_be_read_in_two_places_of_a_query(spark: Any, write_log: LogWriter) -> None:
    options = {"path": str(write_log(orders(300))), "table": "messages"}
    messages = spark.read.format("dledger").options(**options).load()
    for other, expected in (
        (messages.filter("index > 290"), [*range(10), *range(291, 300)]),
        (messages, [*range(10), *range(300)]),
    ):
        rows = messages.filter("index < 10").union(other).select("index").collect()
        assert sorted(row["index"] for row in rows) == sorted(filter(is_message, expected))


@pytest.mark.long
def test_a_stream_that_is_killed_three_times_has_each_row_once(
    write_log: LogWriter, tmp_path: Path
) -> None:
    folder = write_log(orders(300))
    script = tmp_path / "stream.py"
    script.write_text(STREAM)
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    out.mkdir()

    def start(last: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, str(script), str(folder), str(checkpoint), str(out), str(last)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            start_new_session=True,
            stderr=subprocess.DEVNULL,
        )

    for batch in (0, 1, 3):
        running = start(last=batch)
        try:
            while not (tmp_path / f"out.{batch}").exists():
                assert running.poll() is None
                time.sleep(0.05)
        finally:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
    assert start(last=-1).wait(timeout=PROCESS_S) == 0
    assert (tmp_path / "out.4").exists()
    rows = pq.read_table(out, columns=["index", "topic"]).to_pylist()
    assert sorted(row["index"] for row in rows) == list(filter(is_message, range(300)))
    assert {row["topic"] for row in rows} == set(TOPICS)
