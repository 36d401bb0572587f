"""A query has as many tasks as the session has cores, unless the log is small."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: run make setup-spark")

from dledger_spark.log import folder_log
from dledger_spark.query.session_cores import VARIABLE, session_cores
from dledger_spark.source import DledgerDataSource, register

LogWriter = Callable[..., Path]
PIECE_BYTES = 2000  # instead of 16 MiB


def tasks(folder: Path, **options: str) -> int:
    source = DledgerDataSource({"path": str(folder), **options})
    reader = source.reader(source.schema())
    pieces = reader.partitions()
    found = [row for piece in pieces for batch in reader.read(piece) for row in batch["index"]]
    assert [row.as_py() for row in found] == list(range(len(found)))
    return len(pieces)


@pytest.mark.parametrize(
    ("bodies", "cores", "options", "expected"),
    [
        (2, "8", {}, 1),  # a small log
        (40, "8", {}, 4),  # not below the least size
        (400, "8", {}, 8),
        (400, "1", {}, 1),
        (400, "8", {"minPartitions": "3"}, 3),
        (400, "1", {"minPartitions": "3"}, 3),
        (400, "8", {"partitionBytes": "4000"}, 20),
        (400, "1", {"minPartitions": "1000"}, 40),
    ],
)
def test_the_number_of_tasks_follows_cores_and_size(
    bodies: int,
    cores: str,
    options: dict[str, str],
    expected: int,
    write_log: LogWriter,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(folder_log, "MIN_PIECE_BYTES", PIECE_BYTES)
    monkeypatch.setenv(VARIABLE, cores)
    folder = write_log([b"b" * 152] * bodies, segment_bytes=1 << 20)  # 200 bytes an entry
    assert tasks(folder, **options) == expected


@pytest.mark.parametrize(("told", "expected"), [("5", 5), ("0", 1), ("", 7), ("many", 7)])
def test_cores_are_those_of_the_session_or_of_the_machine(
    told: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, told)
    monkeypatch.setattr("os.cpu_count", lambda: 7)
    assert session_cores() == expected


def test_a_session_tells_its_cores_before_it_has_the_source() -> None:
    registered: list[Any] = []
    context = SimpleNamespace(environment={}, defaultParallelism=5)
    sources = SimpleNamespace(
        register=lambda source: registered.append((source, dict(context.environment)))
    )
    register(SimpleNamespace(sparkContext=context, dataSource=sources))
    assert registered == [(DledgerDataSource, {VARIABLE: "5"})]


@pytest.mark.spark
def test_spark_plans_with_the_cores_of_its_session(spark: Any, write_log: LogWriter) -> None:
    folder = write_log([b"b" * (1 << 20)] * 56, segment_bytes=1 << 22)
    context = spark.sparkContext
    read = spark.read.format("dledger").option("table", "entry_headers")
    try:
        context.environment[VARIABLE] = "3"
        spark.dataSource.register(DledgerDataSource)
        assert read.load(str(folder)).rdd.getNumPartitions() == 3
    finally:
        register(spark)
    assert read.load(str(folder)).rdd.getNumPartitions() == context.defaultParallelism == 2
