"""`dledger-spark stream`: analytics tables that follow a log."""

from typing import Final

import click

from dledger.command_line.options import NumberRange, flag, given, option
from dledger_spark.commands.ending import end_now
from dledger_spark.commands.log_options import (
    TOLD_HERE,
    given_logs,
    hint_unrecorded,
    log_options,
    print_left_out,
)
from dledger_spark.commands.tables_command import keep_option, memory_option
from dledger_spark.commands.terminal import progress, resumable, session_options, started_session

MAX_S: Final = 86_400.0


@click.command()
@log_options(ranges=False)
@option("--out", "Folder of the tables.", required=True, metavar="OUT")
@option(
    "--every",
    "every_s",
    "How often new entries are added.",
    type=NumberRange(0, MAX_S),
    default=1.0,
    metavar="SECONDS",
)
@option(
    "--refresh",
    "refresh_s",
    "How often the tables that follow from the facts are brought up to date.",
    type=NumberRange(0, MAX_S),
    default=60.0,
    metavar="SECONDS",
)
@memory_option
@keep_option
@flag("--once", "Add what there is, and end.")
@session_options
def stream(
    out: str,
    every_s: float,
    refresh_s: float,
    keep_hours: int,
    once: bool,
) -> None:
    """Keep the tables in OUT up to date until Ctrl-C, with a query of Spark's streaming.

    They are those of `dledger-spark tables`, which may have begun them and may go on with them.
    """
    named = given_logs()
    [source] = named.sources

    from dledger_spark.spark_version import FOR_STREAMS, require_spark  # noqa: PLC0415
    from dledger_spark.tables.table_home import TableHome  # noqa: PLC0415
    from dledger_spark.tables.table_stream import TableStream  # noqa: PLC0415

    require_spark(FOR_STREAMS, "a stream")
    home = TableHome(out, keep_hours)
    if once:
        hint_unrecorded(named.open())
    total = 0

    def kept() -> str:
        return f"{total} entries were added to {home.path}; the same command goes on behind them"

    with (
        home.held(),
        resumable(kept),
        progress(None) as on_progress,
        started_session(python_warnings=TOLD_HERE) as session,
    ):

        def on_batch(added: int) -> None:
            nonlocal total
            total += added
            on_progress(total)

        tables = TableStream(
            home, source, refresh_s, on_batch, given("--memory"), on_left_out=print_left_out
        )
        query = tables.start(session, every_s=None if once else every_s)
        try:
            query.awaitTermination()
            tables.refresh()
        except BaseException as ended:
            # Spark's `stop` waits for its batch, which may need this process meanwhile.
            if not tables.end():
                end_now(ended)  # the lock must not be free while a thread still writes
            raise
        query.stop()
    click.echo(f"{total} entries added to {home.path}")
