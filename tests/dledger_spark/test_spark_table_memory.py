"""Derived tables are computed in bounded memory, and what cannot be computed leaves them alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="deltalake is not installed: run make setup-spark")
pytest.importorskip("duckdb", reason="duckdb is not installed: run make setup-spark")

import pyarrow as pa
from deltalake import DeltaTable

from dledger_spark.errors import QueryFailed
from dledger_spark.tables.derived import DERIVED
from dledger_spark.tables.duckdb_engine import BATCH_ROWS, THREAD_MEMORY_MIB, engine_over
from dledger_spark.tables.refresh import refresh
from dledger_spark.tables.table_home import TableHome

ROWS = 3 * BATCH_ROWS
# 32 letters a row: they do not fit.
SORTED_ROWS, SMALL_MEMORY_MIB = 1_500_000, 64


class Scripted:
    """An engine with the same rows for each query.

    Attributes:
        given: batches that were asked for.
    """

    def __init__(self, batches: int, breaks_after: int) -> None:
        self._batches, self._breaks_after = batches, breaks_after
        self.given = 0

    def query(self, sql: str) -> pa.Table:
        return pa.Table.from_batches(self.batches(sql))

    def batches(self, _sql: str) -> Iterator[pa.RecordBatch]:
        for at in range(self._batches):
            if at == self._breaks_after:
                raise QueryFailed("out of memory")
            self.given += 1
            yield pa.RecordBatch.from_pydict({"at": [at]})


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
    with home.held():
        assert refresh(home, Scripted(3, 9), {}) == dict.fromkeys(DERIVED, 3)
        version = DeltaTable(home.derived_path("traffic")).version()
        broken = Scripted(3, 2)
        with pytest.raises(QueryFailed, match="out of memory"):
            refresh(home, broken, {})
    assert broken.given == 2
    assert DeltaTable(home.derived_path("traffic")).version() == version
