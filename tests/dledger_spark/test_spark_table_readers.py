"""Pandas, Polars, DuckDB and Spark read the same rows of all tables, with the same types."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="deltalake is not installed: run make setup-spark")
pytest.importorskip("duckdb", reason="duckdb is not installed: run make setup-spark")

import polars as pl
import pyarrow as pa
from deltalake import DeltaTable
from polars.testing import assert_frame_equal

from dledger_spark.facts.fact_schemas import FACTS
from dledger_spark.tables.catalog import catalog
from dledger_spark.tables.derived import DERIVED, VIEWS, query
from dledger_spark.tables.duckdb_engine import duckdb_engine
from dledger_spark.tables.table_home import TableHome
from tests.page_program import printed_by

PROJECT = Path(__file__).parents[2]
PAGE = PROJECT / "docs" / "tables.md"
PROGRAM = re.compile(
    r"<!-- read -->\n```python\n(.*?)```\n\n<!-- prints -->\n```text\n(.*?)```\n", re.DOTALL
)
PROCESS_S = 300
TABLES = (*FACTS, *DERIVED)
# What Polars calls the types of the tables' columns.
TYPES: dict[str, pl.DataType] = {
    "timestamp[us, tz=UTC]": pl.Datetime("us", "UTC"),
    "string": pl.String(),
    "binary": pl.Binary(),
    "bool": pl.Boolean(),
    "int32": pl.Int32(),
    "int64": pl.Int64(),
    "double": pl.Float64(),
    "map<string, string>": pl.Map(pl.String, pl.String),
}


def path_of(home: TableHome, name: str) -> str:
    return home.fact_path(name) if name in FACTS else home.derived_path(name)


def plain(value: Any) -> Any:
    """A value as a row of any of them has it: maps come as dicts or as pairs."""
    if isinstance(value, dict):
        return sorted(value.items())
    return sorted(map(tuple, value)) if isinstance(value, list) else value


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = [column.to_pylist() for column in table.columns]
    return sorted((tuple(map(plain, row)) for row in zip(*columns, strict=True)), key=repr)


@pytest.mark.long
@pytest.mark.parametrize("name", TABLES)
def test_polars_reads_the_rows_and_types_that_duckdb_reads(name: str, incident_tables: str) -> None:
    home = TableHome(incident_tables)
    frame = pl.scan_delta(path_of(home, name)).collect()
    with duckdb_engine(catalog(home)) as engine:
        found = engine.query(f'select * from "{name}"')
    assert dict(frame.schema) == {field.name: TYPES[str(field.type)] for field in found.schema}
    columns = [column for column in frame.columns if not isinstance(frame.schema[column], pl.Map)]
    by = ["raft_group", *(column for column in columns if column != "raft_group")]
    from_duckdb = pl.from_arrow(found)
    assert isinstance(from_duckdb, pl.DataFrame)
    assert_frame_equal(frame.sort(by), from_duckdb.sort(by))
    assert rows_of(frame.to_arrow()) == rows_of(found)


@pytest.mark.long
@pytest.mark.parametrize("name", TABLES)
def test_pandas_reads_the_rows_that_duckdb_reads(name: str, incident_tables: str) -> None:
    home = TableHome(incident_tables)
    frame = DeltaTable(path_of(home, name)).to_pandas()
    with duckdb_engine(catalog(home)) as engine:
        found = engine.query(f'select * from "{name}"')
    assert list(frame.columns) == found.schema.names
    for field in found.schema:
        if pa.types.is_timestamp(field.type):
            assert str(frame[field.name].dtype) == "datetime64[us, UTC]"
    assert rows_of(pa.Table.from_pandas(frame, schema=found.schema)) == rows_of(found)


def test_the_small_log_has_rows_in_most_tables(incident_tables: str) -> None:
    home = TableHome(incident_tables)
    empty = {one.name for one in catalog(home) if not one.table.to_pyarrow_table().num_rows}
    assert empty <= {
        *("pop_events", "pop_progress", "pops", "audit", "delay_events", "delays", "redrives"),
        "lost_entries",
    }


def test_no_derived_table_has_wider_numbers_than_64_bits(incident_tables: str) -> None:
    home = TableHome(incident_tables)
    with duckdb_engine(catalog(home, derived=False)) as engine:
        for name in (*DERIVED, *VIEWS):
            assert {str(one) for one in engine.query(query(name)).schema.types} <= set(TYPES), name


def programs() -> list[Any]:
    page = PAGE.read_text(encoding="utf-8")
    found = PROGRAM.findall(page)
    assert len(found) == page.count("<!-- read -->") == 5
    return [
        # One that starts a Java virtual machine of its own costs more than all the others here.
        pytest.param(
            *one, marks=[pytest.mark.spark, pytest.mark.long] if "local_session" in one[0] else []
        )
        for one in found
    ]


@pytest.mark.parametrize(("program", "printed"), programs())
def test_a_program_that_reads_the_tables_prints_what_the_page_says(
    program: str, printed: str, incident_tables: str
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "PYTHONWARNINGS": ""}
    folder = Path(incident_tables).parent
    assert printed_by(program, folder, environment, PROCESS_S) == printed
