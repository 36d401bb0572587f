"""`dledger-spark report`: one HTML page about the tables."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import click

from dledger.command_line.options import option
from dledger_spark.commands.terminal import progress

if TYPE_CHECKING:
    from dledger_spark.tables.catalog import CatalogTable


_LATER: Final = "lost_entries"


@click.command()
@option("--tables", "tables_in", "Folder of the tables.", required=True, metavar="OUT")
@option("--out", "The page to write; - is standard output.", required=True, metavar="FILE")
@option("--title", "What the page is about [default: the folder's path]")
def report(tables_in: str, out: str, title: str | None) -> None:
    """Write a page about the tables that `dledger-spark tables` has made.

    It begins with what is wrong at the end of the log. It shows throughput, consumer lag, latency,
    terms, retries, transactions, delays and hot keys, and says whether the tables agree with one
    another. The page is one file, loads nothing and runs no script.

    \b
      dledger-spark report --tables OUT --out report.html
    """  # noqa: D301 - click's mark, a backspace
    from dledger_spark.errors import TablesInvalid  # noqa: PLC0415
    from dledger_spark.facts.fact_schemas import FACTS  # noqa: PLC0415
    from dledger_spark.report.page import SECTIONS, page  # noqa: PLC0415
    from dledger_spark.tables.catalog import catalog  # noqa: PLC0415
    from dledger_spark.tables.derived import DERIVED  # noqa: PLC0415
    from dledger_spark.tables.duckdb_engine import duckdb_engine  # noqa: PLC0415
    from dledger_spark.tables.table_home import TableHome  # noqa: PLC0415

    home = TableHome(tables_in)
    found = catalog(home)
    there = {table.name for table in found}
    # Tables that an earlier version has made do not have that of lost entries.
    lacking = sorted({*FACTS, *DERIVED} - {_LATER} - there)
    if lacking:
        problem = f"has no table {lacking[0]}: run `dledger-spark tables` without --facts-only"
        raise TablesInvalid(home.path, problem)
    asking = "asking the tables"
    with progress(SECTIONS, asking, asking) as on_progress, duckdb_engine(found) as engine:
        if _LATER not in there:
            engine.add(_LATER, [], FACTS[_LATER])
        groups = engine.query("select distinct e.raft_group from entries e").column(0).to_pylist()
        now_ms = time.time_ns() // 1_000_000
        ends = _ends(found, groups)
        made = page(title or home.path, engine, ends, on_progress, now_ms).encode()
    if out == "-":
        sys.stdout.buffer.write(made)
        return
    out = os.path.abspath(out)
    _replace(out, made)
    click.echo(f"{out}: {len(made) // 1024 + 1} KiB")


def _ends(
    tables: Iterable[CatalogTable], groups: Iterable[str | None]
) -> dict[str, dict[str, int | None]]:
    """Return the end of the entries that each table of facts has: by log, and by table.

    The log is "" if it has no name. The end is None if the table has no entry of the log.
    """
    from dledger_spark.facts.fact_schemas import FACTS  # noqa: PLC0415
    from dledger_spark.tables.fact_table import app_of  # noqa: PLC0415

    facts = [table for table in tables if table.name in FACTS]
    return {
        group or "": {one.name: one.table.transaction_version(app_of(group)) for one in facts}
        for group in groups
    }


def _replace(path: str, content: bytes) -> None:
    """Write a file atomically; into a pipe or a device, and through a link, as others do."""
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "wb") as there:
            there.write(content)
        return
    path = os.path.realpath(path)
    new = f"{path}.new"
    try:
        with open(new, "wb") as file:
            file.write(content)
        os.replace(new, path)
    except OSError:
        if os.path.exists(new):
            os.unlink(new)
        raise
