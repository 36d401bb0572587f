"""`make bench-spark`: the log in Spark, beside Spark reading the same rows from Parquet."""

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
from bench.options import COUNT, json_option
from bench.process_figures import tree_processor_s
from bench.report import show_tables
from bench.spark.message_log import RARE_TOPIC, write_message_log
from bench.spark.stream_lag import StreamRow, stream_rows
from bench.summary import Rows
from dledger.command_line.options import flag, given, option
from dledger_spark.commands.tables_command import memory_option

DEFAULT_MESSAGES: Final = 600_000
DEFAULT_ROUNDS: Final = 3
DEFAULT_RATE: Final = 20_000
DEFAULT_CLUSTER_MB: Final = 200
STREAM_S: Final = 10.0


class Took(NamedTuple):
    """Seconds on the clock, and of processors: this process, Spark's Java and its workers."""

    clock_s: float
    processor_s: float


class Row(NamedTuple):
    """A query over the log, and the same over Parquet; medians. None if it was not run."""

    what: str
    cores: int
    log: Took
    parquet: Took | None

    @property
    def ratio(self) -> float | None:
        return None if self.parquet is None else self.log.clock_s / self.parquet.clock_s

    @property
    def processor_ratio(self) -> float | None:
        return None if self.parquet is None else self.log.processor_s / self.parquet.processor_s


@click.command()
@option(
    "--messages",
    "Messages in the log; each takes about 500 bytes.",
    type=click.IntRange(min=1000),
    default=DEFAULT_MESSAGES,
)
@option("--rounds", "Runs.", type=COUNT, default=DEFAULT_ROUNDS)
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
@option(
    "--cluster-groups",
    "Measure instead the tables of so many groups on a standalone cluster of 1 and 2 workers.",
    type=click.IntRange(min=0),
    default=0,
)
@option(
    "--cluster-mb",
    "MB in the log of each of these groups.",
    type=COUNT,
    default=DEFAULT_CLUSTER_MB,
)
@memory_option
@json_option("figure")
def spark(
    messages: int,
    rounds: int,
    folder: Path | None,
    rate: int,
    peak_memory: bool,
    cluster_groups: int,
    cluster_mb: int,
    kept: Path | None,
) -> None:
    """Read a log of a broker in Spark, and the same rows from Parquet, in the same session.

    Sinks are Spark's "noop". Both are in the page cache. Take the ratios.
    """
    streams: list[StreamRow] = []
    console = Console(stderr=True)
    with _folder(folder) as home:
        if cluster_groups:
            _print_cluster(home, cluster_groups, cluster_mb, console, kept)
            return
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
        show_tables([_table_of_queries(rows)])
        failure = None
        try:
            streams += _streams(home, rate, console) if rate else ()
        except RunFailed as error:
            failure = click.ClickException(f"streams: {error}")
    queries = [{**row._asdict(), "ratio": row.ratio} for row in rows]
    _keep(kept, [*queries, *(row._asdict() for row in streams)])
    if streams:
        show_tables([_table_of_streams(streams)])
    if failure is not None:
        raise failure


def _table_of_queries(rows: list[Row]) -> Rows:
    columns = ["what", "cores", "log s", "log CPU s", "Parquet s", "Parquet CPU s"]
    one_core = {row.what: row.log.clock_s for row in rows if row.cores == 1}
    cells = []
    for row in rows:
        compared = ["-"] * 4
        if row.parquet is not None:
            ratios = [f"{row.ratio:.1f}", f"{row.processor_ratio:.1f}"]
            compared = [*_all_s(row.parquet), *ratios]
        before_s = one_core.get(row.what) if row.cores > 1 else None
        gain = "-" if before_s is None else f"{before_s / row.log.clock_s:.1f}"
        cells.append([row.what, str(row.cores), *_all_s(row.log), *compared, gain])
    return Rows("queries", [*columns, "ratio", "CPU ratio", "x 1 core"], cells)


def _all_s(took: Took) -> list[str]:
    return [f"{took.clock_s:.2f}", f"{took.processor_s:.2f}"]


def _table_of_streams(rows: list[StreamRow]) -> Rows:
    columns = ["what", "sends/s alone", "beside it", "median ms alone", "beside it"]
    cells = [
        [
            *(row.source, f"{row.alone_per_s:.0f}", f"{row.with_per_s:.0f}"),
            *(f"{row.alone_ms:.1f}", f"{row.with_ms:.1f}"),
            *(f"{row.lag_s:.2f}", f"{row.oldest_s:.2f}"),
        ]
        for row in rows
    ]
    return Rows("streams", [*columns, "lag s", "oldest s"], cells)


def _streams(home: Path, rate: int, console: Console) -> Iterator[StreamRow]:
    from dledger_spark.session import local_session  # noqa: PLC0415  # needs the extra

    console.print("streams", style="dim")
    with local_session() as session:
        yield from stream_rows(session, home, rate, STREAM_S)


def _print_peaks(log: Path, home: Path, kept: Path | None) -> None:
    from bench.spark.peak_memory import peaks  # noqa: PLC0415  # needs the extra

    found = peaks(log, home, given("--memory"))
    _keep(kept, [one._asdict() for one in found])
    cells = []
    for one in found:
        sizes = ", ".join(f"{name} {mib}" for name, mib in sorted(one.mib.items()))
        cells.append([one.what, f"{one.clock_s:.0f}", f"{one.processor_s:.0f}", sizes])
    columns = ["what", "s", "CPU s", "MiB of the largest process"]
    show_tables([Rows("peak memory", columns, cells)])


