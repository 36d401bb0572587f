"""Tasks that share the work make the tables that one process makes, wherever they were stopped."""

from __future__ import annotations

import hashlib
import json
import pickle
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="deltalake is not installed: run make setup-spark")
pytest.importorskip("duckdb", reason="duckdb is not installed: run make setup-spark")

from click.testing import CliRunner
from deltalake import DeltaTable

from dledger.entry import HEADER_BYTES
from dledger_spark.commands.spark_commands import dledger_spark
from dledger_spark.errors import DataLost, LogDamaged, TablesInvalid
from dledger_spark.facts.fact_schemas import FACTS
from dledger_spark.log.folder_log import FolderLog
from dledger_spark.log.log_folder import open_log
from dledger_spark.tables.fact_table import FactTable
from dledger_spark.tables.kept_passes import KeptRange, KeptRows
from dledger_spark.tables.spark_update import update_on_spark
from dledger_spark.tables.table_home import TableHome
from tests.dledger_spark.test_spark_odd_paths import use_session
from tests.dledger_spark.test_spark_table_updates import (
    PROJECT,
    rows_of,
    scripted,
    update,
    write,
)
from tests.examples import seeds


class Tasks:
    """Spark's context, as far as it is asked: each task begins in another process, so to speak.

    Attributes:
        count: the tasks of each stage.
        ran: the arguments of each kind of task.
    """

    def __init__(self, chance: random.Random | None) -> None:
        """Without `chance` tasks run once, in order."""
        self._chance = chance
        self.count: list[int] = []
        self.ran: dict[str, list[Any]] = {}

    def parallelize(self, arguments: Sequence[Any], slices: int) -> Any:
        assert slices == len(arguments)
        self.count.append(slices)

        def mapped(task: Callable[[Any], Any]) -> Any:
            self.ran.setdefault(task.__name__, []).extend(arguments)

            def collect() -> list[Any]:
                found: dict[int, Any] = {}
                order = list(range(len(arguments)))
                if self._chance is not None:
                    self._chance.shuffle(order)
                for at in order:
                    times = 1 if self._chance is None else self._chance.choice([1, 1, 2])
                    for _ in range(times):  # a lost worker's runs again
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
    for kind, name in ((KeptRows, "end"), (KeptRange, "keep_written")):
        monkeypatch.setattr(kind, name, stopped_around(getattr(kind, name), chance))
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
    assert not kept_files(home)


def stopped_around(save: Callable[..., None], chance: random.Random) -> Callable[..., None]:
    def stopping(*arguments: Any) -> None:
        if chance.random() < 0.02:
            raise Stopped
        save(*arguments)
        if chance.random() < 0.02:
            raise Stopped

    return stopping


def kept_files(home: TableHome) -> list[Path]:
    return [path for path in Path(home.path, "_passes").rglob("*") if path.is_file()]


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


def damaged_copy(
    base: Path, indexes: Sequence[int], place: int = HEADER_BYTES, group: str = "g"
) -> FolderLog:
    """A log of 80 entries, in some of which the byte at a place is another one."""
    folder = write(scripted(1), base, 0, 80, group)
    [batch] = folder.batches(range(80), batch_bytes=1 << 28, checksums=True)
    [file] = [path for path in base.rglob("data/*") if path.is_file()]
    content = bytearray(file.read_bytes())
    for index in indexes:
        content[batch.column("pos")[index].as_py() + place] ^= 4
    file.write_bytes(content)
    return FolderLog(open_log(str(folder.folder.path)))


