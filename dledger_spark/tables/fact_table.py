"""One table of facts in Delta: rows are appended once, by the index of the log.

A commit records the entry up to which the table is complete, as Delta's transaction of an
application: `SetTransaction(app, next index)`. Delta writes it in the same atomic commit as the
rows. So any writer (a batch job, a stream, one without Spark) sees what the table has, whichever
writer made it, and whenever that was killed. delta-rs records a transaction and does not refuse a
repeated one, so this class checks first, under the folder's lock.
"""

import os
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from dledger_spark.tables.delta_files import (
    WRITER_PROPERTIES,
    compact,
    configuration,
    delta_failures,
    keep_for,
)
from dledger_spark.tables.table_home import KEPT_HOURS


def app_of(group: str | None) -> str:
    """Return the name of a log in Delta's transactions."""
    return "dledger" if group is None else f"dledger/{group}"


class FactTable:
    """A table, which may not exist yet.

    The first columns of its schema are `raft_group` and `index`. Replaced files are kept for
    `kept_hours`.
    """

    def __init__(self, path: str, schema: pa.Schema, kept_hours: int = KEPT_HOURS) -> None:
        self.path = path
        self._kept_hours = kept_hours
        self._schema = schema
        self._table = DeltaTable(path) if os.path.isdir(f"{path}/_delta_log") else None

    def next_index(self, app: str) -> int | None:
        """Return the entry behind those of an application that the table has; None if it has
        none.
        """
        return None if self._table is None else self._table.transaction_version(app)

    def append(self, app: str, entries: range, batches: Sequence[pa.RecordBatch]) -> int:
        """Add the rows of a range of entries that the table lacks; return their number.

        `batches` are all rows of this table for these entries. Raises TablesInvalid.
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

    def compact(self) -> None:
        """Keep the number of files bounded. See `delta_files.compact`."""
        if self._table is not None:
            keep_for(self.path, self._table, self._kept_hours)
            compact(self.path, self._table, self._kept_hours)
