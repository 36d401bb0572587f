"""A table with the log's tail has all that is committed, each row once, whatever a writer does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: run make setup-spark")
pytest.importorskip("deltalake", reason="deltalake is not installed: run make setup-spark")
pytest.importorskip("duckdb", reason="duckdb is not installed: run make setup-spark")

from deltalake import DeltaTable

from dledger_spark.errors import OptionInvalid, TablesInvalid
from dledger_spark.facts.fact_schemas import FACTS
from dledger_spark.log.folder_log import FolderLog
from dledger_spark.tables import tail
from dledger_spark.tables.catalog import CatalogTable, catalog_table
from dledger_spark.tables.fact_table import FactTable
from dledger_spark.tables.table_home import TableHome
from dledger_spark.tables.tail import whole_table, with_tail
from tests.dledger_spark.broker_script import ScriptedLog
from tests.dledger_spark.test_spark_table_updates import rows_of, scripted, update, write

Rows = list[dict[str, Any]]


def plain(rows: Rows) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


def rows_in(home: TableHome, *logs: FolderLog, table: str = "messages") -> list[str]:
    """What the files and the tasks have, without Spark."""
    whole = whole_table(home, logs, table, tasks=3)
    rows: Rows = []
    for file in whole.table.files:
        rows += pq.read_table(file).to_pylist()
    for task in whole.tasks:
        rows += pa.Table.from_batches(list(task.rows()), FACTS[table]).to_pylist()
    return plain(rows)


class Whole:
    """A random log, and the rows that tables of all of it have."""

    def __init__(self, base: Path) -> None:
        self.log: ScriptedLog = scripted(7)
        self.folder = write(self.log, base / "log", 0, len(self.log.entries))
        at_once = TableHome(str(base / "at-once"))
        update(at_once, self.folder)
        self.rows = rows_of(at_once)
        self.expected = {name: plain(rows) for name, rows in self.rows.items()}
        assert len(self.expected["messages"]) > 50


class Case:
    """Tables of that log, which a test makes, and what they should have."""

    def __init__(self, base: Path, whole: Whole) -> None:
        self.base = base
        self.home = TableHome(str(base / "tables"))
        self.log, self.folder = whole.log, whole.folder
        self.rows, self.expected = whole.rows, whole.expected


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return Whole(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def case(tmp_path: Path, whole: Whole) -> Case:
    return Case(tmp_path, whole)


def test_wherever_the_tables_end_each_row_is_there_once(case: Case) -> None:
    for stop in (1, 20, 77, len(case.log.entries)):
        update(case.home, case.folder, stop=stop)
        for table in ("messages", "entries"):
            found = rows_in(case.home, case.folder, table=table)
            assert found == case.expected[table], (table, stop)


def test_a_writer_that_was_killed_between_two_tables_doubles_nothing(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, calls = FactTable.append, [0]

    def stopping(table: FactTable, *arguments: Any) -> int:
        calls[0] += 1
        if calls[0] % 13 == 4:
            raise KeyboardInterrupt
        return append(table, *arguments)

    monkeypatch.setattr(FactTable, "append", stopping)
    update_ends = False
    while not update_ends:
        try:
            update(case.home, case.folder, piece_bytes=8000)
            update_ends = True
        except KeyboardInterrupt:
            if Path(case.home.fact_path("entries"), "_delta_log").exists():
                for table in ("messages", "entries"):
                    found = rows_in(case.home, case.folder, table=table)
                    assert found == case.expected[table], calls
    assert calls[0] > 20


@pytest.mark.parametrize("stop", [30, 100, 10**6])
def test_a_writer_that_adds_entries_meanwhile_changes_no_row(
    stop: int, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It also removes the states of before."""
    update(case.home, case.folder, stop=20)
    looked: list[str] = []

    def looking(name: str, path: str, opened: DeltaTable | None) -> CatalogTable:
        found = catalog_table(name, path, opened)
        if not looked:
            update(case.home, case.folder, stop=stop, piece_bytes=3000)
        looked.append(name)
        return found

    monkeypatch.setattr(tail, "catalog_table", looking)
    assert rows_in(case.home, case.folder) == case.expected["messages"]
    monkeypatch.setattr(tail, "catalog_table", catalog_table)
    assert rows_in(case.home, case.folder, table="entries") == case.expected["entries"]


def test_a_log_behind_its_tables_adds_nothing(case: Case) -> None:
    update(case.home, case.folder)
    behind = write(case.log, case.base / "behind", 0, 40)
    assert rows_in(case.home, behind) == case.expected["messages"]


def test_logs_of_which_there_are_no_tables_are_read_from_their_first_entry(case: Case) -> None:
    update(case.home, case.folder)
    other = write(case.log, case.base / "other", 0, len(case.log.entries), group="h")
    found = rows_in(case.home, case.folder, other)
    of_other = [row.replace("('raft_group', 'g')", "('raft_group', 'h')") for row in found]
    assert len(found) == 2 * len(case.expected["messages"])
    assert set(found) == {*case.expected["messages"], *of_other}


def test_what_does_not_fit_is_an_error(case: Case) -> None:
    with pytest.raises(TablesInvalid, match="holds no tables: make them with"):
        rows_in(case.home, case.folder)
    update(case.home, case.folder, stop=20)
    with pytest.raises(OptionInvalid, match="use one of entries, messages"):
        whole_table(case.home, [case.folder], "pops", tasks=1)
    other = write(scripted(8), case.base / "other", 0, 60)
    with pytest.raises(TablesInvalid, match="was made from another log"):
        rows_in(case.home, other)
    for state in Path(case.home.path, "_state", "g").iterdir():
        state.unlink()
    with pytest.raises(TablesInvalid, match="the state behind entry 19 is gone"):
        rows_in(case.home, case.folder)


@pytest.mark.spark
def test_spark_counts_everything_committed(spark: Any, case: Case) -> None:
    update(case.home, case.folder, stop=60)
    for table, columns in (
        ("messages", ["index", "topic", "offset", "topic_life"]),
        ("entries", ["index", "term"]),
    ):
        found = with_tail(spark, case.home, [case.folder], table)
        assert found.schema.names == FACTS[table].names
        rows = sorted(tuple(row) for row in found.select(columns).collect())
        assert rows == sorted(tuple(row[name] for name in columns) for row in case.rows[table])
    update(case.home, case.folder)
    assert with_tail(spark, case.home, [case.folder]).count() == len(case.expected["messages"])
