"""Tables whose files are gone or damaged: derived ones are made anew, facts say what to do."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="deltalake is not installed: run make setup-spark")
pytest.importorskip("duckdb", reason="duckdb is not installed: run make setup-spark")

from dledger_spark.facts.fact_schemas import FACTS
from dledger_spark.tables import delta_files
from dledger_spark.tables.catalog import catalog
from dledger_spark.tables.derived import DERIVED, QUEUE_MINUTES, STORED
from dledger_spark.tables.duckdb_engine import duckdb_engine
from dledger_spark.tables.table_home import TableHome
from tests.dledger_spark.test_spark_table_updates import run, scripted, write

LOG = scripted(5)
MIDDLE = 80
NEW_FOLDER = "make the tables anew from the log, in a new folder"
ANEW = "remove this table's folder, and `dledger-spark tables` makes it anew"


class Case:
    """Tables of the first part of a log.

    Attributes:
        words: the command that adds what the log has behind it.
    """

    def __init__(self, base: Path) -> None:
        self._base = base
        self.home = TableHome(str(base / "tables"))
        self.words = ("tables", "--path", str(base / "log"), "--out", self.home.path)

    def grow(self, first: int = MIDDLE, stop: int | None = None) -> None:
        """Let the log have its entries first..stop - 1."""
        write(LOG, self._base / "log", first, len(LOG.entries) if stop is None else stop)

    def tables(self) -> None:
        code, output = run(*self.words)
        assert code == 0, output

    def fails(self, *words: object) -> str:
        """The line that a command ends with."""
        code, output = run(*map(str, words))
        assert (code, output.count("\n"), "Traceback" in output) == (1, 1, False), output
        return output

    def rows(self) -> dict[str, list[str]]:
        return rows_of(self.home)


def rows_of(home: TableHome) -> dict[str, list[str]]:
    with duckdb_engine(catalog(home)) as engine:
        return {
            name: sorted(map(repr, engine.query(f'select * from "{name}"').to_pylist()))
            for name in (*FACTS, *DERIVED)
        }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("made")
    case = Case(base / "case")
    case.grow(0, MIDDLE)
    case.tables()
    shutil.copytree(base / "case", base / "grown")
    grown = Case(base / "grown")
    grown.grow()
    grown.tables()
    (base / "rows.json").write_text(json.dumps(grown.rows()))
    return base


@pytest.fixture
def case(made: Path, tmp_path: Path) -> Case:
    shutil.copytree(made / "case", tmp_path, dirs_exist_ok=True)
    return Case(tmp_path)


def files_of(folder: str) -> list[Path]:
    return sorted(Path(folder).glob("*.parquet"))


def gone(file: Path) -> None:
    file.unlink()


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def spoilt(file: Path) -> None:
    """As long as it was, and unreadable from its beginning to its end."""
    file.write_bytes(b"\xa5" * file.stat().st_size)


def without_footer(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[:-40] + bytes(40))


def with_spoilt_rows(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[:4] + b"\xff" * 30 + content[34:])


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("consumer_lag", gone),
        ("consumer_lag", without_footer),
        ("elections", cut_short),
        ("elections", with_spoilt_rows),
        (QUEUE_MINUTES, spoilt),
    ],
)
def test_a_derived_table_with_a_damaged_file_is_made_anew(
    name: str, damage: Callable[[Path], None], case: Case, made: Path
) -> None:
    [file] = files_of(case.home.derived_path(name))
    damage(file)
    case.grow()
    case.tables()
    assert case.rows() == json.loads((made / "rows.json").read_text())


@pytest.mark.parametrize("damage", [gone, cut_short])
def test_a_derived_table_that_lost_a_file_is_made_anew_without_new_entries(
    damage: Callable[[Path], None], case: Case
) -> None:
    before = case.rows()
    for name in STORED:
        for file in files_of(case.home.derived_path(name)):
            damage(file)
    line = case.fails("sql", "--tables", case.home.path, "select count(*) from messages")
    assert "is gone or cut short" in line
    assert ANEW in line
    case.tables()
    assert case.rows() == before


def test_a_derived_table_whose_folder_was_removed_is_made_anew(case: Case) -> None:
    before = case.rows()
    shutil.rmtree(case.home.derived_path("traffic"))
    case.tables()
    assert case.rows() == before


def test_a_derived_table_with_a_damaged_log_of_delta_says_what_to_do(case: Case) -> None:
    before = case.rows()
    log = Path(case.home.derived_path("traffic"), "_delta_log")
    for file in log.iterdir():
        file.write_text("junk")
    assert ANEW in case.fails(*case.words)
    shutil.rmtree(log.parent)
    case.tables()
    assert case.rows() == before


READERS = (
    ("sql", "select count(*) from traffic"),
    ("report", "--out", os.devnull),
    ("status",),
    ("publish", "--target", "copy"),
    ("catalog",),
)


def test_facts_that_lost_a_file_say_what_to_do(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    [file] = files_of(case.home.fact_path("messages"))
    file.unlink()
    for words in READERS:
        line = case.fails(words[0], "--tables", case.home.path, *words[1:])
        assert f"{case.home.fact_path('messages')}: its file {file.name} is gone" in line
        assert NEW_FOLDER in line


def test_facts_that_lost_a_file_are_not_added_up(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    [file] = files_of(case.home.fact_path("messages"))
    file.unlink()
    monkeypatch.setattr(delta_files, "SMALL_FILES_MAX", 2)  # its files are put together
    case.grow()
    assert NEW_FOLDER in case.fails(*case.words)


@pytest.mark.parametrize(
    ("name", "damage"),
    [("messages", spoilt), ("messages", with_spoilt_rows), ("traffic", without_footer)],
)
def test_a_query_that_meets_a_damaged_file_says_what_to_do(
    name: str, damage: Callable[[Path], None], case: Case
) -> None:
    is_fact = name in FACTS
    folder = case.home.fact_path(name) if is_fact else case.home.derived_path(name)
    [file] = files_of(folder)
    damage(file)
    for words in (("sql", f"select * from {name}"), ("report", "--out", os.devnull)):
        line = case.fails(words[0], "--tables", case.home.path, *words[1:])
        assert f"[DLEDGER_TABLES_INVALID] {folder}: cannot be read: " in line
        assert (NEW_FOLDER if is_fact else ANEW) in line
    if is_fact:
        case.grow()
        assert NEW_FOLDER in case.fails(*case.words)


@pytest.mark.parametrize(
    ("name", "damage"),
    [("messages", spoilt), ("entries", without_footer), ("traffic", without_footer)],
)
def test_a_damaged_file_that_is_published_is_an_error_of_a_line(
    name: str, damage: Callable[[Path], None], case: Case, tmp_path: Path
) -> None:
    is_fact = name in FACTS
    folder = case.home.fact_path(name) if is_fact else case.home.derived_path(name)
    [file] = files_of(folder)
    damage(file)
    line = case.fails("publish", "--tables", case.home.path, "--target", tmp_path / "copy")
    assert f"[DLEDGER_TABLES_INVALID] {folder}: cannot be read: " in line
    assert (NEW_FOLDER if is_fact else ANEW) in line


@pytest.mark.parametrize("name", ["messages", "lost_entries", "entries"])
def test_a_table_of_facts_that_was_removed_is_not_begun_anew(name: str, case: Case) -> None:
    """The table of entries is an exception: all entries are read again for it."""
    before = case.rows()
    shutil.rmtree(case.home.fact_path(name))
    case.grow()
    if name == "entries":
        assert "run `dledger-spark tables` again" in case.fails(
            "status", "--tables", case.home.path
        )
        case.tables()
        assert set(before["entries"]) < set(case.rows()["entries"])
        return
    line = case.fails(*case.words)
    assert f"{case.home.fact_path(name)}: is gone with all its rows: {NEW_FOLDER}" in line
    assert not Path(case.home.fact_path(name)).exists()


def test_derived_tables_of_facts_that_were_made_anew_are_made_anew(
    case: Case, tmp_path: Path
) -> None:
    shutil.rmtree(f"{case.home.path}/facts")
    other = scripted(6)
    folder = write(other, tmp_path / "other", 0, 80).name
    for out in (case.home.path, tmp_path / "at-once"):
        assert run("tables", "--path", folder, "--out", str(out))[0] == 0
    assert case.rows() == rows_of(TableHome(str(tmp_path / "at-once")))


def test_a_table_that_an_earlier_version_did_not_have_is_begun(case: Case) -> None:
    [state] = Path(case.home.path, "_state", "g").iterdir()
    content = json.loads(state.read_text())
    del content["tables"]  # as an earlier version wrote it
    state.write_text(json.dumps(content))
    later = Path(case.home.fact_path("pop_progress"))
    shutil.rmtree(later)
    case.grow()
    case.tables()
    assert later.exists()
    shutil.rmtree(later)
    assert "is gone with all its rows" in case.fails(*case.words)
