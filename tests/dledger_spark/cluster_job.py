"""What `spark-submit` runs in test_spark_cluster.py: the same questions to a log in two places.

It is run with the path of a file of JSON: the options of each way to read the log, and the folders
to write to. It writes what it has found to the file `found.json` beside it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from dledger_spark.errors import FolderNotShared
from dledger_spark.source import DledgerDataSource
from dledger_spark.tables.table_home import TableHome
from dledger_spark.tables.table_stream import TableStream

# Not even a busy machine needs that long to kill a process.
HELD_MAX_S = 600
COLUMNS = "topic string, queue int, offset bigint, body binary"
# Several tasks for each of two cores, though the log is small.
SMALL = {"partitionBytes": "100000"}


def main() -> None:
    asked = Path(sys.argv[1])
    told: dict[str, Any] = json.loads(asked.read_text())
    spark = SparkSession.builder.getOrCreate()
    spark.dataSource.register(DledgerDataSource)
    found: dict[str, Any] = {
        way: ask(spark, options, asked.parent / way) for way, options in told["ways"].items()
    }
    folder = told["ways"]["folder"]
    found["kept from executors"] = not_shared(spark, folder["path"])
    found["killed"] = stream(spark, folder, asked.parent / "killed", asked.parent)
    found["executors"] = executors(spark, folder)
    (asked.parent / "found.json").write_text(json.dumps(found))
    spark.stop()


def ask(spark: Any, options: dict[str, str], out: Path) -> dict[str, Any]:
    """All rows as a batch, as a stream, and as tables."""
    messages = spark.read.format("dledger").options(table="messages", **SMALL, **options)
    entries = spark.read.format("dledger").options(**SMALL, **options).load()
    with TableHome(f"{out}-tables").held():
        tables = TableStream(TableHome(f"{out}-tables"), options, 1e9, lambda _added: None)
        query = tables.start(spark, every_s=None)
        query.awaitTermination()
    return {
        "batch": rows(messages.schema(COLUMNS).load()),
        "entries": [list(row) for row in entries.selectExpr("min(index)", "max(index)").collect()],
        "stream": stream(spark, options, out, None),
    }


def stream(spark: Any, options: dict[str, str], out: Path, hold: Path | None) -> list[list[Any]]:
    """The messages as batches of a stream, of which each writes a folder of its own.

    Args:
        spark: the session.
        options: of the source.
        out: folder to write to.
        hold: the tasks of batch 1 tell of themselves in this folder, and wait for a worker to be
            killed; None: nobody waits.
    """

    def write(batch: Any, number: int) -> None:
        if number == 1 and hold is not None:
            batch = batch.mapInArrow(partial(held, folder=str(hold)), COLUMNS)
        batch.write.mode("overwrite").parquet(f"{out}/{number}")

    source = spark.readStream.format("dledger").options(
        table="messages", maxOffsetsPerTrigger=1200, **SMALL, **options
    )
    query = (
        source.schema(COLUMNS)
        .load()
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", f"{out}-checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return rows(spark.read.parquet(*(str(path) for path in out.iterdir())))


def held(batches: Iterator[pa.RecordBatch], folder: str) -> Iterator[pa.RecordBatch]:
    """The same batches, once a worker is killed."""
    Path(folder, f"started-{os.getppid()}").touch()
    give_up_at = time.monotonic() + HELD_MAX_S
    while not Path(folder, "worker-is-killed").exists():
        if time.monotonic() > give_up_at:
            raise TimeoutError("nobody killed a worker")
        time.sleep(0.1)
    yield from batches


def rows(frame: Any) -> list[list[Any]]:
    found = frame.selectExpr("topic", "queue", "offset", "cast(body as string) as body").collect()
    return sorted(list(row) for row in found)


def not_shared(spark: Any, path: str) -> list[str]:
    """What is said when the folder is gone for those who read, and was there for the planner."""
    frame = spark.read.format("dledger").load(path)
    frame.count()  # makes the plan, which Spark keeps
    os.rename(path, f"{path}.away")
    try:
        frame.count()
    except Exception as error:
        wanted = f"dledger_spark.errors.{FolderNotShared.__name__}: "
        return [line for line in str(error).splitlines() if line.startswith(wanted)]
    finally:
        os.rename(f"{path}.away", path)
    return []


def executors(spark: Any, options: dict[str, str]) -> list[str]:
    """Where the executors have the package from."""
    frame = spark.read.format("dledger").options(**SMALL, **options).load().select("index")
    return sorted(row[0] for row in frame.mapInArrow(where, "file string").distinct().collect())


def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import dledger_spark  # noqa: PLC0415  # the executor's

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"file": [dledger_spark.__file__]})


if __name__ == "__main__":
    main()
