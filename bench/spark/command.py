"""`python -m bench spark`."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
from rich.console import Console

from bench.one_run import RunFailed
from bench.options import json_option
from bench.process_figures import tree_processor_s
from bench.spark.message_log import RARE_TOPIC, write_message_log
from bench.spark.stream_lag import StreamRow, stream_rows
from dledger.command_line.options import flag, given, option
from dledger_spark.commands.tables_command import memory_option

DEFAULT_MESSAGES: Final = 600_000
DEFAULT_ROUNDS: Final = 3
DEFAULT_RATE: Final = 20_000
STREAM_S: Final = 10.0


class Took(NamedTuple):
    """Seconds by the clock, and of processors: this process, Spark's Java and its workers."""

    clock_s: float
    processor_s: float


class Row(NamedTuple):
    """A query over the log, and the same over Parquet; medians. None: it was not run."""

    what: str
    cores: int
    log: Took
    parquet: Took | None

    @property
    def ratio(self) -> float | None:
        """How many times as long the log took, by the clock."""
        return None if self.parquet is None else self.log.clock_s / self.parquet.clock_s

    @property
    def processor_ratio(self) -> float | None:
        """How many times as much of the processors the log took."""
        return None if self.parquet is None else self.log.processor_s / self.parquet.processor_s


@click.command()
@option(
    "--messages",
    "Messages in the log; each takes about 500 bytes.",
    type=click.IntRange(min=1000),
    default=DEFAULT_MESSAGES,
)
@option("--rounds", "Runs.", type=click.IntRange(min=1), default=DEFAULT_ROUNDS)
@option(
    "--dir",
    "folder",
    "Keep the log and the tables there, and use a log that is there already.",
    type=click.Path(file_okay=False, path_type=Path),
)
@option(
    "--rate",
    "Entries a second in a running group that streams read; 0: no streams.",
    type=click.IntRange(min=0),
    default=DEFAULT_RATE,
)
@flag("--peak-memory", "Measure instead how much memory the commands take over such a log at most.")
@memory_option
@json_option("figure")
def spark(
    messages: int,
    rounds: int,
    folder: Path | None,
    rate: int,
    peak_memory: bool,
    kept: Path | None,
) -> None:
    """Read a log of a broker in Spark, and the same rows from Parquet, in the same session.

    Sinks are Spark's "noop". Both are in the page cache. Take the ratios.
    """
    streams: list[StreamRow] = []
    console = Console(stderr=True)
    with _folder(folder) as home:
        log = home / "log"
        if not log.exists():
            with console.status("writing the log") as status:
                write_message_log(
                    log, messages, lambda done: status.update(f"writing the log: {done} entries")
                )
        if peak_memory:
            _print_peaks(log, home, kept)
            return
        rows = list(_measured(home, log, rounds, console))
        _print_rows(rows)
        failure = None
        try:
            streams += _streams(home, rate, console) if rate else ()
        except RunFailed as error:
            failure = click.ClickException(f"streams: {error}")
    if kept is not None:
        figures: list[dict[str, object]] = [{**row._asdict(), "ratio": row.ratio} for row in rows]
        figures += [row._asdict() for row in streams]
        kept.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    _print_streams(streams)
    if failure is not None:
        raise failure


def _print_rows(rows: list[Row]) -> None:
    names = ("log s", "log CPU s", "Parquet s", "Parquet CPU s", "ratio", "CPU ratio", "x 1 core")
    click.echo("\t".join(("what", "cores", *names)))
    one_core = {row.what: row.log.clock_s for row in rows if row.cores == 1}
    for row in rows:
        words = [row.what, str(row.cores), *_all_s(row.log)]
        words += ["-"] * 4 if row.parquet is None else _all_s(row.parquet)
        if row.parquet is not None:
            words += [f"{row.ratio:.1f}", f"{row.processor_ratio:.1f}"]
        before_s = one_core.get(row.what)
        is_more = before_s is not None and row.cores > 1
        words.append(f"{before_s / row.log.clock_s:.1f}" if before_s and is_more else "-")
        click.echo("\t".join(words))


def _all_s(took: Took) -> list[str]:
    return [f"{took.clock_s:.2f}", f"{took.processor_s:.2f}"]


def _print_streams(rows: list[StreamRow]) -> None:
    if rows:
        names = ("sends/s alone", "beside it", "median ms alone", "beside it", "lag s", "oldest s")
        click.echo("\t".join(("stream of", *names)))
    for row in rows:
        sends = (f"{row.alone_per_s:.0f}", f"{row.with_per_s:.0f}")
        medians = (f"{row.alone_ms:.1f}", f"{row.with_ms:.1f}")
        lags = (f"{row.lag_s:.2f}", f"{row.oldest_s:.2f}")
        click.echo("\t".join((row.source, *sends, *medians, *lags)))


def _streams(home: Path, rate: int, console: Console) -> Iterator[StreamRow]:
    from dledger_spark.session import local_session  # noqa: PLC0415  # needs the extra

    console.print("streams", style="dim")
    with local_session() as session:
        yield from stream_rows(session, home, rate, STREAM_S)


