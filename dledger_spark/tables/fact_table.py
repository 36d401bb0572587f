"""One table of facts in Delta: rows are appended once, by the index of the log.

A commit notes the entry up to which the table is complete, as Delta's transaction of an
application: `SetTransaction(app, next index)`. Delta writes it in the same atomic commit as the
rows. So any writer (a batch job, a stream, one without Spark) sees what is there, whoever wrote it
and whenever that writer was killed. delta-rs records a transaction and does not refuse a repeated
one, so this class looks first; the folder's lock keeps others away meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from dledger_spark.tables.delta_files import (
    WRITER_PROPERTIES,
    configuration,
    delta_failures,
    keep_for,
    put_together,
)
from dledger_spark.tables.table_home import KEPT_HOURS


def app_of(group: str | None) -> str:
    """The name of a log in Delta's transactions."""
    return "dledger" if group is None else f"dledger/{group}"


class FactTable:
    """A table, which may not exist yet.

    Args:
        path: its folder.
        schema: its columns; the first two are `raft_group` and `index`.
        kept_hours: how long files are still there that the table no longer consists of.
    """

    def __init__(self, path: str, schema: pa.Schema, kept_hours: int = KEPT_HOURS) -> None:
        self.path = path
        self._kept_hours = kept_hours
        self._schema = schema
        self._table = DeltaTable(path) if os.path.isdir(f"{path}/_delta_log") else None

    def next_index(self, app: str) -> int | None:
        """The entry behind those that the table has; None if it has none of this application."""
        return None if self._table is None else self._table.transaction_version(app)

    def append(self, app: str, entries: range, batches: Sequence[pa.RecordBatch]) -> int:
        """Add the rows of a range of entries, without those that are there. Returns their number.

        Args:
            app: the log, as the transactions name it.
            entries: the range.
            batches: all rows of this table that these entries make.

        Raises:
            TablesInvalid: the table cannot be written.
        """
        there = self.next_index(app)
        if there is not None and there >= entries.stop:
            return 0
        rows = pa.Table.from_batches(batches, schema=self._schema)
        if there is not None and there > entries.start:
            rows = rows.filter(pc.greater_equal(rows.column("index"), there))
        with delta_failures(self.path, "cannot be written"):
            write_deltalake(
                self.path if self._table is None else self._table,
                rows,
                mode="append",
                configuration=configuration(self._kept_hours) if self._table is None else None,
                writer_properties=WRITER_PROPERTIES,
                commit_properties=CommitProperties(
                    app_transactions=[Transaction(app, entries.stop)],
                    custom_metadata={"entries": f"{entries.start}-{entries.stop - 1}"},
                ),
            )
        if self._table is None:
            self._table = DeltaTable(self.path)
        else:
            self._table.update_incremental()
        return len(rows)

    def put_together(self) -> None:
        """Keep the number of files bounded. See `delta_files.put_together`."""
        if self._table is not None:
            keep_for(self.path, self._table, self._kept_hours)
            put_together(self.path, self._table, self._kept_hours)