def _print_cluster(
    home: Path, groups: int, group_mb: int, console: Console, kept: Path | None
) -> None:
    from bench.spark.cluster_tables import cluster_rows, write_group_logs  # noqa: PLC0415

    logs = home / f"groups-{group_mb}-mb"
    with console.status("writing the logs") as status:
        write_group_logs(logs, groups, group_mb, status.update)
    found = []
    for workers in (1, 2):
        console.print(f"{groups} groups of {group_mb} MB, {workers} workers", style="dim")
        try:
            found += cluster_rows(
                logs, home, workers, lambda what: console.print(f"  {what}", style="dim")
            )
        except RunFailed as error:
            raise click.ClickException(str(error)) from None
    _keep(kept, [one._asdict() for one in found])
    cells = []
    for one in found:
        sizes = ", ".join(f"{name} {mib}" for name, mib in sorted(one.mib.items()))
        per_s = f"{one.rows / one.processor_s:.0f}" if one.processor_s else ""
        figures = [f"{one.clock_s:.1f}", f"{one.processor_s:.1f}", per_s, sizes]
        cells.append([one.what, str(one.workers), *figures])
    columns = ["what", "workers", "s", "CPU s", "rows/CPU s", "MiB of the largest process"]
    show_tables([Rows("cluster", columns, cells)])


def _keep(path: Path | None, figures: list[dict[str, object]]) -> None:
    if path is not None:
        path.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


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
                    _of_log(session, path, table).write.parquet(str(parquet / table))
            for what, over_log, over_parquet in _queries(session, path, str(parquet)):
                console.print(f"{what}, {cores} cores", style="dim")
                yield Row(what, cores, _median(over_log, rounds), _median(over_parquet, rounds))
    console.print("tables", style="dim")
    yield Row("all analytics tables, without Spark", most, _tables(path, home, rounds), None)


def _of_log(session: Any, path: str, table: str, **options: object) -> Any:
    return session.read.format("dledger").options(table=table, **options).load(path)


def _queries(
    session: Any, path: str, parquet: str
) -> Iterator[tuple[str, Callable[[], Any], Callable[[], Any]]]:
    """Yield the name of each query, and its runs over the log and over Parquet."""
    log = partial(_of_log, session, path)

    def read(table: str, condition: str = "true") -> Any:
        return session.read.parquet(f"{parquet}/{table}").where(condition)

    def drain(frame: Any) -> Any:
        return frame.write.format("noop").mode("overwrite").save()

    def count_topics(frame: Any) -> Any:
        return frame.groupBy("topic").count().collect()

    for table in ("entries", "messages"):
        yield (
            f"all {table}",
            lambda table=table: drain(log(table)),  # type: ignore[misc]
            lambda table=table: drain(read(table)),  # type: ignore[misc]
        )
    for what, checksums in (
        ("messages per topic", "true"),
        ("messages per topic, no sums checked", "false"),
    ):
        options: dict[str, Any] = {"schema": "topic string", "checksums": checksums}
        yield (
            what,
            lambda options=options: count_topics(log("messages", **options)),  # type: ignore[misc]
            lambda: count_topics(read("messages")),
        )
    yield (
        "messages of a topic with 1 in 10,000",
        lambda: drain(log("messages", subscribe=RARE_TOPIC)),
        lambda: drain(read("messages", f"topic = '{RARE_TOPIC}'")),
    )
    middle = read("entries").count() // 2
    indexes: dict[str, Any] = {"from": middle, "to": middle + 99}
    yield (
        "100 entries by index",
        lambda: log("entries", **indexes).collect(),
        lambda: read("entries", f"index >= {middle} and index < {middle + 100}").collect(),
    )
    moment = read("messages", f"index = {middle}").select("store_time").first()
    begin_ms = int(moment["store_time"].timestamp() * 1000) if moment is not None else 0
    times: dict[str, Any] = {"startingTimestamp": begin_ms, "endingTimestamp": begin_ms + 100}
    condition = (
        f"store_time >= timestamp_millis({begin_ms}) "
        f"and store_time < timestamp_millis({begin_ms + 100})"
    )
    yield (
        "messages of 100 ms",
        lambda: log("messages", **times).collect(),
        lambda: read("messages", condition).collect(),
    )


def _tables(path: str, home: Path, rounds: int) -> Took:
    from dledger_spark.log.folder_log import open_folders  # noqa: PLC0415
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
            refresh(tables, duckdb_engine, {})

    return _median(make, rounds, warm=False)


def _median(run: Callable[[], Any], rounds: int, *, warm: bool = True) -> Took:
    if warm:
        run()
    took = []
    for _ in range(rounds):
        clock_s, processor_s = time.perf_counter(), tree_processor_s(os.getpid())
        run()
        used_s = tree_processor_s(os.getpid()) - processor_s
        took.append(Took(time.perf_counter() - clock_s, used_s))
    return Took(
        statistics.median(one.clock_s for one in took),
        statistics.median(one.processor_s for one in took),
    )
