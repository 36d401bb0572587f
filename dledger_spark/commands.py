"""The command `dledger-spark`: replay, count, show."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Final, NoReturn

import click

from dledger_spark.report_command import report
from dledger_spark.rows import json_line, print_rows
from dledger_spark.sql_command import sql
from dledger_spark.stream_command import stream
from dledger_spark.tables_command import tables
from dledger_spark.terminal import Command, Commands, one_line_errors, progress, session_options

_SHOWN: Final = {
    "entries": ("index", "term", "magic", "pos", "size", "body"),
    "messages": ("index", "topic", "queue", "offset", "store_time", "tags", "keys", "body"),
}


def _log_options(command: Command) -> Command:
    """--path, --from, --to and --fail-on-data-loss, the same for every command."""
    for option in (
        click.option(
            "--fail-on-data-loss/--no-fail-on-data-loss",
            default=True,
            show_default=True,
            help="End with an error when entries are lost (a file of the log is missing, or "
            "retention was faster than the replay), or go on without them.",
        ),
        click.option(
            "--to",
            "last",
            metavar="INDEX",
            help="Last entry. By default the last one that is recorded as committed; "
            "'end' takes all entries, committed or not.",
        ),
        click.option("--from", "first", metavar="INDEX", help="First entry [default: first kept]"),
        click.option(
            "--path",
            required=True,
            metavar="DIR",
            help="Folder of a node's log. A node may be running in it.",
        ),
    ):
        command = option(command)
    return command


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
def dledger_spark() -> None:
    """Replay the committed log of a dledger node into tables.

    The command reads only committed entries and writes nothing to the folder: a node may be
    running in it.

    \b
      dledger-spark count  --path DIR              messages of each topic
      dledger-spark show   --path DIR --limit 5    the first entries, without starting Spark
      dledger-spark replay --path DIR --out OUT    tables "entries" and "messages" in Parquet
      dledger-spark tables --path DIR --out OUT    tables of lag, traffic, latency and more
      dledger-spark stream --path DIR --out OUT    the same tables, as the log grows
      dledger-spark sql    --tables OUT "select topic, sum(messages) from traffic group by 1"
      dledger-spark report --tables OUT --out FILE   a page of what an operator looks at first
    """  # noqa: D301 - click's mark, a backspace


@dledger_spark.command()
@_log_options
@click.option("--out", required=True, metavar="OUT", help="Folder for the tables.")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["parquet"]),
    default="parquet",
    show_default=True,
    help="Format of the files.",
)
@click.option(
    "--file-bytes",
    type=click.IntRange(min=1),
    default=128 * 1024 * 1024,
    show_default=True,
    help="About how much of the log becomes one file of each table.",
)
@session_options
def replay(
    path: str,
    first: str | None,
    last: str | None,
    fail_on_data_loss: bool,
    out: str,
    file_format: str,  # one so far, checked by click
    file_bytes: int,
    cores: int | None,
    java: str,
) -> None:
    """Write OUT/entries and OUT/messages, and go on where an earlier replay stopped.

    The name of each file says which entries it covers; a file gets its name when it is complete.
    So a replay that is killed and started again neither loses nor repeats a row, and one that is
    started again later adds the entries committed meanwhile. Read the result with any program
    that reads Parquet, such as spark.read.parquet("OUT/messages").
    """
    from dledger_spark.log_folder import open_log  # noqa: PLC0415
    from dledger_spark.log_range import resolve_range  # noqa: PLC0415
    from dledger_spark.replay import plan_replay, run_replay  # noqa: PLC0415
    from dledger_spark.session import local_session  # noqa: PLC0415
    from dledger_spark.table_folder import replay_run  # noqa: PLC0415

    log = open_log(path)
    entries = resolve_range(log, first, last)
    out = os.path.abspath(out)
    with replay_run(out) as run:
        pieces, there, lost = plan_replay(
            log,
            entries,
            out,
            file_bytes,
            goes_on=not first,
            fail_on_data_loss=fail_on_data_loss,
        )
        _tell_lost(lost)
        read = messages = 0
        if pieces:
            total = sum(len(piece.entries) for piece in pieces)
            with (
                progress(total) as on_progress,
                local_session(cores=cores, java=java) as session,
                one_line_errors(),
            ):
                read, messages = run_replay(session, log.path, out, run, pieces, on_progress)
    if entries:
        there = max(0, there - read)
        click.echo(
            f"entries {entries.start}..{entries.stop - 1} are in {out}: "
            f"{read} read now ({messages} messages), {there} were there"
        )
    else:
        click.echo(f"no entry is committed in {log.path}: nothing to replay")


@dledger_spark.command()
@_log_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@session_options
def count(
    path: str,
    first: str | None,
    last: str | None,
    fail_on_data_loss: bool,
    as_json: bool,
    cores: int | None,
    java: str,
) -> None:
    """Print how many messages each topic has."""
    from dledger_spark.log_folder import open_log  # noqa: PLC0415
    from dledger_spark.log_range import (  # noqa: PLC0415
        END,
        left_out,
        readable,
        resolve_range,
    )
    from dledger_spark.session import local_session  # noqa: PLC0415
    from dledger_spark.topic_count import TopicCount, count_topics  # noqa: PLC0415

    log = open_log(path)
    entries = resolve_range(log, first, last)
    parts = readable(log, entries, fail_on_data_loss=fail_on_data_loss)
    _tell_lost(left_out(entries, parts))
    topics: list[TopicCount] = []
    if parts:
        end = END if last == END else entries.stop - 1
        with (
            progress(None) as on_progress,
            local_session(cores=cores, java=java) as session,
            one_line_errors(),
        ):
            on_progress(0)
            topics = count_topics(
                session, log.path, entries.start, end, fail_on_data_loss=fail_on_data_loss
            )
    if as_json:
        found = {
            "path": log.path,
            "first": entries.start,
            "last": entries.stop - 1,
            "entries": sum(map(len, parts)),
            "messages": sum(topic.messages for topic in topics),
            "topics": [topic._asdict() for topic in topics],
        }
        click.echo(json.dumps(found, indent=2))
    else:
        print_rows(f"{log.path}, {sum(map(len, parts))} entries", TopicCount._fields, topics)


@dledger_spark.command()
@_log_options
@click.option(
    "--table",
    type=click.Choice(["entries", "messages"]),
    default="entries",
    show_default=True,
    help="What to show.",
)
@click.option("--topic", help="Only messages of this topic.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Rows at most."
)
@click.option("--json", "as_json", is_flag=True, help="Print all columns, a JSON object a line.")
def show(
    path: str,
    first: str | None,
    last: str | None,
    fail_on_data_loss: bool,
    table: str,
    topic: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Print the first entries or messages of a range. Does not start Spark."""
    from dledger_spark.preview import first_rows  # noqa: PLC0415

    table = "messages" if topic is not None else table
    columns = None if as_json else _SHOWN[table]
    rows = first_rows(
        path,
        first,
        last,
        table=table,
        topic=topic,
        limit=limit,
        columns=columns,
        fail_on_data_loss=fail_on_data_loss,
    )
    if as_json:
        for row in rows:
            click.echo(json_line(row))
    else:
        names = _SHOWN[table]
        print_rows(table, names, [[row[name] for name in names] for row in rows])


dledger_spark.add_command(tables)
dledger_spark.add_command(stream)
dledger_spark.add_command(sql)
dledger_spark.add_command(report)


def main() -> NoReturn:
    """Run the command; SIGTERM cleans up like Ctrl-C does."""
    signal.signal(signal.SIGTERM, _end)
    dledger_spark(prog_name="dledger-spark")
    sys.exit(0)


def _end(number: int, _frame: object) -> NoReturn:
    sys.exit(128 + number)


def _tell_lost(gaps: list[range]) -> None:
    """Report on stderr which entries are left out."""
    for gap in gaps:
        click.echo(f"entries {gap.start}..{gap.stop - 1} are lost, and left out", err=True)
