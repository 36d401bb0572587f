"""One table of facts in Delta: rows are appended once, by the index of the log.

A commit records the entry up to which the table is complete, as Delta's transaction of an
application: `SetTransaction(app, next index)`. Delta writes it in the same atomic commit as the
rows. So any writer (a batch job, a stream, one without Spark) sees what the table has, whichever
writer made it, and whenever that was killed. delta-rs records a transaction and does not refuse a
repeated one, so this class checks first, under the folder's lock.
"""

from collections.abc import Mapping, Sequence

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction, RemoveAction

from dledger_spark.tables.delta_files import (
    compact,
    configuration,
    delta_failures,
    keep_for,
    table_at,
)
from dledger_spark.tables.fact_file import FactFile, FileWritten
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
        self._table = table_at(path)

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
        file = FactFile(self.path, self._schema, there)
        for batch in batches:
            file.add(batch)
        written = file.close()
        files = [] if written is None else [written]
        self.commit(files, {app: entries.stop}, f"{entries.start}-{entries.stop - 1}")
        return sum(one.rows for one in files)

    def commit(self, files: Sequence[FileWritten], ends: Mapping[str, int], note: str) -> None:
        """Add files to the table, which is then complete up to the ends of applications.

        The files have all rows that the table lacks up to there. Raises TablesInvalid.
        """
        actions: list[AddAction | RemoveAction] = [
            AddAction(one.name, one.size, {}, one.changed_ms, True, one.statistics) for one in files
        ]
        transactions = [Transaction(app, end) for app, end in ends.items()]
        with delta_failures(self.path, "cannot be written"):
            if self._table is None:
                self._table = DeltaTable.create(
                    self.path, self._schema, configuration=configuration(self._kept_hours)
                )
            self._table.create_write_transaction(
                actions,
                "append",
                self._schema,
                commit_properties=CommitProperties(
                    app_transactions=transactions, custom_metadata={"entries": note}
                ),
            )
            self._table.update_incremental()

    def compact(self) -> None:
        """Keep the number of files bounded. See `delta_files.compact`."""
        if self._table is not None:
            keep_for(self.path, self._table, self._kept_hours)
            compact(self.path, self._table, self._kept_hours)