@pytest.mark.parametrize(
    ("damaged", "place", "has_index"),
    [
        ((0,), HEADER_BYTES, True),
        ((20, 21, 60), HEADER_BYTES, True),
        ((79,), HEADER_BYTES, False),
        ((20, 60), 3, True),
        ((20, 60), 3, False),
    ],
)
def test_tasks_leave_out_damaged_entries_as_one_process_does(
    damaged: tuple[int, ...], place: int, has_index: bool, tmp_path: Path
) -> None:
    log = damaged_copy(tmp_path / "log", damaged, place)
    if not has_index:
        shutil.rmtree(Path(log.folder.path, "index"))
        log = FolderLog(open_log(log.folder.path))
    tasks = Tasks(random.Random(1))
    session = SimpleNamespace(sparkContext=tasks)
    home, at_once = TableHome(str(tmp_path / "tables")), TableHome(str(tmp_path / "at-once"))
    told = update(at_once, log, fail_on_data_loss=False)
    with home.held():
        (found,) = update_on_spark(
            session, home, [log], fail_on_data_loss=False, round_bytes=20_000, range_bytes=4000
        )
    assert found == told
    assert rows_of(home) == rows_of(at_once)
    assert not kept_files(home)
    searched = [task.entries for task in tasks.ran["search"]]
    assert all(any(index in entries for index in damaged) for entries in searched) or not has_index
    if place == HEADER_BYTES:
        assert found.read == 80 - len(damaged)


def test_a_damaged_entry_costs_its_own_range_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = [damaged_copy(tmp_path / "g", [50]), write(scripted(2), tmp_path / "h", 0, 80, "h")]
    read = noted(monkeypatch, KeptRange, "keep_written")
    ordered = noted(monkeypatch, KeptRows, "end")
    tasks = Tasks(random.Random(1))
    home = TableHome(str(tmp_path / "tables"))
    with home.held():
        update_on_spark(
            SimpleNamespace(sparkContext=tasks),
            home,
            logs,
            fail_on_data_loss=False,
            range_bytes=3000,
        )
    [search] = tasks.ran["search"]
    assert 50 in search.entries
    of_h = [task for task in tasks.ran["order"] if task.origin == logs[1].origin]
    assert len(of_h) == 1
    written_once = [at for group, entries in read if group == "g" for at in entries]
    assert sorted(written_once) == [at for at in range(80) if at != 50]
    made_once = [at for group, entries in ordered if group == "g" for at in entries]
    assert sorted(made_once) == [at for at in range(80) if at != 50]


def test_a_damaged_entry_is_an_error_once_all_else_is_in_the_tables(tmp_path: Path) -> None:
    logs = [damaged_copy(tmp_path / "g", [50]), write(scripted(2), tmp_path / "h", 0, 80, "h")]
    session = SimpleNamespace(sparkContext=Tasks(random.Random(1)))
    home, at_once = TableHome(str(tmp_path / "tables")), TableHome(str(tmp_path / "at-once"))
    with pytest.raises(LogDamaged):
        update(at_once, logs[0])
    update(at_once, logs[1])
    for _ in range(2):
        with home.held(), pytest.raises(LogDamaged) as caught:
            update_on_spark(session, home, logs, range_bytes=3000)
        assert caught.value.entry == 50
        assert rows_of(home) == rows_of(at_once)
    sound = write(scripted(1), tmp_path / "another-copy", 0, 80)
    update(at_once, sound)
    with home.held():
        update_on_spark(session, home, [sound], range_bytes=3000)
    assert rows_of(home) == rows_of(at_once)
    assert not kept_files(home)


def noted(monkeypatch: pytest.MonkeyPatch, kind: Any, name: str) -> list[tuple[str, range]]:
    """The group and the range of each later call that keeps something of a range."""
    found: list[tuple[str, range]] = []
    save = getattr(kind, name)

    def noting(kept: Any, *arguments: Any) -> None:
        path = Path(kept._path)
        first, last = path.name.split("-")
        found.append((path.parent.name, range(int(first), int(last) + 1)))
        save(kept, *arguments)

    monkeypatch.setattr(kind, name, noting)
    return found


_KILLED = """
import os, random, signal, sys
from types import SimpleNamespace
from dledger_spark.log.folder_log import open_folders
from dledger_spark.tables import kept_passes
from dledger_spark.tables.spark_update import update_on_spark
from dledger_spark.tables.table_home import TableHome
from tests.dledger_spark.test_spark_passes import Tasks

logs, out, of, name, left = sys.argv[1:]
left = int(left)
save = getattr(getattr(kept_passes, of), name)

def killing(*arguments):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    save(*arguments)

setattr(getattr(kept_passes, of), name, killing)
home, tasks = TableHome(out), Tasks(None)
with home.held():
    update_on_spark(SimpleNamespace(sparkContext=tasks), home, open_folders(logs), range_bytes=3000)
"""


