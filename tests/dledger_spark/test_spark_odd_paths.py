"""Every command and option that takes a path takes each name that the file system takes."""

from __future__ import annotations

import glob
import json
import shutil
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click
import pytest

pytest.importorskip("deltalake", reason="deltalake is not installed: run make setup-spark")
pytest.importorskip("duckdb", reason="duckdb is not installed: run make setup-spark")

from dledger_spark.commands.spark_commands import dledger_spark
from dledger_spark.errors import OptionInvalid, TablesInvalid
from dledger_spark.local_path import SPARK_PATHS, pattern_for_duckdb, tables_path
from dledger_spark.query.source_options import read_options
from dledger_spark.replay.table_folder import replay_run
from dledger_spark.tables.delta_files import delta_failures
from tests.dledger_spark.test_spark_commands import LogWriter, orders, run

ALL_IN_ONE = "a b%#?&+=;:,'\"`*{x,y}$HOME~é日<"
# What ALL_IN_ONE is not: odd at an end, and nothing but odd.
ODD_AT_ENDS = (" ends ", "100%", "*")
# What of ALL_IN_ONE it is, should it be refused.
ONE_BY_ONE = ("my tables", "a#b", "a?b", "é日本", "a:b", "it's", "{a,b}")
NAMES = (*ODD_AT_ENDS, *ONE_BY_ONE, ALL_IN_ONE)
REFUSED_BY_DELTA = ("a%20b", "a[b]", "a|b", "^", "a\\b", "a\nb", "\x7f", "a\udcffb")
# What each option names; a new one belongs to a test here.
OF_PATHS = {
    "replay": {"--path", "--out"},
    "count": {"--path"},
    "show": {"--path"},
    "tables": {"--path", "--out"},
    "stream": {"--path", "--out"},
    "sql": {"--tables"},
    "report": {"--tables", "--out"},
    "status": {"--tables", "--path"},
    "prune": {"--tables"},
    "publish": {"--tables"},
    "catalog": {"--tables"},
}


def test_every_option_that_takes_a_path_is_known() -> None:
    found = {}
    for name, command in dledger_spark.commands.items():
        options = [one for one in command.params if isinstance(one, click.Option)]
        named = {"DIR", "OUT", "FILE"}
        found[name] = {one.opts[0] for one in options if (one.metavar or "").upper() in named}
    assert found == OF_PATHS


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [
        pytest.param((f" {ALL_IN_ONE} ",), id="all"),
        pytest.param((*ODD_AT_ENDS, *ONE_BY_ONE), id="one by one", marks=pytest.mark.long),
    ],
)
def test_tables_sql_report_and_show_work_in_folders_of_any_name(
    write_log: LogWriter, tmp_path: Path, names: tuple[str, ...]
) -> None:
    plain = write_log(orders(12), segment_bytes=1 << 16)
    wrong = []
    for name in names:
        log = tmp_path / "logs" / name / "dledger-n0"
        shutil.copytree(plain, log)
        out = tmp_path / "out" / name / "tables"
        page = tmp_path / "pages" / f"{name}.html"
        page.parent.mkdir(exist_ok=True)
        found = [
            run("tables", "--path", log, "--out", out, "--json"),
            run("tables", "--path", log, "--out", out, "--json"),
            run("sql", "--tables", out, "select count(*) from messages", "--json"),
            run("sql", "--tables", out, "select sum(messages) n from traffic", "--json"),
            run("report", "--tables", out, "--out", page),
            run("show", "--path", log, "--table", "messages", "--json"),
            run("status", "--tables", out, "--path", log, "--json"),
            run("prune", "--tables", out, "--json"),
            run("catalog", "--tables", out, "--for", "duckdb"),
        ]
        added = [json.loads(text)["entries_added"] for code, text in found[:2] if code == 0]
        if (
            any(code for code, _ in found)
            or added != [12, 0]
            or '"count_star()": 10' not in found[2][1].replace('":10', '": 10')
            or len(found[5][1].splitlines()) != 10
            or not page.is_file()
        ):
            wrong.append((name, found))
    assert not wrong
    # Nothing was written beside the folders that were named.
    assert {path.name for path in (tmp_path / "out").iterdir()} == set(names)