def _print_peaks(log: Path, home: Path, kept: Path | None) -> None:
    from bench.spark.peak_memory import peaks  # noqa: PLC0415  # needs the extra

    found = peaks(log, home, given("--memory"))
    if kept is not None:
        figures = [one._asdict() for one in found]
        kept.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    click.echo("what\ts\tCPU s\tMiB of the largest process")
    for one in found:
        sizes = ", ".join(f"{name} {mib}" for name, mib in sorted(one.mib.items()))
        click.echo(f"{one.what}\t{one.clock_s:.0f}\t{one.processor_s:.0f}\t{sizes}")


@contextmanager
def _folder(given: Path | None) -> Iterator[Path]:
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="dledger-bench-") as made:
        yield Path(made)


def _measured(home: Path, log: Path, rounds: int, console: Console) -> Iterator[Row]:
    from dledger_spark.session import local_session  # noqa: PLC0415  # needs the extra

    path = str(log)
    most = os.cpu_count() or 1
    parquet = home / "parquet"
    for cores in sorted({1, most}):
        with local_session(cores=cores) as session:
            if not parquet.exists():
                for table in ("entries", "messages"):
                    frame = _of_log(session, path, table)
                    frame.write.parquet(str(parquet / table))
            for what, over_log, over_parquet in _queries(session, path, str(parquet)):
                console.print(f"{what}, {cores} cores", style="dim")
                yield Row(what, cores, _median(over_log, rounds), _median(over_parquet, rounds))
    console.print("tables", style="dim")
    yield Row("all analytics tables, without Spark", most, _tables(path, home, rounds), None)


def _of_log(session: Any, path: str, table: str, **options: str) -> Any:
    return session.read.format("dledger").options(table=table, **options).load(path)


def _queries(
    session: Any, path: str, parquet: str
) -> Iterator[tuple[str, Callable[[], Any], Callable[[], Any]]]:
    """What is asked, of the log and of Parquet."""

    def read(table: str) -> Any:
        return session.read.parquet(f"{parquet}/{table}")

    def drain(frame: Any) -> Any:
        return frame.write.format("noop").mode("overwrite").save()

    for table in ("entries", "messages"):
        yield (
            f"all {table}",
            partial(lambda table: drain(_of_log(session, path, table)), table),
            partial(lambda table: drain(read(table)), table),
        )
    for what, checksums in (
        ("messages per topic", "true"),
        ("messages per topic, no sums checked", "false"),
    ):
        yield (
            what,
            partial(
                lambda checksums: (
                    session.read.format("dledger")
                    .options(table="messages", checksums=checksums)
                    .schema("topic string")
                    .load(path)
                    .groupBy("topic")
                    .count()
                    .collect()
                ),
                checksums,
            ),
            lambda: read("messages").groupBy("topic").count().collect(),
        )
    yield (
        "messages of a topic with 1 in 10,000",
        lambda: drain(_of_log(session, path, "messages", subscribe=RARE_TOPIC)),
        lambda: drain(read("messages").where(f"topic = '{RARE_TOPIC}'")),
    )
    middle = session.read.parquet(f"{parquet}/entries").count() // 2
    yield (
        "100 entries by index",
        lambda: (
            session.read.format("dledger")
            .option("from", middle)
            .option("to", middle + 99)
            .load(path)
            .collect()
        ),
        lambda: read("entries").where(f"index >= {middle} and index < {middle + 100}").collect(),
    )
    moment = read("messages").where(f"index = {middle}").select("store_time").first()
    begin_ms = int(moment["store_time"].timestamp() * 1000) if moment is not None else 0
    yield (
        "messages of 100 ms",
        lambda: (
            session.read.format("dledger")
            .option("table", "messages")
            .option("startingTimestamp", begin_ms)
            .option("endingTimestamp", begin_ms + 100)
            .load(path)
            .collect()
        ),
        lambda: (
            read("messages")
            .where(
                f"store_time >= timestamp_millis({begin_ms}) "
                f"and store_time < timestamp_millis({begin_ms + 100})"
            )
            .collect()
        ),
    )


def _tables(path: str, home: Path, rounds: int) -> Took:
    from dledger_spark.log.folder_log import open_folders  # noqa: PLC0415
    from dledger_spark.tables.catalog import catalog  # noqa: PLC0415
    from dledger_spark.tables.duckdb_engine import duckdb_engine  # noqa: PLC0415
    from dledger_spark.tables.refresh import refresh  # noqa: PLC0415
    from dledger_spark.tables.table_home import TableHome  # noqa: PLC0415
    from dledger_spark.tables.update import update_tables  # noqa: PLC0415

    numbers = iter(range(rounds))

    def make() -> None:
        tables = TableHome(f"{home}/tables-{os.getpid()}-{next(numbers)}")
        with tables.held():
            for log in open_folders(path):
                update_tables(tables, log)
            with duckdb_engine(catalog(tables, derived=False)) as engine:
                refresh(tables, engine, {})

    return _median(make, rounds, warm=False)


def _median(run: Callable[[], Any], rounds: int, *, warm: bool = True) -> Took:
    if warm:
        run()
    took = []
    for _ in range(rounds):
        clock_s, processor_s = time.perf_counter(), tree_processor_s(os.getpid())
        run()
        took.append(
            Took(
                time.perf_counter() - clock_s,
                tree_processor_s(os.getpid()) - processor_s,
            )
        )
    return Took(
        statistics.median(one.clock_s for one in took),
        statistics.median(one.processor_s for one in took),
    )
