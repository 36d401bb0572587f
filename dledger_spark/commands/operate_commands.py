"""`dledger-spark status`, `prune` and `catalog`: tables that are there."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from dledger.command_line.options import NumberRange, given, json_option, option
from dledger_spark.commands.log_options import given_logs, log_options
from dledger_spark.commands.rows import print_rows
from dledger_spark.commands.tables_command import keep_option
from dledger_spark.commands.terminal import progress

if TYPE_CHECKING:
    from dledger_spark.tables.table_home import TableHome


@click.command()
@log_options(ranges=False, many=True, data_loss=False)
@option("--tables", "out", "Folder of the tables.", required=True, metavar="OUT")
@option(
    "--max-age",
    "max_age_s",
    "End with 1 if a table was not written for longer.",
    type=NumberRange(0),
    metavar="SECONDS",
)
@option(
    "--max-behind",
    "End with 1 if the tables lack more committed entries of a log. All logs of theirs must be "
    "named.",
    type=click.IntRange(0),
    metavar="ENTRIES",
)
@json_option("Print one JSON object.")
def status(out: str, max_age_s: float | None, max_behind: int | None, as_json: bool) -> None:
    """Print how fresh each table is, and, with --path or --bootstrap, how far behind the logs.

    It takes no lock, so `tables` or `stream` may be running.
    """
    from dledger_spark.errors import TablesStale  # noqa: PLC0415
    from dledger_spark.tables.catalog import catalog  # noqa: PLC0415
    from dledger_spark.tables.condition import log_conditions, table_conditions  # noqa: PLC0415
    from dledger_spark.tables.table_home import TableHome  # noqa: PLC0415

    named = any(given(name) for name in ("--path", "--bootstrap", "--group"))
    if max_behind is not None and not named:
        raise click.UsageError(
            "--max-behind needs the log: give --path, or --bootstrap and --group"
        )
    logs = given_logs().open() if named else []
    home = TableHome(out)
    found = catalog(home)
    tables = table_conditions(found)
    of_logs = log_conditions(home, found, logs)
    now_ms = time.time_ns() // 1_000_000
    ages_s = {one.name: max(0, now_ms - one.changed_ms) / 1000 for one in tables}
    if as_json:
        told = {
            "out": home.path,
            "tables": [{**one._asdict(), "age_s": ages_s[one.name]} for one in tables],
            "logs": [one._asdict() for one in of_logs],
        }
        click.echo(json.dumps(told, indent=2))
    else:
        names = ("table", "kind", "rows", "files", "bytes", "version", "changed", "age_s")
        rows = [
            (*one[:-1], datetime.fromtimestamp(one.changed_ms / 1000, UTC), round(ages_s[one.name]))
            for one in tables
        ]
        print_rows(home.path, names, rows)
        print_rows("logs", ("raft_group", "entries", "planned", "committed", "behind"), of_logs)
    behind = [one for one in of_logs if max_behind is not None and (one.behind or 0) > max_behind]
    if behind:
        problem = f"{behind[0].behind} entries of {behind[0].raft_group!r} are not in the tables"
        raise TablesStale(home.path, problem)
    unknown = [one.raft_group for one in of_logs if one.behind is None]
    if max_behind is not None and unknown:
        raise click.UsageError(
            f"--max-behind needs each log of the tables, and that of {unknown[0]!r} is not among "
            "those that are named, or does not say how far it is committed"
        )
    # A derived table is as old as its last computation; facts grow only with the log.
    old = {name: age for name, age in ages_s.items() if max_age_s is not None and age > max_age_s}
    if tables and len(old) == len(tables):
        raise TablesStale(home.path, f"no table was written for {min(old.values()):.0f} s")


@click.command("prune")
@option("--tables", "out", "Folder of the tables.", required=True, metavar="OUT")
@keep_option
@json_option("Print one JSON object.")
def prune_command(out: str, keep_hours: int, as_json: bool) -> None:
    """Remove what the tables no longer need: files of earlier versions, states, Delta's old log.

    `tables` and `stream` do most of it as they go; this also does it for folders that nothing
    writes to any more, and at once with --keep-hours 0.
    """
    from dledger_spark.tables.pruning import prune  # noqa: PLC0415

    home = _home_with_tables(out, keep_hours)
    with home.held(), progress(None, "removing files", "removing files") as on_progress:
        done = prune(home, lambda _table: on_progress(0))
    if as_json:
        click.echo(json.dumps({"out": home.path, **done._asdict()}, indent=2))
    else:
        click.echo(
            f"{home.path}: {done.files} files with {done.bytes} bytes; before there were "
            f"{done.files_before} with {done.bytes_before}"
        )


@click.command("publish")
@option("--tables", "out", "Folder of the tables.", required=True, metavar="OUT")
@option("--target", "Where to: s3://BUCKET/..., a folder and so on.", required=True, metavar="URL")
@option(
    "--storage-option",
    "storage_options",
    "An option of Delta's for the store, such as AWS_ENDPOINT_URL=http://minio:9000. May be given "
    "again. Secrets are better in the environment, which it reads too.",
    multiple=True,
    metavar="KEY=VALUE",
)
@keep_option
@json_option("Print one JSON object.")
def publish_command(
    out: str, target: str, storage_options: tuple[str, ...], keep_hours: int, as_json: bool
) -> None:
    """Copy what is new in the tables to an object store or another folder.

    Each row arrives exactly once, however often this command is killed. Run it after `tables`, as
    often as readers there want news.
    """
    from dledger_spark.tables.catalog import catalog  # noqa: PLC0415
    from dledger_spark.tables.publish import Target, publish  # noqa: PLC0415

    options = dict(one.partition("=")[::2] for one in storage_options)
    if not all(options) or not all("=" in one for one in storage_options):
        raise click.UsageError("--storage-option takes KEY=VALUE")
    home = _home_with_tables(out)
    place = Target(target, options, keep_hours)
    with home.held(), progress(None, "copying", "copying") as on_progress:
        written = publish(home, catalog(home), place, lambda _table: on_progress(0))
    if as_json:
        click.echo(json.dumps({"out": home.path, "to": target, "rows": written}, indent=2))
    else:
        rows = [(name, f"+{count}") for name, count in written.items()]
        print_rows(f"{home.path} to {target}", ("table", "rows"), rows)


@click.command("catalog")
@option("--tables", "out", "Folder of the tables.", required=True, metavar="OUT")
@option(
    "--for",
    "program",
    "Whose SQL: Spark with delta-spark, or DuckDB with its extension delta.",
    type=click.Choice(["spark", "duckdb"]),
    default="spark",
)
@option("--schema", "The schema (database) of the tables.", default="dledger", metavar="NAME")
@option("--target", "Where `publish` has put them, for tables there instead.", metavar="URL")
def catalog_command(out: str, program: str, schema: str, target: str | None) -> None:
    """Print the SQL that registers the tables by their names, for another program.

    \b
      dledger-spark catalog --tables OUT > tables.sql;  spark-sql -f tables.sql
      dledger-spark catalog --tables OUT --for duckdb | duckdb my.db

    Registered tables are always as new as the folder: run it again only for tables that are new.
    `trace` is a view over the others.
    """  # noqa: D301 - click's mark, a backspace
    from dledger_spark.tables.catalog import catalog, registration  # noqa: PLC0415
    from dledger_spark.tables.publish import published_at  # noqa: PLC0415
    from dledger_spark.tables.table_home import TableHome  # noqa: PLC0415

    tables = catalog(TableHome(out))
    if target is not None:
        tables = published_at(tables, target)
    for line in registration(tables, program, schema):
        click.echo(line)


def _home_with_tables(out: str, *kept_hours: int) -> TableHome:
    """Return a folder in which tables were made. Raises TablesInvalid."""
    from dledger_spark.tables.catalog import no_tables  # noqa: PLC0415
    from dledger_spark.tables.table_home import TableHome  # noqa: PLC0415

    home = TableHome(out, *kept_hours)
    if not home.exists:
        raise no_tables(home)
    return home
