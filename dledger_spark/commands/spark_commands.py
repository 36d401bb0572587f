"""The command `dledger-spark`: replay, count, show."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from dledger.command_line.options import flag, json_option, option
from dledger.shown_output import escape_what_cannot_be_shown
from dledger_spark.commands.ending import end_at_signals
from dledger_spark.commands.log_options import (
    TOLD_HERE,
    given_logs,
    log_options,
    print_left_out,
)
from dledger_spark.commands.operate_commands import (
    catalog_command,
    prune_command,
    publish_command,
    status,
)
from dledger_spark.commands.report_command import report
from dledger_spark.commands.rows import json_line, print_rows
from dledger_spark.commands.stream_command import stream
from dledger_spark.commands.tables_command import sql, tables
from dledger_spark.commands.terminal import (
    Commands,
    progress,
    resumable,
    session_options,
    started_session,
)
from dledger_spark.native_stderr import set_python_apart

if TYPE_CHECKING:
    from dledger_spark.replay.replay import Piece

_SHOWN: Final = {
    "entries": ("index", "term", "magic", "pos", "size", "body"),
    "messages": ("index", "topic", "queue", "offset", "store_time", "tags", "keys", "body"),
}


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
def dledger_spark() -> None:
    """Replay the committed logs of dledger groups into tables.

    A log is named by the folder of a node, or one above several nodes or groups (--path DIR), or by
    the members of a running group (--bootstrap HOST:PORT,... --group NAME). The commands read only
    committed entries and write nothing to these folders: nodes may be running in them.

    \b
      dledger-spark count  --path DIR                 messages of each topic
      dledger-spark show   --path DIR --limit 5       the first entries, without starting Spark
      dledger-spark replay --path DIR --out OUT       tables "entries" and "messages" in Parquet
      dledger-spark tables --path DIR --out OUT       tables of lag, traffic, latency and more
      dledger-spark stream --path DIR --out OUT       the same tables, as the log grows
      dledger-spark sql    --tables OUT "select topic, sum(messages) from traffic group by 1"
      dledger-spark report --tables OUT --out FILE    a page of what an operator looks at first
      dledger-spark status --tables OUT --path DIR    how fresh the tables are
      dledger-spark prune  --tables OUT               remove what the tables no longer need
      dledger-spark publish --tables OUT --target URL   copy what is new to an object store
      dledger-spark catalog --tables OUT              SQL that registers the tables elsewhere
    """  # noqa: D301 - click's mark, a backspace


@dledger_spark.command()
@log_options()
@option("--out", "Folder for the tables.", required=True, metavar="OUT")
@option(
    "--format",
    "file_format",
    "Format of the files.",
    type=click.Choice(["parquet"]),
    default="parquet",
)
@option(
    "--file-bytes",
    "About how much of a log becomes one file of each table.",
    type=click.IntRange(min=1),
    default=128 * 1024 * 1024,
)
@json_option("Print one JSON object.")
@session_options
def replay(
    out: str,
    file_format: str,  # one so far, checked by click
    file_bytes: int,
    as_json: bool,
) -> None:
    """Write OUT/entries and OUT/messages, and go on where an earlier replay stopped.

    The name of each file says which entries it covers; a file gets its name when it is complete.
    So a replay that is killed and started again neither loses nor repeats a row, and one that is
    started again later adds the entries committed meanwhile. Read the result with any program
    that reads Parquet, such as spark.read.parquet("OUT/messages").
    """
    from dledger_spark.local_path import local_path  # noqa: PLC0415
    from dledger_spark.replay.replay import is_published, plan_replay, run_replay  # noqa: PLC0415
    from dledger_spark.replay.table_folder import replay_run  # noqa: PLC0415

    named = given_logs()
    out = local_path("out", out)
    ranges = named.ranges()
    pieces: list[Piece] = []
    there = dict.fromkeys((log.name for log, _ in ranges), 0)
    with replay_run(out) as run:
        for log, entries in ranges:
            plan = plan_replay(
                log,
                entries,
                out,
                file_bytes,
                goes_on=not named.first,
                fail_on_data_loss=named.fail_on_data_loss,
            )
            print_left_out(plan.lost)
            pieces += plan.pieces
            there[log.name] = plan.entries
        read: dict[str | None, tuple[int, int]] = {}
        if pieces:
            total = sum(len(piece.entries) for piece in pieces)
            with (
                resumable(lambda: _kept(out, [p for p in pieces if is_published(out, p)], total)),
                progress(total) as on_progress,
                started_session() as session,
            ):
                read = run_replay(session, out, run, pieces, on_progress)
    told: list[dict[str, Any]] = []
    for log, entries in ranges:
        count, messages = read.get(log.group, (0, 0))
        told.append(
            {
                "raft_group": log.group,
                "log": log.name,
                "first": entries.start,
                "last": entries.stop - 1,
                "read": count,
                "messages": messages,
                "were_there": max(0, there[log.name] - count),
            }
        )
    if as_json:
        click.echo(json.dumps({"out": out, "logs": told}, indent=2))
        return
    for one in told:
        of = f" of {one['raft_group']}" if len(told) > 1 else ""
        if one["last"] < one["first"]:
            where = f"from {one['first']} on in {one['log']}" if named.first else one["log"]
            click.echo(
                f"no entry is committed {'' if named.first else 'in '}{where}: nothing to replay"
            )
            continue
        click.echo(
            f"entries {one['first']}..{one['last']}{of} are in {out}: "
            f"{one['read']} read now ({one['messages']} messages), {one['were_there']} were there"
        )


def _kept(out: str, pieces: Sequence[Piece], total: int) -> str:
    done = sum(len(piece.entries) for piece in pieces)
    return f"{done} of {total} entries are in {out}: the same command goes on behind them"


@dledger_spark.command()
@log_options()
@json_option("Print one JSON object.")
@session_options
def count(as_json: bool) -> None:
    """Print how many messages each topic has."""
    from dledger_spark.commands.topic_count import TopicCount, count_topics  # noqa: PLC0415
    from dledger_spark.log.log_range import END  # noqa: PLC0415
    from dledger_spark.log.readable_log import readable_parts  # noqa: PLC0415

    named = given_logs()
    logs: list[dict[str, Any]] = []
    topics: list[TopicCount] = []
    ranges = named.ranges()
    for log, entries in ranges:
        read = readable_parts(log, entries, fail_on_data_loss=named.fail_on_data_loss)
        print_left_out(read.left_out)
        logs.append(
            {
                "raft_group": log.group,
                "log": log.name,
                "first": entries.start,
                "last": entries.stop - 1,
                "entries": sum(map(len, read.parts)),
            }
        )
    total = sum(one["entries"] for one in logs)
    if total:
        uncommitted = (named.last or "").lower() == END
        with (
            progress(None, meanwhile="reading the logs: tasks done") as on_progress,
            started_session(python_warnings=TOLD_HERE) as session,
        ):
            topics = count_topics(
                session,
                named.sources[0],
                {log.group: entries for log, entries in ranges},
                uncommitted=uncommitted,
                on_progress=on_progress,
            )
    if as_json:
        messages = sum(topic.messages for topic in topics)
        found = {"logs": logs, "entries": total, "messages": messages}
        listed = [topic._asdict() for topic in topics]
        click.echo(json.dumps({**found, "topics": listed}, indent=2))
    else:
        names = ", ".join(str(one["log"]) for one in logs)
        print_rows(f"{names}, {total} entries", TopicCount._fields, topics)


@dledger_spark.command()
@log_options()
@option("--table", "What to show.", type=click.Choice(["entries", "messages"]), default="entries")
@option("--topic", "Only messages of this topic.")
@flag(
    "--decompress",
    "Messages with their bodies inflated. One that cannot be is left out, and the column "
    "body_problem tells why.",
)
@option("--limit", "Rows at most.", type=click.IntRange(min=1), default=20)
@json_option("Print all columns, a JSON object a line.")
def show(table: str, topic: str | None, decompress: bool, limit: int, as_json: bool) -> None:
    """Print the first entries or messages of a range. Does not start Spark."""
    from dledger_spark.commands.preview import first_rows  # noqa: PLC0415
    from dledger_spark.inflated_bodies import BODY_PROBLEM  # noqa: PLC0415

    named = given_logs()
    table = "messages" if topic is not None or decompress else table
    ranges = named.ranges()
    names = (*(("raft_group",) if len(ranges) > 1 else ()), *_SHOWN[table])
    rows = first_rows(
        ranges,
        table=table,
        topic=topic,
        limit=limit,
        columns=None if as_json else names,
        fail_on_data_loss=named.fail_on_data_loss,
        decompress=decompress,
    )
    if topic is not None and not rows:
        counted = "`dledger-spark count` lists the topics"
        click.echo(f"no message of topic {topic!r} is there: {counted}", err=True)
    if decompress:
        names = (*names, BODY_PROBLEM)
    if as_json:
        for row in rows:
            click.echo(json_line(row))
    else:
        print_rows(table, names, [[row[name] for name in names] for row in rows])


for _command in (
    tables,
    stream,
    sql,
    report,
    status,
    prune_command,
    publish_command,
    catalog_command,
):
    dledger_spark.add_command(_command)


def main() -> NoReturn:
    """Run the command; Ctrl-C and SIGTERM end it."""
    end_at_signals()
    escape_what_cannot_be_shown()
    set_python_apart()
    dledger_spark(prog_name="dledger-spark")
    sys.exit(0)
