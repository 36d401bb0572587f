"""A query says which entries it leaves out because they are not recorded as committed yet."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: run make setup-spark")

from dledger_spark.errors import UnrecordedEntries
from dledger_spark.log.folder_log import FolderLog
from dledger_spark.log.log_folder import open_log
from dledger_spark.scan import arrow_batches
from dledger_spark.source import DledgerDataSource
from tests.dledger_spark.test_spark_session import orders

LogWriter = Callable[..., Path]
ROOT = Path(__file__).parents[2]
# It starts Java twice: seconds on a quiet machine, and many times that on a busy one.
PROCESS_S = 400
FIRST_MS = 1_700_000_000_005


def told(path: Path, **options: object) -> list[tuple[str, int, int]]:
    """Plan a query, and return what it warns of."""
    texts = {name.rstrip("_"): str(value) for name, value in options.items()}
    source = DledgerDataSource({"path": str(path), **texts})
    with warnings.catch_warnings(record=True) as caught:
        warnings.resetwarnings()  # as in a process of Spark's
        source.reader(source.schema()).partitions()
    found: list[Any] = [one.message for one in caught]
    assert all(isinstance(one, UnrecordedEntries) for one in found)
    return [(Path(one.name).parent.name, one.committed, one.count) for one in found]


def test_a_query_warns_of_entries_behind_those_recorded_as_committed(write_log: LogWriter) -> None:
    folder = write_log(orders(30), committed=19)
    source = DledgerDataSource({"path": str(folder)})
    with pytest.warns(UnrecordedEntries) as caught:
        source.reader(source.schema()).partitions()
    assert str(caught[0].message) == (
        f"unrecorded entries of {folder}: 10 behind entry 19 left out, because not recorded as "
        "committed yet; a running node records this four times a second, so load again, or name "
        "bootstrap and group to ask the group itself, or to=end for all entries, committed or not"
    )


def test_a_query_over_groups_warns_once_for_each_log_that_is_behind(
    write_log: LogWriter, tmp_path: Path
) -> None:
    base = tmp_path / "logs"
    for group, committed in (("a", 19), ("b", 29), ("c", -1)):
        write_log(orders(30), base=base / group, group=group, committed=committed)
    expected = [("a", 19, 10), ("c", -1, 30)]
    assert told(base, table="messages") == expected
    assert told(base, table="messages") == expected  # each query, not only the first


@pytest.mark.parametrize(
    ("options", "warns"),
    [
        ({}, True),
        ({"from_": 20}, True),
        ({"endingOffsets": "latest"}, True),
        ({"endingOffsets": '{"g": "latest"}'}, True),
        ({"table": "messages", "endingTimestamp": FIRST_MS + 1000}, True),
        ({"table": "messages", "endingTimestamp": FIRST_MS + 5}, False),
        ({"to": 19}, False),
        ({"to": "end"}, False),
        ({"endingOffsets": 20}, False),
        ({"endingOffsets": '{"g": 20}'}, False),
    ],
)
def test_only_a_query_that_would_read_more_later_warns(
    options: dict[str, object], warns: bool, write_log: LogWriter
) -> None:
    folder = write_log(orders(30), committed=19)
    assert bool(told(folder, **options)) == warns


def test_reading_without_spark_warns_once_of_entries_behind(write_log: LogWriter) -> None:
    folder = write_log(orders(30), committed=19)
    expected = UnrecordedEntries(str(folder), 19, 10)
    for _ in range(2):  # each time, not only the first
        with warnings.catch_warnings(record=True) as caught:
            warnings.resetwarnings()
            rows = sum(len(batch) for batch in arrow_batches(str(folder), batch_bytes=1))
        assert rows == 20
        assert [(one.category, str(one.message)) for one in caught] == [
            (UnrecordedEntries, str(expected))
        ]
        assert caught[0].filename == __file__


@pytest.mark.parametrize("last", [19, "end"])
def test_reading_without_spark_up_to_a_named_end_warns_of_nothing(
    last: int | str, write_log: LogWriter
) -> None:
    folder = write_log(orders(30), committed=19)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(arrow_batches(str(folder), last=last))


@pytest.mark.parametrize("harm", [None, "missing", "wrong"])
@pytest.mark.parametrize("committed", [-1, 0, 19, 70, 99])
def test_entries_behind_are_counted_with_and_without_the_index(
    harm: str | None, committed: int, write_log: LogWriter
) -> None:
    folder = write_log(orders(100), committed=committed)
    for file in (folder / "index").iterdir():
        if harm == "wrong":
            file.write_bytes(file.read_bytes()[32:] + bytes(32))
        elif harm == "missing":
            file.unlink()
    log = open_log(str(folder))
    assert len(log.segments) > 2
    assert FolderLog(log).unrecorded == 99 - committed


PLAN = """\
import sys
from dledger_spark.source import DledgerDataSource

source = DledgerDataSource({"path": sys.argv[1]})
for _ in range(2):
    source.reader(source.schema()).partitions()
"""
QUERIES = """\
import sys
from dledger_spark.commands.spark_commands import dledger_spark
from dledger_spark.session import local_session

path, checkpoint, out = sys.argv[1:]
with local_session(cores=1) as spark:
    for _ in range(2):
        spark.read.format("dledger").load(path).collect()
    frame = spark.readStream.format("dledger").load(path)
    for number, trigger in enumerate(({"processingTime": "0 seconds"}, {"availableNow": True})):
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.queryName(f"query {number}").trigger(**trigger).start()
        if number == 0:
            query.processAllAvailable()
            query.stop()
        query.awaitTermination()
dledger_spark(["stream", "--path", path, "--out", out, "--once", "--cores", "1"])
"""


def run(program: str, *arguments: Path, python_warnings: str = "") -> str:
    """Run a program, and return what it writes on standard error."""
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        check=True,
        text=True,
        cwd=ROOT,
        timeout=PROCESS_S,
        env={**os.environ, "PYTHONWARNINGS": python_warnings},
    )
    return done.stderr


def test_the_warning_comes_again_and_can_be_turned_off(write_log: LogWriter) -> None:
    folder = write_log(orders(30), committed=19)
    assert run(PLAN, folder).count("UnrecordedEntries: ") == 2
    off = "ignore:unrecorded entries"
    assert run(PLAN, folder, python_warnings=off) == ""


@pytest.mark.spark
@pytest.mark.long
def test_the_warning_of_a_query_in_spark_reaches_the_terminal(
    write_log: LogWriter, tmp_path: Path
) -> None:
    folder = write_log(orders(30), committed=19)
    told = run(QUERIES, folder, tmp_path / "checkpoint", tmp_path / "out")
    # Two batch queries, and the stream that ends with what there is; not the one that goes on.
    assert told.count("UnrecordedEntries: ") == 3, told
    assert told.count("10 behind entry 19 left out") == 3
    # The command says it in a line of its own, and has the source silent.
    assert told.count("left out, because not recorded as committed yet: 10 at the end of") == 1
