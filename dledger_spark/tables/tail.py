"""The tables of a folder together with what its logs have behind them: everything committed.

The table is pinned first: its files, and the entry up to which it is complete, are of one version
in Delta's log. The rest of the log is read from exactly there, so each row is there once, whatever
a writer adds meanwhile.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from dledger_spark.errors import OptionInvalid, TablesInvalid
from dledger_spark.facts.fact_schemas import FACTS, LAST
from dledger_spark.facts.log_fold import Known, LogFold, decoded
from dledger_spark.log.entry_batches import BATCH_BYTES
from dledger_spark.log.log_range import MAX_PIECE_BYTES
from dledger_spark.log.readable_log import Origin, ReadableLog
from dledger_spark.records.message_columns import message_batch
from dledger_spark.schema import MESSAGE_SCHEMA
from dledger_spark.tables.catalog import CatalogTable, catalog_table, no_tables
from dledger_spark.tables.delta_files import table_at
from dledger_spark.tables.fact_table import app_of
from dledger_spark.tables.passes import OF_RANGES, fold_at, known_of
from dledger_spark.tables.spark_engine import frame_of
from dledger_spark.tables.table_home import TableHome
from dledger_spark.tables.update import fold_behind, lacking_behind

# A writer may replace the states that a table was pinned with; each time it has added entries.
PINS_MAX: Final = 100


class TailTask(NamedTuple):
    """The rows of a table for some entries, for another process.

    Attributes:
        known: what the entries before say about these.
    """

    origin: Origin
    entries: range
    known: Known
    table: str
    checksums: bool

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Raises DledgerSparkError: the log cannot be read."""
        log: ReadableLog = self.origin.open()
        for batch in log.batches(self.entries, batch_bytes=BATCH_BYTES, checksums=self.checksums):
            messages = message_batch(batch, MESSAGE_SCHEMA.names)
            found = decoded(batch, messages, self.known).get(self.table)
            if found is not None:
                yield found


class Whole(NamedTuple):
    """A table at one moment, and the tasks for what it lacks of the logs."""

    table: CatalogTable
    tasks: list[TailTask]


def with_tail(
    session: Any,
    home: TableHome,
    logs: Sequence[ReadableLog],
    table: str = "messages",
    *,
    checksums: bool = True,
    fail_on_data_loss: bool = True,
) -> Any:
    """Return a table with all that is committed now: a DataFrame with each row exactly once.

    It has the rows of the table, and behind them, from the logs, those that no run of
    `dledger-spark tables` has added yet. A writer may add to the tables meanwhile. Every query over
    the DataFrame gives the same rows. Its files are kept for an hour, as those of any table that
    is open (`--keep-hours`).

    The entries that the table lacks are read twice: here once without bodies, because what the
    brokers refused follows from the entries before, and by the tasks of each query.

    Args:
        session: of classic Spark (not Connect). Its executors see the tables' folder, and what the
            logs are read from.
        home: the tables' folder. The caller need not hold it.
        logs: the logs, of groups of different names. Of other groups there are the rows of the
            table alone.
        table: "messages" or "entries", with the columns of `facts.fact_schemas`.
        checksums: whether to check the sums of the entries that are read.
        fail_on_data_loss: whether missing and damaged entries are an error.

    Raises:
        OptionInvalid: it is another table.
        DledgerSparkError: there are no tables, or a log is not theirs or cannot be read.
    """
    cores = session.sparkContext.defaultParallelism
    whole = whole_table(
        home, logs, table, cores, checksums=checksums, fail_on_data_loss=fail_on_data_loss
    )
    frame = frame_of(session, whole.table.files, whole.table.schema)
    if not whole.tasks:
        return frame
    pickled = [(pickle.dumps(task),) for task in whole.tasks]
    tasks = session.sparkContext.parallelize(pickled, len(pickled))
    rows = session.createDataFrame(tasks, "task binary")
    return frame.unionByName(rows.mapInArrow(_rows_of, from_arrow_schema(FACTS[table])))


def _rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for content in batch.column("task").to_pylist():
            task: TailTask = pickle.loads(content)
            yield from task.rows()


def whole_table(
    home: TableHome,
    logs: Sequence[ReadableLog],
    table: str,
    tasks: int,
    *,
    checksums: bool = True,
    fail_on_data_loss: bool = True,
) -> Whole:
    """Pin a table, and return it with what it lacks, for at least so many tasks for each log unless
    these are small. For the others see `with_tail`.
    """
    if table not in OF_RANGES:
        raise OptionInvalid("table", table, f"use one of {', '.join(OF_RANGES)}")
    pinned, folds = _pinned(home, logs, table)
    found: list[TailTask] = []
    for log, begin in zip(logs, folds, strict=True):
        fold = begin
        lacking = lacking_behind(log, fold, fail_on_data_loss=fail_on_data_loss)
        for part in lacking.parts:
            for entries in log.share_out(part, MAX_PIECE_BYTES, tasks):
                fold = fold_at(log, fold, entries.start)
                known = known_of(log, fold, entries)
                if known is not None:
                    found.append(TailTask(log.origin, entries, known, table, checksums))
    return Whole(pinned, found)


def _pinned(
    home: TableHome, logs: Sequence[ReadableLog], table: str
) -> tuple[CatalogTable, list[LogFold | None]]:
    """Return a table, and the fold of each log behind the entries that it has rows of.

    Raises:
        TablesInvalid: there are no tables, or they are those of another log.
    """
    for left in reversed(range(PINS_MAX)):
        # Their end counts for all tables, so the other one, looked at later, is complete up to it.
        entries = _at_present(home, LAST)
        one = entries if table == LAST else _at_present(home, table)
        try:
            return one, [_fold_of(home, log, (entries, one)) for log in logs]
        except TablesInvalid:
            # A writer removes a state once it has added entries behind it.
            if not left or _at_present(home, LAST).table.version() == entries.table.version():
                raise
    raise AssertionError


def _at_present(home: TableHome, name: str) -> CatalogTable:
    path = home.fact_path(name)
    table = table_at(path)
    if table is None:
        raise no_tables(home)
    return catalog_table(name, path, table)


def _fold_of(home: TableHome, log: ReadableLog, tables: Sequence[CatalogTable]) -> LogFold | None:
    """Return the fold behind the furthest of some tables; None if they have nothing of a log."""
    ends = (one.table.transaction_version(app_of(log.group)) for one in tables)
    known = [end for end in ends if end is not None]
    return fold_behind(home, log, max(known)) if known else None
