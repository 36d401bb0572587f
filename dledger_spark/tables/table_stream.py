"""Keeps tables up to date with Spark's structured streaming.

Spark plans the batches from the offsets of the source, and keeps them in its checkpoint; the tables
themselves record which entries they have. So neither a lost checkpoint nor a batch that Spark
repeats doubles a row.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from dledger.declared_error import DeclaredError
from dledger_spark.log.left_out import LeftOut
from dledger_spark.query.named_logs import open_all
from dledger_spark.query.source_options import read_options
from dledger_spark.source import NAME
from dledger_spark.tables.catalog import CatalogTable
from dledger_spark.tables.condition import ends_of_batch
from dledger_spark.tables.duckdb_engine import DEFAULT_MEMORY_MIB, duckdb_engine
from dledger_spark.tables.engine import Engine
from dledger_spark.tables.refresh import refresh
from dledger_spark.tables.spark_engine import SparkEngine
from dledger_spark.tables.spark_update import update_on_spark
from dledger_spark.tables.table_home import TableHome
from dledger_spark.tables.update import update_tables

# A commit of a batch takes seconds, and longer on a slow disk.
END_S: Final = 10.0
# Replaced files are kept for an hour, so tables that take long to compute are made less often.
_PAUSES_PER_REFRESH: Final = 9


class StreamEnding(DeclaredError):
    """The stream ends while a batch is written: the rest of the batch is dropped."""

    _template = "the stream was told to end"


class TableStream:
    """Adds the entries of each batch of a stream to tables.

    Args:
        home: the tables' folder, `held` by the caller.
        source: the options of the source "dledger".
        refresh_s: how often the derived tables are computed, unless that takes more than a tenth of
            the time.
        on_batch: called with the number of entries added by each batch.
        memory_mib: see `duckdb_engine`.
        on_left_out: called with what cannot be read of each batch.
        on_cluster: whether tasks of Spark read the log and write the facts, and Spark computes the
            derived tables; else this process does it all. Needs a session of classic Spark.
    """

    def __init__(
        self,
        home: TableHome,
        source: Mapping[str, str],
        refresh_s: float,
        on_batch: Callable[[int], None],
        memory_mib: int = DEFAULT_MEMORY_MIB,
        on_left_out: Callable[[Sequence[LeftOut]], None] = lambda _left_out: None,
        *,
        on_cluster: bool = False,
    ) -> None:
        self._home = home
        self._source = source
        self._refresh_s = refresh_s
        self._on_batch = on_batch
        self._memory_mib = memory_mib
        self._on_left_out = on_left_out
        self._on_cluster = on_cluster
        self._session: Any = None
        self._refresh_at = 0.0
        self._through: dict[str, int] = {}
        self._is_ending = False
        self._writing = threading.Lock()  # held while the tables are written

    def start(self, session: Any, *, every_s: float | None) -> Any:
        """Start the query; a batch begins every `every_s`. With None it ends behind the present
        entries.
        """
        # The rows need not go through Java: of a batch only the ends of the logs count, and its
        # entries are read and folded here or by tasks.
        self._session = session
        frame = (
            session.readStream.format(NAME)
            .options(**self._source)
            .schema("raft_group string, index bigint")
            .load()
        )
        trigger = (
            {"availableNow": True} if every_s is None else {"processingTime": f"{every_s} seconds"}
        )
        return (
            frame.writeStream.foreachBatch(self._take)
            .option("checkpointLocation", self._home.checkpoint_path)
            .trigger(**trigger)
            .start()
        )

    def end(self) -> bool:
        """Stop writing; return whether nothing is written any more, after `END_S` at most.

        Spark calls for its batches from another thread, and may wait there for the end of one. A
        batch ends at the next rows that it reads, or with the table that it computes.
        """
        self._is_ending = True
        return self._writing.acquire(timeout=END_S)

    def _take(self, batch: Any, number: int) -> None:
        with self._writing:
            self._check_ending()
            # As planned, so that no task reads what is read to fold it.
            self._add(ends_of_batch(self._home, number) or _ends_in(batch))

    def _check_ending(self, _done: object = None) -> None:
        if self._is_ending:
            raise StreamEnding

    def _add(self, ends: Mapping[str, int]) -> None:
        options = read_options(self._source)
        logs = [log for log in open_all(options) if log.group in ends]
        stops: dict[str | None, int] = {log.group: ends[log.group or ""] for log in logs}
        fails = options.fail_on_data_loss
        if self._on_cluster:
            found = update_on_spark(
                self._session,
                self._home,
                logs,
                stops,
                fail_on_data_loss=fails,
                on_round=self._check_ending,
            )
        else:
            found = [
                update_tables(
                    self._home,
                    log,
                    stops[log.group],
                    fail_on_data_loss=fails,
                    on_progress=self._check_ending,
                )
                for log in logs
            ]
        self._through |= {group or "": stop - 1 for group, stop in stops.items()}
        for one in found:
            self._on_left_out(one.left_out)
        self._on_batch(sum(one.read for one in found))
        if time.monotonic() >= self._refresh_at:
            self.refresh()

    def _opens(self, tables: Sequence[CatalogTable]) -> AbstractContextManager[Engine]:
        if self._on_cluster:
            return nullcontext(SparkEngine(self._session, tables, self._home.spill_path))
        return duckdb_engine(tables, self._memory_mib)

    def refresh(self) -> None:
        """Compute the derived tables, if there are any facts."""
        began = time.monotonic()
        if self._through:
            refresh(self._home, self._opens, self._through, self._check_ending)
        ended = time.monotonic()
        self._refresh_at = ended + max(self._refresh_s, (ended - began) * _PAUSES_PER_REFRESH)


def _ends_in(batch: Any) -> dict[str, int]:
    """Return the entries behind the last ones of a batch, by group."""
    return {
        row["raft_group"]: row["max(index)"] + 1
        for row in batch.groupBy("raft_group").agg({"index": "max"}).collect()
    }
