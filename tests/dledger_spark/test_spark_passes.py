"""Tasks that share the work make the tables that one process makes, wherever they were stopped."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="deltalake is not installed: run make setup-spark")
pytest.importorskip("duckdb", reason="duckdb is not installed: run make setup-spark")

from deltalake import DeltaTable

from dledger.entry import HEADER_BYTES
from dledger_spark.errors import DataLost, TablesInvalid
from dledger_spark.facts.fact_schemas import FACTS
from dledger_spark.log.folder_log import FolderLog
from dledger_spark.log.log_folder import open_log
from dledger_spark.tables.fact_table import FactTable
from dledger_spark.tables.spark_update import update_on_spark
from dledger_spark.tables.table_home import TableHome
from tests.dledger_spark.test_spark_table_updates import rows_of, scripted, update, write
from tests.examples import seeds


class Tasks:
    """Spark's context, as far as it is asked: each task begins in another process, so to speak.

    Attributes:
        count: the tasks of each stage.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.count: list[int] = []

    def parallelize(self, arguments: Sequence[Any], slices: int) -> Any:
        assert slices == len(arguments)
        self.count.append(slices)

        def mapped(task: Callable[[Any], Any]) -> Any:
            def collect() -> list[Any]:
                found: dict[int, Any] = {}
                order = list(range(len(arguments)))
                self._chance.shuffle(order)
                for at in order:
                    for _ in range(self._chance.choice([1, 1, 2])):  # a lost worker's runs again
                        sent, run = pickle.loads(pickle.dumps((arguments[at], task)))
                        found[at] = pickle.loads(pickle.dumps(run(sent)))
                return [found[at] for at in range(len(arguments))]

            return SimpleNamespace(collect=collect)

        return SimpleNamespace(map=mapped)


class Stopped(BaseException):
    pass


@pytest.mark.parametrize("seed", seeds(4, 1))
def test_tasks_that_are_stopped_anywhere_make_the_tables_of_one_process(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    logs = [
        write(log, tmp_path / group, 0, len(log.entries), group)
        for group, log in (("g", scripted(seed)), ("h", scripted(seed + 50, 90)))
    ]
    home, tasks = TableHome(str(tmp_path / "tables")), Tasks(chance)
    session = SimpleNamespace(sparkContext=tasks)
    commit = FactTable.commit

    def stopping(table: FactTable, *arguments: Any) -> None:
        if chance.random() < 0.08:
            raise Stopped
        commit(table, *arguments)
        if chance.random() < 0.04:
            raise Stopped

    monkeypatch.setattr(FactTable, "commit", stopping)
    for _ in range(200):
        try:
            with home.held():
                size = chance.choice([9000, 40_000])
                if chance.random() < 0.3:  # one process goes on with what tasks have begun
                    update_one(home, logs[0])
                update_on_spark(session, home, logs, round_bytes=size, range_bytes=3000)
            break
        except Stopped:
            continue
    else:
        pytest.fail("it never came to an end")
    monkeypatch.undo()
    at_once = TableHome(str(tmp_path / "at-once"))
    for log in logs:
        update(at_once, log)
    assert rows_of(home) == rows_of(at_once)
    assert max(tasks.count) > 2
    with home.held():
        again = update_on_spark(session, home, logs)
    assert [sum(one.rows.values()) for one in again] == [0, 0]


def update_one(home: TableHome, log: FolderLog) -> None:
    from dledger_spark.tables.update import update_tables  # noqa: PLC0415

    update_tables(home, log, piece_bytes=5000)


def test_files_of_tasks_have_the_bounds_of_their_rows_in_deltas_log(tmp_path: Path) -> None:
    log = scripted(3)
    folder = write(log, tmp_path / "log", 0, len(log.entries))
    home = TableHome(str(tmp_path / "tables"))
    session = SimpleNamespace(sparkContext=Tasks(random.Random(1)))
    with home.held():
        (updated,) = update_on_spark(session, home, [folder], range_bytes=20_000)
    assert updated.entries == range(len(log.entries))
    for name in FACTS:
        table = DeltaTable(home.fact_path(name))
        actions: Any = table.get_add_actions(flatten=True)
        told = dict(
            zip(actions.column_names, (column.to_pylist() for column in actions), strict=True)
        )
        rows = table.to_pyarrow_table()
        assert sum(told.get("num_records", [])) == len(rows) == updated.rows[name]
        if len(rows):
            indexes = rows.column("index").to_pylist()
            assert min(told["min.index"]) == min(indexes)
            assert max(told["max.index"]) == max(indexes)


def test_tasks_refuse_what_one_process_refuses(tmp_path: Path) -> None:
    session = SimpleNamespace(sparkContext=Tasks(random.Random(1)))
    home = TableHome(str(tmp_path / "tables"))
    with home.held():
        update_on_spark(session, home, [write(scripted(1), tmp_path / "one", 0, 40)])
        with pytest.raises(TablesInvalid, match=r"entry 39 of .* is another one"):
            update_on_spark(session, home, [write(scripted(2), tmp_path / "two", 0, 60)])


def test_lost_entries_are_an_error_in_tasks_too(tmp_path: Path) -> None:
    log = scripted(1)
    session = SimpleNamespace(sparkContext=Tasks(random.Random(1)))
    home = TableHome(str(tmp_path / "tables"))
    with home.held():
        update_on_spark(session, home, [write(log, tmp_path / "log", 0, 30)])
        folder = write(log, tmp_path / "log", 30, 80)
        later = FolderLog(replace(folder.folder, first_index=50, before_begin_chain=None))
        with pytest.raises(DataLost, match=r"30\.\.49"):
            update_on_spark(session, home, [later])


@pytest.mark.parametrize("damaged", [(0,), (20, 21, 60), (79,)])
def test_tasks_leave_out_damaged_entries_as_one_process_does(
    damaged: tuple[int, ...], tmp_path: Path
) -> None:
    folder = write(scripted(1), tmp_path / "log", 0, 80)
    [batch] = folder.batches(range(80), batch_bytes=1 << 28, checksums=True)
    [file] = [path for path in (tmp_path / "log").rglob("data/*") if path.is_file()]
    content = bytearray(file.read_bytes())
    for index in damaged:
        content[batch.column("pos")[index].as_py() + HEADER_BYTES] ^= 4
    file.write_bytes(content)
    log = FolderLog(open_log(str(folder.folder.path)))
    session = SimpleNamespace(sparkContext=Tasks(random.Random(1)))
    home, at_once = TableHome(str(tmp_path / "tables")), TableHome(str(tmp_path / "at-once"))
    told = update(at_once, log, fail_on_data_loss=False)
    with home.held():
        (found,) = update_on_spark(
            session, home, [log], fail_on_data_loss=False, round_bytes=9000, range_bytes=3000
        )
    assert found == told
    assert found.read == 80 - len(damaged)
    assert rows_of(home) == rows_of(at_once)


@pytest.mark.spark
def test_tasks_of_spark_make_the_tables_of_one_process(spark: Any, tmp_path: Path) -> None:
    logs = [
        write(log, tmp_path / group, 0, len(log.entries), group)
        for group, log in (("g", scripted(1, 60)), ("h", scripted(2, 40)))
    ]
    home, at_once = TableHome(str(tmp_path / "tables")), TableHome(str(tmp_path / "at-once"))
    with home.held():
        update_on_spark(spark, home, logs, round_bytes=60_000, range_bytes=20_000)
    for log in logs:
        update(at_once, log)
    assert rows_of(home) == rows_of(at_once)
