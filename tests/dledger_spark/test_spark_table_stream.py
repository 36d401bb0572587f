"""A stream keeps the tables up to date, and shares them with other writers."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("deltalake", reason="deltalake is not installed: run make setup-spark")
pytest.importorskip("duckdb", reason="duckdb is not installed: run make setup-spark")

from dledger_spark.commands.spark_commands import dledger_spark
from dledger_spark.tables.table_home import TableHome
from tests.dledger_spark.test_spark_table_updates import rows_of, scripted, update, write


@pytest.mark.spark
def test_a_stream_and_a_job_write_the_same_tables(spark: Any, tmp_path: Path) -> None:
    from dledger_spark.tables.table_stream import TableStream  # noqa: PLC0415

    log, home = scripted(4), TableHome(str(tmp_path / "tables"))
    added: list[int] = []

    def stream(*, refreshes: bool) -> None:
        with home.held():
            source = {"path": str(tmp_path / "log"), "maxOffsetsPerTrigger": "30"}
            tables = TableStream(home, source, 1e9, added.append)
            query = tables.start(spark, every_s=None)
            try:
                query.awaitTermination()
            finally:
                query.stop()
            if refreshes:
                tables.refresh()

    write(log, tmp_path / "log", 0, 40)
    stream(refreshes=False)
    assert added == [30, 10]
    update(home, write(log, tmp_path / "log", 40, 55))
    write(log, tmp_path / "log", 55, 70)
    stream(refreshes=True)  # its checkpoint does not know what the job has added
    assert sum(added) == 55
    # A stream that begins again reads all, and adds what is new.
    shutil.rmtree(home.checkpoint_path)
    folder = write(log, tmp_path / "log", 70, len(log.entries))
    stream(refreshes=True)
    assert sum(added) == len(log.entries) - 15
    at_once = TableHome(str(tmp_path / "at-once"))
    update(at_once, folder)
    assert rows_of(home) == rows_of(at_once)


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--path", "a", "--bootstrap", "b"),
        ("--bootstrap", "127.0.0.1:1"),
        ("--path", "a", "--group", "g"),
    ],
)
def test_a_stream_needs_one_log(words: tuple[str, ...]) -> None:
    ended = CliRunner().invoke(dledger_spark, ["stream", "--out", "out", *words])
    assert ended.exit_code == 2
    assert "give --path, or --bootstrap and --group" in ended.output
