"""`status`, `prune` and `catalog` of tables that are there."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

pytest.importorskip("deltalake", reason="deltalake is not installed: run make setup-spark")

from dledger_spark.errors import TablesInvalid
from dledger_spark.tables.catalog import CatalogTable, catalog, catalog_table, registration
from dledger_spark.tables.derived import STORED
from dledger_spark.tables.duckdb_engine import duckdb_engine
from dledger_spark.tables.publish import Target, publish
from dledger_spark.tables.table_home import TableHome
from tests.dledger_spark.test_spark_commands import orders, run

LogWriter = Callable[..., Path]


def told(*words: object) -> dict[str, Any]:
    code, text = run(*words, "--json")
    assert code == 0, text
    found: dict[str, Any] = json.loads(text)
    return found


def test_status_tells_what_the_tables_have_and_how_far_they_are_behind(
    write_log: LogWriter, tmp_path: Path
) -> None:
    log, out = write_log(orders(9)), tmp_path / "out"
    assert run("tables", "--path", log, "--out", out)[0] == 0
    write_log(orders(12)[9:])
    found = told("status", "--tables", out, "--path", log)
    [of_log] = found["logs"]
    committed = of_log.pop("committed")
    assert of_log == {
        "raft_group": "g",
        "entries": committed - 3,
        "planned": None,
        "behind": 3,
    }
    tables = {one["name"]: one for one in found["tables"]}
    assert tables["entries"]["rows"] == committed - 3
    assert {tables[name]["kind"] for name in ("messages", "traffic")} == {"facts", "derived"}
    assert all(0 <= one["age_s"] < 600 and one["files"] for one in tables.values() if one["rows"])
    words = ("status", "--tables", out, "--path", log)
    assert run(*words, "--max-behind", "3", "--max-age", "9999")[0] == 0
    code, text = run(*words, "--max-behind", "2")
    assert (code, "[DLEDGER_TABLES_STALE]" in text, "3 entries of 'g'" in text) == (1, True, True)
    code, text = run(*words, "--max-age", "0")
    assert (code, "no table was written for" in text) == (1, True)
    assert run("status", "--tables", out, "--max-behind", "3")[0] == 2
    [of_log] = told("status", "--tables", out)["logs"]
    assert (of_log["committed"], of_log["behind"]) == (None, None)


def test_status_says_that_a_log_was_not_looked_at(write_log: LogWriter, tmp_path: Path) -> None:
    out, paths = tmp_path / "out", []
    for group in ("g", "h"):
        log = write_log(orders(9), base=tmp_path / group, group=group)
        paths += ["--path", log]
        assert run("tables", "--path", log, "--out", out, "--facts-only")[0] == 0
    words = ("status", "--tables", out, "--max-behind", "3")
    assert run(*words, *paths)[0] == 0
    code, text = run(*words, *paths[:2])
    assert (code, "that of 'h' is not among those that are named" in text) == (2, True)
    write_log(orders(19)[9:], base=tmp_path / "g", group="g")
    code, text = run(*words, *paths[:2])
    assert (code, "10 entries of 'g'" in text) == (1, True)


@pytest.mark.parametrize("count", [6, 30])
def test_status_tells_that_a_log_was_recreated(
    count: int, write_log: LogWriter, tmp_path: Path
) -> None:
    log, out = write_log(orders(12)), tmp_path / "out"
    assert run("tables", "--path", log, "--out", out, "--facts-only")[0] == 0
    write_log([b"another"] * count, base=tmp_path / "again")
    words = ("status", "--tables", out, "--max-behind", "50")
    assert run(*words, "--path", log)[0] == 0
    code, text = run(*words, "--path", tmp_path / "again")
    last = min(12, count) - 1
    assert (code, "[DLEDGER_TABLES_OF_ANOTHER_LOG]" in text) == (1, True)
    assert f"entry {last} of {tmp_path}/again/dledger-n0 is another one" in text


def test_status_reads_the_checkpoint_of_a_stream(write_log: LogWriter, tmp_path: Path) -> None:
    log, out = write_log(orders(9)), tmp_path / "out"
    assert run("tables", "--path", log, "--out", out, "--facts-only")[0] == 0
    checkpoint = Path(TableHome(str(out)).checkpoint_path)
    for number in (9, 10, 11):
        for folder in ("offsets", "commits"):
            (checkpoint / folder).mkdir(parents=True, exist_ok=True)
        offset = {"v": 1, "groups": {"g": {"next": number, "term": 1, "chain": 1}}}
        (checkpoint / "offsets" / str(number)).write_text(f"v1\n{{}}\n{json.dumps(offset)}")
    for number in (9, 10):  # batch 11 has begun and not ended
        (checkpoint / "commits" / str(number)).write_text("v1\n{}")
    assert told("status", "--tables", out)["logs"][0]["planned"] == 10
    (checkpoint / "offsets" / "10").write_text("v1\n{}\n{")
    assert told("status", "--tables", out)["logs"][0]["planned"] is None


def test_prune_removes_what_no_table_needs_and_nothing_else(
    write_log: LogWriter, tmp_path: Path
) -> None:
    log, out = write_log(orders(9)), tmp_path / "out"
    assert run("tables", "--path", log, "--out", out)[0] == 0
    write_log(orders(12)[9:])  # derived tables are made twice
    assert run("tables", "--path", log, "--out", out)[0] == 0
    home = TableHome(str(out))
    states = Path(out) / "_state" / "g"
    (states / f"{3:020d}.json").write_text("{}")
    (Path(home.derived_path("traffic")) / "part-left-by-a-killed-run.parquet").write_bytes(b"x")
    spill = Path(home.spill_path)
    spill.mkdir()
    stored = [catalog_table(name, home.derived_path(name)) for name in STORED]
    wanted = {file for one in [*catalog(home), *stored] for file in one.files}

    def there() -> set[str]:
        return {str(path) for path in Path(out).glob("*/*/*.parquet")}

    before = there()
    assert told("prune", "--tables", out)["files"] > 0
    assert not spill.exists()
    assert [path.name for path in states.iterdir()] != []
    assert not (states / f"{3:020d}.json").exists()
    assert wanted <= there() <= before  # an hour has not passed
    assert wanted < before
    told("prune", "--tables", out, "--keep-hours", "0")
    assert there() == wanted
    assert run("sql", "--tables", out, "select * from traffic")[0] == 0
    # The state that the next run needs is there.
    write_log(orders(15)[12:])
    assert run("tables", "--path", log, "--out", out)[0] == 0
    code, text = run("prune", "--tables", tmp_path / "none")
    assert (code, "holds no tables" in text) == (1, True)
    assert not (tmp_path / "none").exists()


def test_the_catalog_is_sql_of_which_odd_paths_change_nothing(
    write_log: LogWriter, tmp_path: Path
) -> None:
    out = tmp_path / "my 'odd' tables"
    assert run("tables", "--path", write_log(orders(9)), "--out", out, "--facts-only")[0] == 0
    found = catalog(TableHome(str(out)))
    spark = list(registration(found, "spark", "my`db"))
    assert spark[0] == "CREATE DATABASE IF NOT EXISTS `my``db`;"
    path = os.fspath(out).replace("'", "\\'")
    wanted = f"`my``db`.`messages` USING delta LOCATION '{path}/facts/messages';"
    assert f"CREATE TABLE IF NOT EXISTS {wanted}" in spark
    code, text = run("catalog", "--tables", out, "--for", "duckdb", "--schema", "log")
    install, *statements, view = text.splitlines()
    assert (code, install) == (0, "INSTALL delta; LOAD delta;")
    assert view.startswith('CREATE OR REPLACE VIEW "log"."trace" AS with ')
    with duckdb.connect(":memory:") as connection:
        # The extension would have to be downloaded; a macro stands for its function.
        connection.execute("create macro delta_scan(path) as table select path as place")
        for statement in statements:
            connection.execute(statement)
        place = connection.sql('select place from log."messages"').fetchall()
    assert place == [(f"{out}/facts/messages",)]
    code, text = run("catalog", "--tables", out, "--target", "s3a://b/orders/")
    assert code == 0
    assert "`dledger`.`messages` USING delta LOCATION 's3a://b/orders/facts/messages';" in text
    last = text.splitlines()[-1]
    assert last.startswith("CREATE OR REPLACE VIEW `dledger`.`trace` AS with ")
    assert "messages as (select * from `dledger`.`messages`), " in last


def test_the_registered_trace_is_that_of_a_query(incident_tables: str) -> None:
    tables = catalog(TableHome(incident_tables))
    with duckdb.connect(":memory:") as connection:
        # The extension for Delta would have to be downloaded. The name of the schema is that of the
        # view, and another schema has a table of a fact's name.
        connection.execute('create table messages (unique_key integer); create schema "trace"')
        for one in tables:
            connection.register("arrow", one.table.to_pyarrow_table())
            connection.execute(f'create table "trace"."{one.name}" as from arrow')
        *_, view = registration(tables, "duckdb", "trace")
        connection.execute(view)
        found = connection.sql('from "trace"."trace"').to_arrow_table().to_pylist()
    with duckdb_engine(tables) as engine:
        expected = engine.query("select * from trace").to_pylist()
    assert len(expected) > 50
    assert sorted(found, key=repr) == sorted(expected, key=repr)


def rows_of(one: CatalogTable) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = one.table.to_pyarrow_table().to_pylist()
    return sorted(rows, key=str)


def test_a_published_copy_has_each_row_once_however_often_publishing_is_killed(
    write_log: LogWriter, tmp_path: Path
) -> None:
    log, out, copy = write_log(orders(9)), tmp_path / "out", tmp_path / "copy"
    home, target = TableHome(str(out)), Target(str(copy), {}, 1)

    def killed(at: str) -> None:
        def on_table(name: str) -> None:
            if name == at:
                raise KeyboardInterrupt

        with home.held(), pytest.raises(KeyboardInterrupt):
            publish(home, catalog(home), target, on_table)

    def whole() -> dict[str, int]:
        with home.held():
            found = publish(home, catalog(home), target)
        here, there = catalog(home), catalog(TableHome(str(copy)))
        assert [(one.name, rows_of(one)) for one in here if one.files] == [
            (one.name, rows_of(one)) for one in there if one.files
        ]
        return found

    assert run("tables", "--path", log, "--out", out)[0] == 0
    killed("commands")  # messages are there
    killed("traffic")  # all facts are there
    first = whole()
    assert (first["messages"], first["entries"], first["traffic"]) == (0, 0, 2)
    write_log(orders(12)[9:])
    assert run("tables", "--path", log, "--out", out)[0] == 0
    second = whole()
    assert (second["messages"], second["entries"]) == (3, 3)
    assert not any(whole().values())


def test_tables_that_were_made_again_replace_published_ones(
    write_log: LogWriter, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    for number, messages in enumerate((orders(9), orders(14)[9:])):
        log, out = write_log(messages), tmp_path / f"out-{number}"
        assert run("tables", "--path", log, "--out", out)[0] == 0
        assert run("publish", "--tables", out, "--target", copy)[0] == 0
        here, there = catalog(TableHome(str(out))), catalog(TableHome(str(copy)))
        for one, published in zip(here, there, strict=True):
            assert rows_of(one) == rows_of(published), one.name


@pytest.mark.parametrize("where", ["out", "out/copy", "file://{}/out", "link", "./../{}/out/."])
def test_tables_are_not_published_over_themselves(
    where: str, write_log: LogWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out"
    assert run("tables", "--path", write_log(orders(9)), "--out", out)[0] == 0
    (tmp_path / "link").symlink_to(out)
    version = catalog(TableHome(str(out)))[-1].table.version()
    named = where.format(tmp_path if ":" in where else tmp_path.name)
    code, text = run("publish", "--tables", out, "--target", named)
    assert (code, "is the tables' own folder, or in it" in text) == (1, True), text
    assert catalog(TableHome(str(out)))[-1].table.version() == version
    assert run("publish", "--tables", out, "--target", tmp_path / "out-2")[0] == 0


def test_a_copy_of_another_log_is_refused(write_log: LogWriter, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    for number, bodies in enumerate((orders(9), orders(14)[5:])):
        out = tmp_path / f"out-{number}"
        log = write_log(bodies, base=tmp_path / f"log-{number}")
        words = ("tables", "--path", log, "--out", out, "--facts-only")
        assert run(*words)[0] == 0
        home = TableHome(str(out))
        if not number:
            assert run("publish", "--tables", out, "--target", copy)[0] == 0
        else:
            with home.held(), pytest.raises(TablesInvalid, match="from another log: entry"):
                publish(home, catalog(home), Target(str(copy), {}, 1))
