"""The recipes of docs/tables.md print what the page says."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("deltalake", reason="deltalake is not installed: run make setup-spark")
pytest.importorskip("duckdb", reason="duckdb is not installed: run make setup-spark")

from dledger.core.hard_state import HardState
from dledger.store.disk import OsDisk
from dledger.store.open_store import open_store
from dledger.store.store_config import StoreConfig
from dledger_spark.commands import dledger_spark
from tests.dledger_spark.incident_log import IncidentLog

PAGE = Path(__file__).parents[2] / "docs" / "tables.md"
RECIPE = re.compile(r"<!-- ask -->\n```sql\n(.*?)```\n\n```text\n(.*?)```\n", re.DOTALL)
CONFIG = StoreConfig(1 << 20, 1 << 16, max_body_bytes=1 << 18, spare_segments=0)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> str:
    base = tmp_path_factory.mktemp("incident")
    entries = IncidentLog().entries
    store = open_store(OsDisk(), str(base / "log"), CONFIG, "broker-a", "n0")
    try:
        for term, of_term in groupby(entries, lambda entry: entry.term):
            store.append(term, 1, [entry.body for entry in of_term])
        store.begin_sync(HardState(entries[-1].term, None, store.last_index)).run()
        store.note_committed(store.last_index)
        store.save_committed()
    finally:
        store.close()
    out = str(base / "tables")
    made = CliRunner().invoke(dledger_spark, ["tables", "--path", str(base / "log"), "--out", out])
    assert made.exit_code == 0, made.output
    return out


def recipes() -> list[tuple[str, str]]:
    page = PAGE.read_text(encoding="utf-8")
    found = RECIPE.findall(page)
    assert len(found) == page.count("<!-- ask -->") > 5
    return found


@pytest.mark.parametrize("number", range(len(recipes())))
def test_a_recipe_prints_what_the_page_says(number: int, tables: str) -> None:
    query, printed = recipes()[number]
    done = CliRunner().invoke(dledger_spark, ["sql", "--tables", tables, query])
    assert done.exit_code == 0, done.output
    # The page has columns of spaces where a pipe gets tabs.
    rows = [[cell for cell in line.split("\t") if cell] for line in done.output.splitlines()]
    assert rows == [re.split(r" {2,}", line.strip()) for line in printed.splitlines()], done.output