@pytest.mark.parametrize(("of", "name"), [("KeptRows", "end"), ("KeptRange", "keep_written")])
def test_a_driver_killed_between_two_saves_repeats_the_range_it_was_in(
    of: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = write(scripted(1), tmp_path / "log", 0, 80)
    home, at_once = TableHome(str(tmp_path / "tables")), TableHome(str(tmp_path / "at-once"))
    command = [sys.executable, "-c", _KILLED, log.name, home.path, of, name, "3"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    kept = home.kept_ranges("g", range(80))
    # More than before was committed: the log has grown, so other ranges would be made of it.
    log = write(scripted(1), tmp_path / "log", 80, len(scripted(1).entries))
    saved = {
        saving: noted(monkeypatch, kind, saving)
        for kind, saving in ((KeptRows, "end"), (KeptRange, "keep_written"))
    }
    tasks = Tasks(random.Random(1))
    with home.held():
        update_on_spark(SimpleNamespace(sparkContext=tasks), home, [log], range_bytes=3000)
    update(at_once, log)
    assert rows_of(home) == rows_of(at_once)
    ranges = [task.entries for task in tasks.ran["decode"]]
    assert ranges[: len(kept)] == kept
    found = [one for one in ranges if ("g", one) not in saved[name]]
    assert len(found) == 3
    if name == "end":
        assert kept == found
    else:
        assert not {("g", one) for one in kept}.intersection(saved["end"])


def test_what_is_kept_of_another_log_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = SimpleNamespace(sparkContext=Tasks(random.Random(1)))
    home, at_once = TableHome(str(tmp_path / "tables")), TableHome(str(tmp_path / "at-once"))
    one = write(scripted(1), tmp_path / "one", 0, 80)
    with home.held(), monkeypatch.context() as patched:
        patched.setattr(FactTable, "commit", stopped_around(FactTable.commit, _Always()))
        with pytest.raises(Stopped):
            update_on_spark(session, home, [one])
    assert kept_files(home)
    other = write(scripted(2), tmp_path / "two", 0, 80)
    update(at_once, other)
    with home.held():
        update_on_spark(session, home, [other])
    assert rows_of(home) == rows_of(at_once)


class _Always(random.Random):
    def random(self) -> float:
        return 0.0


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


@pytest.mark.spark
def test_the_command_with_spark_makes_the_facts_that_it_makes_without(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_session(spark, monkeypatch)
    logs = tmp_path / "logs"
    damaged_copy(logs / "g", [50])
    write(scripted(2, 60), logs / "h", 0, 60, "h")
    jobs = noted_jobs(spark, monkeypatch)
    sums, told = [], []
    for engine in ("duckdb", "spark"):
        home = TableHome(str(tmp_path / engine))
        words = ["tables", "--path", str(logs), "--out", home.path, "--engine", engine, "--json"]
        words += ["--facts-only", "--no-fail-on-data-loss"]
        done = CliRunner().invoke(dledger_spark, words)
        assert done.exit_code == 0, done.output
        assert "entries 50..50 are lost" in done.stderr
        told.append({**json.loads(done.stdout), "out": ""})
        text = json.dumps(rows_of(home), default=repr)
        sums.append(hashlib.sha256(text.encode()).hexdigest())
        assert bool(jobs) == (engine == "spark")
    assert told[0] == told[1]
    assert sums[0] == sums[1]
    jobs.clear()
    again = CliRunner().invoke(dledger_spark, words)
    assert (again.exit_code, json.loads(again.stdout)["entries_added"]) == (0, 0)
    assert not jobs


def noted_jobs(spark: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of tasks of each later stage of `update_on_spark`."""
    found: list[int] = []
    share = spark.sparkContext.parallelize

    def noting(arguments: Sequence[Any], slices: int) -> Any:
        found.append(slices)
        return share(arguments, slices)

    monkeypatch.setattr(spark.sparkContext, "parallelize", noting)
    return found
