"""The files of tables: few, however many small commits there are, and readable by everyone."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="deltalake is not installed: run make setup-spark")
pytest.importorskip("duckdb", reason="duckdb is not installed: run make setup-spark")

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from dledger_spark.tables import delta_files
from dledger_spark.tables.catalog import catalog
from dledger_spark.tables.delta_files import CHECKPOINT_COMMITS, SMALL_FILES_MAX, configuration
from dledger_spark.tables.duckdb_engine import duckdb_engine
from dledger_spark.tables.fact_table import FactTable
from dledger_spark.tables.refresh import refresh
from dledger_spark.tables.table_home import KEPT_HOURS, TableHome
from tests.dledger_spark.test_spark_table_updates import scripted, update, write

PROJECT = Path(__file__).parents[2]
SCHEMA = pa.schema([("raft_group", pa.string()), ("index", pa.int64())])
APP = "dledger/g"
UPDATES, ROWS = 150, 5


def rows(first: int) -> list[pa.RecordBatch]:
    indexes = list(range(first, first + ROWS))
    return [pa.RecordBatch.from_pydict({"raft_group": ["g"] * ROWS, "index": indexes}, SCHEMA)]


def grow(path: str, updates: int) -> FactTable:
    """Add rows in small updates, and go on where the table ends."""
    table = FactTable(path, SCHEMA, kept_hours=0)
    for first in range(table.next_index(APP) or 0, updates * ROWS, ROWS):
        table.append(APP, range(first, first + ROWS), rows(first))
        table.compact()
    return table


def indexes(table: DeltaTable) -> list[int]:
    found: list[int] = pq.read_table(table.file_uris())["index"].to_pylist()
    return sorted(found)


def test_small_updates_do_not_make_files_for_ever(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    grow(path, UPDATES)
    table = DeltaTable(path)
    assert indexes(table) == list(range(UPDATES * ROWS))
    assert len(table.file_uris()) < SMALL_FILES_MAX
    parquet = [name for name in os.listdir(path) if name.endswith(".parquet")]
    assert len(parquet) < 2 * SMALL_FILES_MAX
    assert len(os.listdir(f"{path}/_delta_log")) < 2 * CHECKPOINT_COMMITS + 8
    # Nothing of this touches the number that says up to which entry the table is complete.
    assert FactTable(path, SCHEMA).next_index(APP) == UPDATES * ROWS
    assert FactTable(path, SCHEMA).append(APP, range(5), rows(0)) == 0


def test_what_is_replaced_stays_for_those_who_have_opened_the_table(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    table = FactTable(path, SCHEMA)
    for at in range(SMALL_FILES_MAX):
        table.append(APP, range(at * ROWS, at * ROWS + ROWS), rows(at * ROWS))
    files = DeltaTable(path).file_uris()
    table.compact()
    assert len(DeltaTable(path).file_uris()) == 1
    assert all(os.path.exists(file) for file in files)
    assert DeltaTable(path).metadata().configuration == configuration(KEPT_HOURS)


def test_what_is_replaced_stays_as_long_as_the_user_says_also_in_tables_that_are_there(
    tmp_path: Path,
) -> None:
    log = scripted(5)
    ends = (40, 70, len(log.entries))
    for first, end, hours in zip((0, *ends), ends, (KEPT_HOURS, 48, 0), strict=False):
        home = TableHome(str(tmp_path / "tables"), hours)
        update(home, write(log, tmp_path / "log", first, end))
        with home.held():
            refresh(home, duckdb_engine, {})
        tables = catalog(home)
        assert {one.name for one in tables} > {"entries", "traffic"}
        for one in tables:
            assert one.table.metadata().configuration == configuration(hours), one.name
        folder = home.derived_path("elections")  # each run replaces it
        there = [name for name in os.listdir(folder) if name.endswith(".parquet")]
        assert (len(there) == 1) == (hours == 0 or first == 0)


def test_large_files_are_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_files, "SMALL_FILE_BYTES", 1)
    path = str(tmp_path / "table")
    table = FactTable(path, SCHEMA)
    for at in range(SMALL_FILES_MAX):
        table.append(APP, range(at * ROWS, at * ROWS + ROWS), rows(at * ROWS))
    table.compact()
    assert len(DeltaTable(path).file_uris()) == SMALL_FILES_MAX


@pytest.mark.slow
def test_a_writer_killed_while_it_puts_files_together_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "table")
    program = (
        "import sys; from dledger_spark.tables import delta_files; "
        "from tests.dledger_spark.test_spark_table_files import grow; "
        "delta_files.SMALL_FILES_MAX = 2; print('begins', flush=True); "  # in each update
        "grow(sys.argv[1], int(sys.argv[2]))"
    )
    chance = random.Random(4)
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-c", program, path, "1000000"],
            env={**os.environ, "PYTHONPATH": str(PROJECT)},
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        with process.stdout:
            assert process.stdout.readline() == b"begins\n"
        time.sleep(0.3 + chance.random() / 2)
        process.send_signal(signal.SIGKILL)
        process.wait()
    there = FactTable(path, SCHEMA).next_index(APP)
    assert there is not None
    monkeypatch.setattr(delta_files, "SMALL_FILES_MAX", 2)
    grow(path, there // ROWS + 2)
    assert indexes(DeltaTable(path)) == list(range(there + 2 * ROWS))


@pytest.fixture
def made(tmp_path: Path) -> TableHome:
    """Tables of facts that were put together, and derived ones that were made several times."""
    home, log = TableHome(str(tmp_path / "tables")), scripted(5)
    for at in (60, len(log.entries)):
        update(home, write(log, tmp_path / "log", 0 if at == 60 else 60, at))
        with home.held():
            refresh(home, duckdb_engine, {})
    return home


def test_pandas_arrow_and_duckdb_read_the_same_rows(made: TableHome) -> None:
    for name in ("entries", "messages", "consumer_progress", "traffic", "pops"):
        is_fact = os.path.isdir(made.fact_path(name))
        table = DeltaTable(made.fact_path(name) if is_fact else made.derived_path(name))
        files = table.file_uris()
        arrow = pq.read_table(files)
        assert arrow.num_rows > 0
        counted = duckdb.sql(f"select count(*) from read_parquet({files!r})")
        assert counted is not None
        assert counted.fetchall() == [(arrow.num_rows,)]
        frame = pd.read_parquet(files)
        assert len(frame) == arrow.num_rows
        assert list(frame.columns) == arrow.schema.names


@pytest.mark.spark
def test_spark_reads_the_same_rows(spark: Any, made: TableHome) -> None:
    from dledger_spark.tables.spark_engine import register_tables  # noqa: PLC0415

    tables = catalog(made)
    register_tables(spark, tables)
    expected = {one.name: pq.read_table(one.files).num_rows for one in tables if one.files}
    # One job: to plan one for each table takes most of the time.
    counts = (f"select '{name}' as name, count(*) as n from `{name}`" for name in expected)
    found = spark.sql(" union all ".join(counts)).collect()
    assert {row["name"]: row["n"] for row in found} == expected
