"""The recipes of docs/tables.md print what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("deltalake", reason="deltalake is not installed: run make setup-spark")
pytest.importorskip("duckdb", reason="duckdb is not installed: run make setup-spark")

from dledger_spark.commands.spark_commands import dledger_spark

PAGE = Path(__file__).parents[2] / "docs" / "tables.md"
RECIPE = re.compile(r"<!-- ask -->\n```sql\n(.*?)```\n\n```text\n(.*?)```\n", re.DOTALL)


def recipes() -> list[tuple[str, str]]:
    page = PAGE.read_text(encoding="utf-8")
    found = RECIPE.findall(page)
    assert len(found) == page.count("<!-- ask -->") > 5
    return found


@pytest.mark.parametrize("number", range(len(recipes())))
def test_a_recipe_prints_what_the_page_says(number: int, incident_tables: str) -> None:
    query, printed = recipes()[number]
    done = CliRunner().invoke(dledger_spark, ["sql", "--tables", incident_tables, query])
    assert done.exit_code == 0, done.output
    # The page has columns of spaces where a pipe gets tabs.
    rows = [[cell for cell in line.split("\t") if cell] for line in done.output.splitlines()]
    assert rows == [re.split(r" {2,}", line.strip()) for line in printed.splitlines()], done.output
