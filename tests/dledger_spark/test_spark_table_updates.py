"""Tables grow by what is new in a log, each row once, wherever a writer was stopped."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="deltalake is not installed: run make setup-spark")
pytest.importorskip("duckdb", reason="duckdb is not installed: run make setup-spark")

from click.testing import CliRunner

from bench.process_figures import ran_s
from dledger.store.store_config import StoreConfig
from dledger_spark.commands.spark_commands import dledger_spark
from dledger_spark.errors import DataLost, OutputFailed, SegmentGone, TablesInvalid
from dledger_spark.facts.fact_schemas import FACTS
from dledger_spark.log.folder_log import FolderLog
from dledger_spark.log.log_folder import open_log
from dledger_spark.tables.catalog import CatalogTable, catalog
from dledger_spark.tables.derived import DERIVED, VIEWS, query
from dledger_spark.tables.duckdb_engine import duckdb_engine
from dledger_spark.tables.fact_table import FactTable
from dledger_spark.tables.refresh import refresh
from dledger_spark.tables.table_home import TableHome
from dledger_spark.tables.update import Updated, next_index, update_tables
from tests.dledger_spark.broker_script import ScriptedLog, random_step
from tests.dledger_spark.entry_writer import write_entries
from tests.dledger_spark.test_spark_tables import as_rows, check_tables, facts_of
from tests.examples import seeds

PROJECT = Path(__file__).parents[2]
CONFIG = StoreConfig(
    segment_bytes=1 << 22, index_segment_bytes=1 << 16, max_body_bytes=1 << 20, spare_segments=0
)


def scripted(seed: int, length: int = 150) -> ScriptedLog:
    chance = random.Random(seed)
    log = ScriptedLog()
    log.run([random_step(chance) for _ in range(length)])
    return log


def write(
    log: ScriptedLog,
    base: Path,
    first: int,
    stop: int,
    group: str = "g",
    committed: int | None = None,
) -> FolderLog:
    """Append entries to a node's log; one segment holds them all, so they lie where they should.

    All are committed, unless `committed` names the last one that is.
    """
    folder = write_entries(base, log.entries[first:stop], CONFIG, group, committed)
    return FolderLog(open_log(str(folder)))


def update(home: TableHome, log: FolderLog, **options: Any) -> Updated:
    with home.held():
        return update_tables(home, log, **options)


def rows_of(home: TableHome) -> dict[str, list[Any]]:
    with duckdb_engine(catalog(home)) as engine:
        return {
            name: sorted(engine.query(f'select * from "{name}"').to_pylist(), key=repr)
            for name in FACTS
        }


@pytest.fixture
def home(tmp_path: Path) -> TableHome:
    return TableHome(str(tmp_path / "tables"))


@pytest.mark.parametrize("seed", seeds(3, 1))
def test_tables_that_grew_in_steps_are_those_made_at_once(
    seed: int, home: TableHome, tmp_path: Path
) -> None:
    log = scripted(seed)
    added = 0
    for first, stop in ((0, 20), (20, 21), (21, 80), (80, len(log.entries))):
        folder = write(log, tmp_path / "log", first, stop)
        added += sum(update(home, folder, piece_bytes=3000).rows.values())
        assert update(home, folder).rows == dict.fromkeys(FACTS, 0)
    at_once = TableHome(str(tmp_path / "at-once"))
    assert sum(update(at_once, folder).rows.values()) == added
    assert rows_of(home) == rows_of(at_once)
    with duckdb_engine(catalog(home)) as engine:
        check_tables(log, facts_of(log, []), engine)


@pytest.mark.parametrize("before", seeds(len(FACTS), 3))
def test_a_writer_that_was_stopped_between_two_tables_doubles_nothing(
    before: int, home: TableHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = scripted(7)
    folder = write(log, tmp_path / "log", 0, len(log.entries))
    append, calls = FactTable.append, [0]

    def stopping(table: FactTable, *arguments: Any) -> int:
        calls[0] += 1
        if calls[0] % 13 == before:
            raise KeyboardInterrupt
        return append(table, *arguments)

    monkeypatch.setattr(FactTable, "append", stopping)
    for attempt in range(200):
        try:
            update(home, folder, piece_bytes=(4000, 1700, 7000)[attempt % 3])
            break
        except KeyboardInterrupt:
            continue
    else:
        pytest.fail("it never came to an end")
    monkeypatch.undo()
    at_once = TableHome(str(tmp_path / "at-once"))
    update(at_once, folder)
    assert rows_of(home) == rows_of(at_once)


@pytest.mark.long
def test_a_command_that_is_killed_at_any_moment_doubles_and_loses_nothing(
    home: TableHome, tmp_path: Path
) -> None:
    log = scripted(3, 4000)
    folder = write(log, tmp_path / "log", 0, len(log.entries))
    program = (
        "from dledger_spark.tables import update; "
        "update.update_tables.__kwdefaults__['piece_bytes'] = 20_000; "
        "from dledger_spark.commands.spark_commands import main; main()"
    )

    def command(out: TableHome) -> subprocess.Popen[bytes]:
        arguments = ["tables", "--path", folder.name, "--out", out.path, "--facts-only"]
        environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
        return subprocess.Popen([sys.executable, "-c", program, *arguments], env=environment)

    at_once = TableHome(str(tmp_path / "at-once"))
    whole = command(at_once)
    _pid, status, used = os.wait4(whole.pid, 0)
    whole.returncode = os.waitstatus_to_exitcode(status)
    assert whole.returncode == 0
    whole_s = used.ru_utime + used.ru_stime
    kills = 0
    chance = random.Random(1)
    while True:
        process = command(home)
        # By the processor time that it has had: on a busy machine it does little in a second.
        most_s = whole_s * (chance.uniform(0.2, 0.4) + max(kills - 3, 0) / 20)
        while (ended := process.poll()) is None and ran_s(process.pid) < most_s:
            time.sleep(0.02)
        if ended is not None:
            assert ended == 0
            break
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
        assert kills < 50
    assert kills >= 3
    assert rows_of(home) == rows_of(at_once)


def test_another_log_is_refused(home: TableHome, tmp_path: Path) -> None:
    update(home, write(scripted(1), tmp_path / "one", 0, 40))
    with pytest.raises(TablesInvalid, match=r"entry 39 of .* is another one"):
        update(home, write(scripted(2), tmp_path / "two", 0, 60))


@pytest.mark.parametrize("stop", [1, 39, 40, 60])
def test_another_log_is_refused_as_soon_as_it_shows(
    stop: int, home: TableHome, tmp_path: Path
) -> None:
    """As that of a group that was deleted and made again, or went on behind an older backup."""
    update(home, write(scripted(1), tmp_path / "one", 0, 40))
    other = replace_terms(scripted(1), 7)
    with pytest.raises(TablesInvalid, match=rf"entry {min(stop, 40) - 1} of .* is another one"):
        update(home, write(other, tmp_path / "two", 0, stop))


def replace_terms(log: ScriptedLog, term: int) -> ScriptedLog:
    log.entries = [entry._replace(term=term) for entry in log.entries]
    return log


def test_a_log_that_is_behind_the_tables_adds_nothing(home: TableHome, tmp_path: Path) -> None:
    log = scripted(1)
    update(home, write(log, tmp_path / "one", 0, 60))
    assert not update(home, write(log, tmp_path / "two", 0, 50)).entries


def test_logs_of_several_groups_share_the_tables(home: TableHome, tmp_path: Path) -> None:
    for group, seed in (("g", 1), ("h", 2)):
        update(home, write(scripted(seed), tmp_path / group, 0, 50, group))
    found = rows_of(home)["entries"]
    assert {row["raft_group"] for row in found} == {"g", "h"}
    assert len(found) == 100


def test_entries_that_retention_removed_are_an_error_unless_asked_for(
    home: TableHome, tmp_path: Path
) -> None:
    log = scripted(1)
    folder = write(log, tmp_path / "log", 0, 30)
    update(home, folder)
    folder = write(log, tmp_path / "log", 30, 80)
    later = FolderLog(replace(folder.folder, first_index=50, before_begin_chain=None))
    with pytest.raises(DataLost, match=r"30\.\.49"):
        update(home, later)
    assert update(home, later, fail_on_data_loss=False).entries == range(50, 80)
    indexes = sorted(row["index"] for row in rows_of(home)["entries"])
    assert indexes == [*range(30), *range(50, 80)]


def test_a_folder_has_one_writer(home: TableHome, tmp_path: Path) -> None:
    folder = write(scripted(1), tmp_path / "log", 0, 30)
    with home.held(), pytest.raises(TablesInvalid, match="another job writes there"):
        update(home, folder)


def test_a_folder_that_holds_something_else_is_refused(home: TableHome, tmp_path: Path) -> None:
    folder = write(scripted(1), tmp_path / "log", 0, 30)
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "thesis.txt").write_text("x")
    with pytest.raises(TablesInvalid, match=r"holds 'thesis\.txt'"):
        update(home, folder)
    assert os.listdir(home.path) == ["thesis.txt"]


@pytest.mark.parametrize("group", [".", "..", "-", "ü.x", "%2E"])
def test_a_group_of_any_name_has_a_folder_of_its_own(
    group: str, home: TableHome, tmp_path: Path
) -> None:
    log = scripted(1)
    update(home, write(log, tmp_path / "log", 0, 30, group))
    assert home.groups() == [group]
    assert update(home, write(log, tmp_path / "log", 30, 60, group)).entries == range(30, 60)


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"version": 9}', '{"version": 1}'])
def test_a_state_that_cannot_be_read_says_what_to_do(
    damage: str, home: TableHome, tmp_path: Path
) -> None:
    log = scripted(1)
    update(home, write(log, tmp_path / "log", 0, 30))
    folder = write(log, tmp_path / "log", 30, 60)
    (state,) = Path(home.path, "_state", "g").iterdir()
    state.write_text(damage)
    with pytest.raises(TablesInvalid, match="use a new folder"):
        update(home, folder)


# --- the commands ---------------------------------------------------------------------------------


def run(*words: object) -> tuple[int, str]:
    ended = CliRunner().invoke(dledger_spark, [str(word) for word in words])
    return ended.exit_code, ended.output


def test_tables_are_made_and_asked_in_a_terminal(tmp_path: Path) -> None:
    log = scripted(1)
    path, out = write(log, tmp_path / "log", 0, len(log.entries)).name, str(tmp_path / "out")
    code, output = run("tables", "--path", path, "--out", out, "--json")
    assert code == 0, output
    told = json.loads(output)
    assert told["entries_added"] == len(log.entries) == told["rows_added"]["entries"]
    assert told["rows"].keys() == set(DERIVED)
    assert run("tables", "--path", path, "--out", out)[1].splitlines()[0] == "table\tkind\trows"
    code, output = run("sql", "--tables", out, "select count(*) as n from entries", "--json")
    assert (code, json.loads(output)) == (0, {"n": len(log.entries)})
    by_topic = "select topic, sum(messages) as messages from traffic group by 1"
    code, output = run("sql", "--tables", out, by_topic)
    assert code == 0
    lines = [line.split("\t") for line in output.splitlines()]
    assert lines[0] == ["topic", "messages"]
    listed = map(json.loads, run("sql", "--tables", out, by_topic, "--json")[1].splitlines())
    assert {row["topic"]: str(row["messages"]) for row in listed} == dict(lines[1:])


@pytest.mark.parametrize(
    ("kept", "here"),
    [(20, "{} is committed up to entry 19"), (0, "nothing of {} is committed")],
)
def test_a_copy_of_the_log_that_is_behind_the_tables_is_told_of(
    kept: int, here: str, tmp_path: Path
) -> None:
    log = scripted(1)
    ahead = write(log, tmp_path / "ahead", 0, 30).name
    behind = write(log, tmp_path / "behind", 0, 20, committed=kept - 1).name
    arguments = ("--out", str(tmp_path / "out"), "--facts-only", "--json")
    for path, hinted in ((ahead, False), (ahead, False), (behind, True)):
        ended = CliRunner().invoke(dledger_spark, ["tables", "--path", path, *arguments])
        assert ended.exit_code == 0, ended.output
        assert json.loads(ended.stdout)["through"] == {"g": 29}
        lines = [line for line in ended.stderr.splitlines() if line.startswith("nothing new")]
        assert lines == hinted * [
            "nothing new: the tables already have the entries up to 29, and " + here.format(behind)
        ]


def test_a_log_of_which_nothing_is_committed_adds_nothing(tmp_path: Path) -> None:
    log, out = scripted(1), str(tmp_path / "out")
    path = write(log, tmp_path / "log", 0, 30, committed=-1).name
    code, output = run("tables", "--path", path, "--out", out)
    assert (code, f"nothing to add: nothing of {path} is committed" in output) == (0, True), output
    assert "0 entries added" in output or "\t+0\n" in output
    write(log, tmp_path / "log", 30, 60)
    assert run("tables", "--path", path, "--out", out)[0] == 0
    assert run("report", "--tables", out, "--out", os.devnull)[0] == 0


@pytest.mark.parametrize("killed_behind", [1, len(FACTS) - 1])
def test_what_a_first_run_that_was_killed_has_left_is_told_in_a_line(
    killed_behind: int, home: TableHome, tmp_path: Path
) -> None:
    path = write(scripted(1), tmp_path / "log", 0, 30).name
    assert run("tables", "--path", path, "--out", home.path)[0] == 0
    shutil.rmtree(f"{home.path}/derived")
    for name in [*(name for name in FACTS if name != "entries"), "entries"][killed_behind:]:
        shutil.rmtree(home.fact_path(name))
    for words in (("status",), ("sql", "select 1"), ("publish", "--target", str(tmp_path / "x"))):
        code, output = run(words[0], "--tables", home.path, *words[1:])
        assert (code, "run `dledger-spark tables` again" in output) == (1, True), output
    assert run("tables", "--path", path, "--out", home.path)[0] == 0
    assert run("status", "--tables", home.path)[0] == 0


SMALL_FILES = replace(CONFIG, segment_bytes=1 << 13, max_body_bytes=1 << 12)


def test_a_file_that_retention_removes_meanwhile_costs_no_entry_before_it(
    home: TableHome, tmp_path: Path
) -> None:
    folder = write_entries(tmp_path / "log", scripted(4).entries, SMALL_FILES)
    log = FolderLog(open_log(str(folder)))
    os.unlink(log.folder.segments[1].path)
    with pytest.raises(SegmentGone):
        update(home, log)
    assert next_index(home, "g") == log.folder.segments[1].first_index


def test_a_log_that_cannot_be_added_keeps_no_other_from_the_tables(
    home: TableHome, tmp_path: Path
) -> None:
    """A file that is missing costs the entries behind it, and another log costs itself."""
    log = scripted(4)
    lacking = FolderLog(open_log(str(write_entries(tmp_path / "a", log.entries, SMALL_FILES, "a"))))
    _first, second, *_ = lacking.folder.segments
    os.unlink(second.path)
    update(home, write(log, tmp_path / "b", 0, 40, "b"))
    shutil.rmtree(tmp_path / "b")
    paths = [lacking.name]
    for group, of_group in (("b", replace_terms(scripted(4), 9)), ("c", log)):
        paths.append(write(of_group, tmp_path / group, 0, 60, group).name)
    words = [word for path in paths for word in ("--path", path)]
    ended = CliRunner().invoke(dledger_spark, ["tables", *words, "--out", home.path])
    lines = ended.stderr.splitlines()
    assert (ended.exit_code, len(lines)) == (1, 2), ended.output
    assert "[DLEDGER_DATA_LOST]" in lines[0]
    assert "entry 39 of" in lines[1]
    assert [next_index(home, group) for group in "abc"] == [second.first_index, 40, 60]
    counted = "select raft_group, sum(entries) as n from elections group by 1 order by 1"
    code, output = run("sql", "--tables", home.path, counted)
    assert (code, output) == (0, f"raft_group\tn\na\t{second.first_index}\nb\t40\nc\t60\n")


def test_a_table_whose_first_commit_was_killed_is_made(home: TableHome, tmp_path: Path) -> None:
    log = scripted(1)
    path = write(log, tmp_path / "log", 0, len(log.entries)).name
    for folder in (*map(home.fact_path, FACTS), *map(home.derived_path, DERIVED)):
        os.makedirs(f"{folder}/_delta_log")
    assert "holds no tables" in run("sql", "--tables", home.path, "select 1")[1]
    assert run("prune", "--tables", home.path)[0] == 0
    code, output = run("tables", "--path", path, "--out", home.path, "--json")
    assert code == 0, output
    assert json.loads(output)["entries_added"] == len(log.entries)


def test_a_table_with_a_damaged_log_of_delta_is_an_error_of_a_line(
    home: TableHome, tmp_path: Path
) -> None:
    path = write(scripted(1), tmp_path / "log", 0, 30).name
    words = ("tables", "--path", path, "--out", home.path)
    assert run(*words)[0] == 0
    Path(home.fact_path("messages"), "_delta_log", "00000000000000000001.json").write_text("junk")
    code, output = run(*words)
    assert code == 1
    assert f"[DLEDGER_TABLES_INVALID] {home.fact_path('messages')}: cannot be read" in output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("sql", "--tables", "nowhere", "select 1"), "holds no tables: make them with"),
        (("tables", "--path", "nowhere", "--out", "out"), "nowhere: does not exist"),
        (("tables", "--path", "nowhere"), "Missing option '--out'"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(
    words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, output = run(*words)
    assert code != 0
    assert said in output
    assert "Traceback" not in output


def test_a_query_that_cannot_be_answered_is_an_error_of_a_line(tmp_path: Path) -> None:
    path, out = write(scripted(1), tmp_path / "log", 0, 30).name, str(tmp_path / "out")
    assert run("tables", "--path", path, "--out", out, "--facts-only")[0] == 0
    code, output = run("sql", "--tables", out, "select nothing from entries")
    assert code == 1
    assert "the query cannot be answered" in output


@pytest.mark.parametrize(
    ("query_text", "hinted"),
    [
        ("select offset from messages", True),
        ("select topic, OFFSET from messages", True),
        ("selekt m.offset from messages m", False),
        ("selekt \"offset\" from messages where topic = 'offset'", False),
    ],
)
def test_a_column_that_is_a_word_of_sql_is_hinted_at(
    query_text: str, hinted: bool, tmp_path: Path
) -> None:
    path, out = write(scripted(1), tmp_path / "log", 0, 30).name, str(tmp_path / "out")
    assert run("tables", "--path", path, "--out", out, "--facts-only")[0] == 0
    code, output = run("sql", "--tables", out, query_text)
    assert code == 1
    assert ('write the column offset as "offset", or with its table: m.offset' in output) == hinted
    assert run("sql", "--tables", out, 'select "offset", m.offset from messages m')[0] == 0


def test_columns_of_one_name_keep_their_values(tmp_path: Path) -> None:
    path, out = write(scripted(1), tmp_path / "log", 0, 30).name, str(tmp_path / "out")
    assert run("tables", "--path", path, "--out", out, "--facts-only")[0] == 0
    words = ("sql", "--tables", out, "select 1 as a, 2 as a, 3 as a_1, 4 as a")
    assert run(*words) == (0, "a\ta_2\ta_1\ta_3\n1\t2\t3\t4\n")
    assert run(*words, "--json") == (0, '{"a": 1, "a_2": 2, "a_1": 3, "a_3": 4}\n')


@pytest.mark.parametrize("value", ["timestamp '20000-01-01'", "date 'infinity'"])
def test_a_time_that_cannot_be_printed_is_an_error_of_a_line(value: str, tmp_path: Path) -> None:
    path, out = write(scripted(1), tmp_path / "log", 0, 30).name, str(tmp_path / "out")
    assert run("tables", "--path", path, "--out", out, "--facts-only")[0] == 0
    code, output = run("sql", "--tables", out, f"select {value}")
    assert code == 1
    assert "cast it to varchar" in output
    assert run("sql", "--tables", out, f"select cast({value} as varchar)")[0] == 0


def types(table: Any) -> dict[str, str]:
    return {field.name: str(field.type) for field in table.schema}


def test_tables_are_made_of_what_comes_before_a_damaged_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, out = scripted(4), tmp_path / "out"
    write(log, tmp_path / "log", 0, len(log.entries))
    monkeypatch.setattr("dledger_spark.tables.update.BATCH_BYTES", 2048)
    entry = log.entries[60]
    with next((tmp_path / "log").glob("*/data/*")).open("r+b") as file:
        file.seek(entry.body_pos)
        file.write(b"damaged")
    words = ["tables", "--path", str(tmp_path / "log"), "--out", str(out)]
    ended = CliRunner().invoke(dledger_spark, words)
    assert (ended.exit_code, ended.output.count("\n")) == (1, 1), ended.output
    home = TableHome(str(out))
    there = next_index(home, "g") or 0
    assert 20 < there <= 60
    assert len(rows_of(home)["entries"]) == there
    assert os.path.isdir(home.derived_path("traffic"))


def test_a_folder_that_cannot_be_locked_is_not_written(
    home: TableHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", without_locks)
    with pytest.raises(OutputFailed, match="cannot be locked: No locks available"), home.held():
        pass


def test_tables_that_were_moved_while_a_job_wrote_are_not_begun_anew_where_they_were(
    home: TableHome, tmp_path: Path
) -> None:
    log, moved = scripted(1), TableHome(f"{tmp_path}/moved")
    folder = write(log, tmp_path / "log", 0, 60)
    with home.held():
        update_tables(home, folder)
        os.rename(home.path, moved.path)
        folder = write(log, tmp_path / "log", 60, 80)
        for _ in range(2):
            with pytest.raises(TablesInvalid, match="was moved or removed while this job"):
                update_tables(home, folder)
            with pytest.raises(TablesInvalid, match="was moved or removed while this job"):
                refresh(home, duckdb_engine, {})
            assert not os.path.exists(f"{home.path}/facts")
            with TableHome(home.path).held():  # another job begins there
                pass
    assert update(moved, folder).entries == range(60, 80)


@pytest.mark.spark
@pytest.mark.long
def test_spark_computes_the_same_tables(spark: Any, home: TableHome, tmp_path: Path) -> None:
    from dledger_spark.tables.spark_engine import SparkEngine  # noqa: PLC0415

    def spark_over(tables: Sequence[CatalogTable]) -> SparkEngine:
        return SparkEngine(spark, tables, home.spill_path)

    log = scripted(5, 300)
    for first, stop in ((0, 150), (150, len(log.entries))):
        update(home, write(log, tmp_path / "log", first, stop))
        with home.held():
            rows = refresh(home, lambda tables: nullcontext(spark_over(tables)), {})
    over = spark_over(catalog(home))
    assert not os.path.exists(home.spill_path)
    with duckdb_engine(catalog(home)) as engine:
        names = (*DERIVED, *VIEWS)
        stored = {query(name): engine.query(f'select * from "{name}"') for name in names}
        for name in names:
            assert types(engine.query(query(name))) == types(stored[query(name)]), name
    assert rows == {name: stored[query(name)].num_rows for name in DERIVED}
    check_tables(log, facts_of(log, []), SimpleNamespace(query=stored.__getitem__))
    traced = stored[query("trace")]
    of_spark = over.query("select * from trace")
    assert as_rows(of_spark, traced.schema.names) == as_rows(traced, traced.schema.names)
    # Without files, as `sql` asks.
    direct, names = over.query(query("traffic")), stored[query("traffic")].schema.names
    assert as_rows(direct, names) == as_rows(stored[query("traffic")], names)


@pytest.mark.spark
def test_spark_joins_tables_by_the_size_of_rows(
    spark: Any, home: TableHome, tmp_path: Path
) -> None:
    from dledger_spark.tables.spark_engine import SparkEngine, register_tables  # noqa: PLC0415

    update(home, write(scripted(1), tmp_path / "log", 0, 30))
    engine = SparkEngine(spark, catalog(home), home.spill_path)
    explain = "explain select * from messages m join consumer_progress p on p.topic = m.topic"

    joins = str(engine.query(explain).to_pylist())
    assert "SortMergeJoin" in joins
    assert "BroadcastHashJoin" not in joins
    register_tables(spark, catalog(home))
    assert "BroadcastHashJoin" in str(spark.sql(explain).collect())


@pytest.mark.spark
def test_engines_in_one_session_see_their_own_tables(
    spark: Any, home: TableHome, tmp_path: Path
) -> None:
    from dledger_spark.tables.spark_engine import SparkEngine  # noqa: PLC0415

    other = TableHome(f"{tmp_path}/other")
    spark.range(7).createOrReplaceTempView("now")
    engines = []
    for at, one in enumerate((home, other)):
        update(one, write(scripted(at), tmp_path / f"log{at}", 0, 30, f"g{at}"))
        engines.append(SparkEngine(spark, catalog(one), one.spill_path))
        engines[at].define("now", f"select {at} as id")
    for at, engine in enumerate(engines):
        groups = engine.query("select distinct m.raft_group, n.id from messages m, now n")
        assert groups.to_pylist() == [{"raft_group": f"g{at}", "id": at}]
    assert spark.table("now").count() == 7


@pytest.mark.spark
def test_a_query_that_spark_cannot_answer_is_an_error(
    spark: Any, home: TableHome, tmp_path: Path
) -> None:
    from dledger_spark.errors import QueryFailed  # noqa: PLC0415
    from dledger_spark.tables.spark_engine import SparkEngine  # noqa: PLC0415

    update(home, write(scripted(1), tmp_path / "log", 0, 30))
    engine = SparkEngine(spark, catalog(home), home.spill_path)
    for wrong in ("select nothing from entries", "selec"):
        with pytest.raises(QueryFailed):
            engine.query(wrong)
