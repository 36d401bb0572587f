"""Derived tables are computed in bounded memory, and what cannot be computed leaves them alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="deltalake is not installed: run make setup-spark")
pytest.importorskip("duckdb", reason="duckdb is not installed: run make setup-spark")

import pyarrow as pa
from deltalake import DeltaTable

from dledger_spark.errors import QueryFailed
from dledger_spark.schema import TIME
from dledger_spark.tables.derived import DERIVED
from dledger_spark.tables.duckdb_engine import THREAD_MEMORY_MIB, engine_over
from dledger_spark.tables.engine import BATCH_ROWS
from dledger_spark.tables.refresh import refresh
from dledger_spark.tables.table_home import TableHome
from tests.dledger_spark.test_spark_table_updates import scripted, update, write
from tests.dledger_spark.test_spark_tables import EPOCH

ROWS = 3 * BATCH_ROWS
# 32 letters a row: they do not fit.
SORTED_ROWS, SMALL_MEMORY_MIB = 1_500_000, 64

# With the columns that say where a row is replaced.
PLACES, TIMES = ("index", "position"), ("minute", "since", "first_time")
ROW_SCHEMA = pa.schema(
    [
        ("raft_group", pa.string()),
        *((name, pa.int64()) for name in PLACES),
        *((name, TIME) for name in TIMES),
    ]
)
ROW = {"raft_group": "g", "position": 0, **dict.fromkeys(TIMES, EPOCH)}


class Scripted:
    """An engine with the same rows for each query.

    Attributes:
        given: batches that were asked for.
    """

    def __init__(self, batches: int, breaks_after: int) -> None:
        self._batches, self._breaks_after = batches, breaks_after
        self.given = 0

    def query(self, _sql: str) -> pa.Table:
        return pa.table({"raft_group": ["g"], "place": [0]})

    def define(self, name: str, sql: str) -> None:
        pass

    def add(self, name: str, files: Sequence[str], schema: Any) -> None:
        pass

    def batches(self, _sql: str) -> Iterator[pa.RecordBatch]:
        for at in range(self._batches):
            if at == self._breaks_after:
                raise QueryFailed("out of memory")
            self.given += 1
            yield pa.RecordBatch.from_pylist([{**ROW, "index": at}], ROW_SCHEMA)


def test_rows_come_a_batch_after_the_other() -> None:
    with engine_over({}, THREAD_MEMORY_MIB) as engine:
        batches = list(engine.batches(f"select range as at from range({ROWS})"))
        assert len(batches) > 3
        assert max(map(len, batches)) <= BATCH_ROWS
        assert sum(map(len, batches)) == ROWS
        none = list(engine.batches("select 1 as at where false"))
        assert [len(batch) for batch in none] == [0]
        with pytest.raises(QueryFailed):
            list(engine.batches("select nothing"))


def test_a_sort_that_does_not_fit_goes_to_files() -> None:
    rows = f"select md5(range::varchar) as word from range({SORTED_ROWS})"
    query = f"select word from ({rows}) order by word"
    with engine_over({}, SMALL_MEMORY_MIB) as engine:
        words = pa.chunked_array([batch.column("word") for batch in engine.batches(query)])
        assert words.equals(words.sort())
        assert len(words) == SORTED_ROWS
        engine.query("set max_temp_directory_size = '0KiB'")
        with pytest.raises(QueryFailed, match="memory"):
            list(engine.batches(query))


def test_an_engine_that_fails_in_the_middle_leaves_the_table_as_it_was(tmp_path: Path) -> None:
    home = TableHome(str(tmp_path / "tables"))
    log = scripted(1)
    update(home, write(log, tmp_path / "log", 0, 40))
    with home.held():
        made = refresh(home, lambda _tables: nullcontext(Scripted(3, 9)), {})
        assert made == dict.fromkeys(DERIVED, 3)
        version = DeltaTable(home.derived_path("traffic")).version()
    update(home, write(log, tmp_path / "log", 40, 80))
    broken = Scripted(3, 2)
    with home.held(), pytest.raises(QueryFailed, match="out of memory"):
        refresh(home, lambda _tables: nullcontext(broken), {})
    assert DeltaTable(home.derived_path("traffic")).version() == version