def test_a_folder_that_deltas_library_cannot_use_is_refused_in_a_line(
    write_log: LogWriter, tmp_path: Path
) -> None:
    log = write_log(orders(3))
    for name in REFUSED_BY_DELTA:
        out = tmp_path / name / "tables"
        code, text = run("tables", "--path", log, "--out", out)
        assert (code, text.count("\n"), "Delta tables" in text) == (1, 1, True), (name, text)
        assert not out.parent.exists()
    # It follows links, so that one does not help.
    (tmp_path / "a[b]").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a[b]")
    with pytest.raises(OptionInvalid, match="cannot be in a folder with"):
        tables_path("out", str(tmp_path / "link" / "tables"))


def test_what_a_file_system_keeps_at_its_root_may_be_in_an_output(
    write_log: LogWriter, tmp_path: Path
) -> None:
    out = tmp_path / "disk"
    (out / "lost+found").mkdir(parents=True)
    assert run("tables", "--path", write_log(orders(3)), "--out", out, "--facts-only")[0] == 0
    (tmp_path / "other" / "lost+found").mkdir(parents=True)
    with replay_run(str(tmp_path / "other")):
        pass


def test_where_deltas_library_aborts_the_error_is_a_line() -> None:
    aborted = type("PanicException", (BaseException,), {})
    with (
        pytest.raises(TablesInvalid, match="t: cannot be written: Delta's library gave up"),
        delta_failures("t", "cannot be written"),
    ):
        raise aborted("no space")
    with pytest.raises(KeyboardInterrupt), delta_failures("t", "cannot be written"):
        raise KeyboardInterrupt


def test_a_pattern_of_a_path_matches_that_path_alone(tmp_path: Path) -> None:
    for name in (*NAMES, "a[b]", "x", "axb", "[]"):
        (tmp_path / name).touch()
    for path in tmp_path.iterdir():
        assert glob.glob(pattern_for_duckdb(str(path))) == [str(path)]
        assert fnmatchcase(str(path), pattern_for_duckdb(str(path)))


def test_spaces_at_the_ends_of_a_path_belong_to_it() -> None:
    assert read_options({"path": " a ", "table": " messages "}).path == " a "


def test_a_comma_in_the_path_of_temporary_files_is_refused_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: run make setup-spark")
    from dledger_spark.session import local_session  # noqa: PLC0415

    (tmp_path / "a,b").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "a,b"))
    with pytest.raises(OptionInvalid, match="TMPDIR"), local_session():
        pass


@pytest.mark.spark
# By default DuckDB's commands are tried with all odd names, and Spark's with none.
@pytest.mark.long
@pytest.mark.parametrize(
    "of_tables",
    [
        # Spark needs most of the time for the derived tables, which it reads from the others.
        pytest.param(("--facts-only",), id="facts"),
        pytest.param((), id="all tables"),
    ],
)
def test_commands_with_spark_work_in_a_folder_of_any_name(
    spark: Any,
    write_log: LogWriter,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    of_tables: tuple[str, ...],
) -> None:
    use_session(spark, monkeypatch)
    base = tmp_path / ALL_IN_ONE
    log = base / "log" / "dledger-n0"
    shutil.copytree(write_log(orders(12), segment_bytes=1 << 16), log)
    out, streamed, replayed = base / "tables", base / "streamed", base / "replayed"
    count = "select count(*) n from messages"
    for words in (
        ("count", "--path", log),
        ("replay", "--path", log, "--out", replayed),
        ("tables", "--path", log, "--out", out, "--engine", "spark", *of_tables),
        ("stream", "--path", log, "--out", streamed, "--once"),
        ("stream", "--path", log, "--out", streamed, "--once"),
    ):
        code, text = run(*words)
        assert code == 0, (words[0], text)
    for folder in (out, streamed):
        found = run("sql", "--tables", folder, count, "--engine", "spark", "--json")
        assert (found[0], json.loads(found[1])) == (0, {"n": 10})
    assert spark.read.options(**SPARK_PATHS).parquet(str(replayed / "messages")).count() == 10
    assert {path.name for path in tmp_path.iterdir()} == {ALL_IN_ONE, "log"}


def use_session(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the commands use a session that is there: a process can have only one."""
    from contextlib import nullcontext  # noqa: PLC0415

    import dledger_spark.session  # noqa: PLC0415

    given: Callable[..., Any] = lambda *_args, **_more: nullcontext(spark)  # noqa: E731
    monkeypatch.setattr(dledger_spark.session, "local_session", given)
