"""`dledger-spark tables` and `dledger-spark sql`: analytics tables from logs, and queries."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import click

from dledger.command_line.options import Decorated, flag, given, json_option, kept_option, option
from dledger.shown_output import escaped
from dledger_spark.commands.log_options import (
    given_logs,
    hint_unrecorded,
    log_options,
    print_left_out,
)
from dledger_spark.commands.rows import distinct_names, json_line, print_rows
from dledger_spark.commands.terminal import progress, resumable, session_options, started_session
from dledger_spark.tables.table_home import KEPT_HOURS, KEPT_HOURS_MAX

if TYPE_CHECKING:
    from dledger_spark.errors import DledgerSparkError
    from dledger_spark.log.readable_log import ReadableLog
    from dledger_spark.tables.catalog import CatalogTable
    from dledger_spark.tables.engine import Engine
    from dledger_spark.tables.table_home import TableHome
    from dledger_spark.tables.update import Updated


def engine_option(help_text: str) -> Callable[[Decorated], Decorated]:
    """Declare --engine, for the commands that run queries; see `opened`."""
    return kept_option(
        "--engine", help_text, type=click.Choice(["duckdb", "spark"]), default="duckdb"
    )


# For the commands that compute with DuckDB.
memory_option = kept_option(
    "--memory",
    "DuckDB's memory; what does not fit goes to the temporary folder (TMPDIR).",
    type=click.IntRange(min=256),
    default=2048,
    metavar="MIB",
)
# For the commands that write tables.
keep_option = option(
    "--keep-hours",
    "How long files are kept that the tables no longer consist of: as long as whoever has "
    "opened a table may read it, or may ask for an earlier version.",
    type=click.IntRange(0, KEPT_HOURS_MAX),
    default=KEPT_HOURS,
    metavar="HOURS",
)


@click.command()
@log_options(ranges=False, many=True)
@click.option(
    "--shipped",
    multiple=True,
    metavar="URL",
    help="Instead of --path: a node's folder in an object store, such as s3://logs/dledger-n0. May "
    "be given again.",
)
@option("--out", "Folder for the tables.", required=True, metavar="OUT")
@engine_option("What makes the tables: this process with DuckDB, or tasks of Spark.")
@memory_option
@keep_option
@flag("--facts-only", "Leave the tables that follow from the facts as they are.")
@json_option("Print one JSON object.")
@session_options
def tables(
    shipped: tuple[str, ...],
    out: str,
    keep_hours: int,
    facts_only: bool,
    as_json: bool,
) -> None:
    """Add what the logs have committed since to the tables in OUT.

    Facts (entries, messages, commands, consumer_progress and others) grow by the new entries, each
    row exactly once, however often this command is killed. Tables that follow from them (traffic,
    consumer_lag, latency, transactions and others) are brought up to date. All are Delta tables.
    """
    from dledger_spark.errors import DledgerSparkError  # noqa: PLC0415
    from dledger_spark.tables.refresh import refresh  # noqa: PLC0415
    from dledger_spark.tables.table_home import TableHome  # noqa: PLC0415
    from dledger_spark.tables.update import next_index  # noqa: PLC0415

    if shipped and (given("--path") or given("--bootstrap")):
        raise click.UsageError("--shipped goes without --path and --bootstrap")
    home = TableHome(out, keep_hours)
    logs = [] if shipped else given_logs().open()
    hint_unrecorded(logs)
    fails = given("--fail-on-data-loss") is not False

    def kept() -> str:
        return f"{home.path} keeps what was committed to it: the same command goes on behind that"

    with home.held(), resumable(kept), _one_session() as session:
        totals: list[int] = []
        for log in logs:
            there = next_index(home, log.group)
            _hint_behind(log, there)
            first = log.first_index if there is None else there
            totals.append(max((-1 if log.committed is None else log.committed) + 1 - first, 0))
        # A run without new entries starts no Spark.
        by_tasks = given("--engine") == "spark" and any(totals)
        add = partial(_add_by_tasks, session) if by_tasks else _add_here
        found, failures = (
            _add_shipped(home, shipped, fails) if shipped else add(home, logs, totals, fails)
        )
        added = sum(one.read for one in found)
        through = {one.group or "": one.entries.stop - 1 for one in found}
        rows: dict[str, int] = {}
        for one in found:
            for name, count in one.rows.items():
                rows[name] = rows.get(name, 0) + count
        made: dict[str, int] = {}
        if not facts_only:
            with progress(None, "computing tables") as on_progress:
                opens = partial(opened_over, home, session)
                try:
                    made = refresh(home, opens, through, lambda _table: on_progress(0))
                except DledgerSparkError as error:
                    failures.append(error)
    for text in dict.fromkeys(str(failure) for failure in failures):
        if text != str(failures[-1]):
            click.echo(escaped(f"Error: {text}"), err=True)
    if failures:
        raise failures[-1]
    if as_json:
        told = {"out": home.path, "entries_added": added, "through": through}
        click.echo(json.dumps({**told, "rows_added": rows, "rows": made}, indent=2))
    else:
        listed = [(name, "facts", f"+{count}") for name, count in rows.items()]
        listed += [(name, "derived", str(count)) for name, count in made.items()]
        print_rows(f"{home.path}, {added} entries added", ("table", "kind", "rows"), listed)


def _add_here(
    home: TableHome, logs: Sequence[ReadableLog], totals: Sequence[int], fails: bool
) -> tuple[list[Updated], list[DledgerSparkError]]:
    """Add the new entries of logs by this process; return also what has ended some of them."""
    from dledger_spark.errors import OF_ONE_LOG  # noqa: PLC0415
    from dledger_spark.tables.update import update_tables  # noqa: PLC0415

    found: list[Updated] = []
    failures: list[DledgerSparkError] = []
    for log, total in zip(logs, totals, strict=True):
        with progress(total, "reading the log") as on_progress:
            try:
                updated = update_tables(home, log, fail_on_data_loss=fails, on_progress=on_progress)
            except OF_ONE_LOG as error:
                failures.append(error)
                continue  # entries before it are in the tables; go on with other logs
        print_left_out(updated.left_out)
        found.append(updated)
    return found, failures


def _add_shipped(
    home: TableHome, urls: Sequence[str], fails: bool
) -> tuple[list[Updated], list[DledgerSparkError]]:
    """Do as `_add_here` with folders in object stores."""
    from dledger_spark.errors import OF_ONE_LOG  # noqa: PLC0415
    from dledger_spark.tables.shipped import update_from_store  # noqa: PLC0415

    found: list[Updated] = []
    failures: list[DledgerSparkError] = []
    for url in urls:
        with progress(None, "reading the shipped log") as on_progress:
            try:
                for updated in update_from_store(
                    home, url, fail_on_data_loss=fails, on_progress=on_progress
                ):
                    print_left_out(updated.left_out)
                    found.append(updated)
            except OF_ONE_LOG as error:
                failures.append(error)
    return found, failures


def _add_by_tasks(
    session: Callable[[], Any],
    home: TableHome,
    logs: Sequence[ReadableLog],
    _totals: Sequence[int],
    fails: bool,
) -> tuple[list[Updated], list[DledgerSparkError]]:
    """Do as `_add_here` by tasks of Spark."""
    from dledger_spark.errors import OF_ONE_LOG  # noqa: PLC0415
    from dledger_spark.tables.spark_update import update_on_spark  # noqa: PLC0415

    with progress(None) as on_progress:
        try:
            started = session()
            found = update_on_spark(
                started, home, logs, fail_on_data_loss=fails, on_round=partial(on_progress, 0)
            )
        except OF_ONE_LOG as error:
            return [], [error]  # all else is in the tables
    for one in found:
        print_left_out(one.left_out)
    return found, []


def _hint_behind(log: ReadableLog, there: int | None) -> None:
    """Print a hint if a copy of the log has fewer entries than the tables, so that none are added.

    `there` is the index behind the entries that the tables have; None if they have none.
    """
    committed = -1 if log.committed is None else log.committed
    here = f"{log.name} is committed up to entry {committed}"
    if committed < 0:
        here = f"nothing of {log.name} is committed"
    if there is None:
        if committed < 0:
            click.echo(f"nothing to add: {here}", err=True)
        return
    if committed >= there - 1:
        return
    click.echo(
        f"nothing new: the tables already have the entries up to {there - 1}, and {here}", err=True
    )


@contextmanager
def _one_session() -> Iterator[Callable[[], Any]]:
    """Yield what starts a session of Spark when it is first called; the session ends here."""
    with ExitStack() as stack:

        @cache
        def session() -> Any:
            return stack.enter_context(started_session())

        yield session


@contextmanager
def opened(home: TableHome, *, derived: bool) -> Iterator[Engine]:
    """Yield the engine that the options name, over the tables of a folder."""
    from dledger_spark.tables.catalog import catalog  # noqa: PLC0415

    found = catalog(home, derived=derived)
    with _one_session() as session, opened_over(home, session, found) as made:
        yield made


@contextmanager
def opened_over(
    home: TableHome, session: Callable[[], Any], found: Sequence[CatalogTable]
) -> Iterator[Engine]:
    """Yield the engine that the options name, over some tables of a folder."""
    if given("--engine") == "duckdb":
        from dledger_spark.tables.duckdb_engine import duckdb_engine  # noqa: PLC0415

        with duckdb_engine(found, given("--memory")) as made:
            yield made
        return
    from dledger_spark.tables.spark_engine import SparkEngine  # noqa: PLC0415

    yield SparkEngine(session(), found, home.spill_path)


@click.command()
@click.argument("query")
@option("--tables", "out", "Folder of the tables.", required=True, metavar="OUT")
@engine_option("What answers the query.")
@memory_option
@json_option("Print a JSON object a line.")
@session_options
def sql(query: str, out: str, as_json: bool) -> None:
    """Print the rows of a query over the tables that `dledger-spark tables` has made.

    \b
      dledger-spark sql --tables OUT "select topic, sum(messages) from traffic group by 1"
      dledger-spark sql --tables OUT "select * from trace where unique_key = 'K' order by time"
      dledger-spark sql --tables OUT "show tables"
      dledger-spark sql --tables OUT "describe consumer_lag"

    Times are in UTC. The column "offset" needs quotes or its table's name before it (m.offset),
    because that is a word of SQL as well.
    """  # noqa: D301 - click's mark, a backspace
    from dledger_spark.errors import QueryFailed  # noqa: PLC0415
    from dledger_spark.tables.table_home import TableHome  # noqa: PLC0415

    with opened(TableHome(out), derived=True) as over:
        found = over.query(query)
    names = distinct_names(found.schema.names)
    try:
        # Of a map, the last value of a name counts.
        listed = found.rename_columns(names).to_pylist(maps_as_pydicts="lossy")
    except (OverflowError, ValueError) as error:
        reason = f"it has a time that Python does not have ({error}): cast it to varchar"
        raise QueryFailed(reason) from None
    if as_json:
        for row in listed:
            click.echo(json_line(row))
    else:
        rows = [[row[name] for name in names] for row in listed]
        print_rows(f"{len(rows)} rows", names, rows)
