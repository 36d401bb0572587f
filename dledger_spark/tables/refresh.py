"""Computes the derived tables from the facts."""

import os
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from dledger_spark.errors import QueryFailed, TablesInvalid
from dledger_spark.tables.delta_files import (
    WRITER_PROPERTIES,
    configuration,
    delete_old_files,
    delta_failures,
    keep_for,
)
from dledger_spark.tables.derived import DERIVED, query
from dledger_spark.tables.engine import Engine
from dledger_spark.tables.table_home import TableHome


def refresh(
    home: TableHome,
    engine: Engine,
    through: dict[str, Any],
    on_table: Callable[[str], None] = lambda _table: None,
) -> dict[str, int]:
    """Replace each derived table, in a commit of its own; return their numbers of rows.

    The caller has `held` the folder. `through` is the last entry of each log, for the metadata of
    the commits. `on_table` is called with the name of each table before it is made.

    Raises:
        QueryFailed: a table cannot be computed.
        TablesInvalid: a table cannot be written.
    """
    rows = {}
    for name in DERIVED:
        on_table(name)
        made = _CountedRows(engine.batches(query(name)))
        path = home.derived_path(name)
        is_new = not os.path.isdir(f"{path}/_delta_log")
        try:
            with delta_failures(path, "cannot be written"):
                write_deltalake(
                    path,
                    made.reader(),
                    mode="overwrite",
                    schema_mode="overwrite",
                    configuration=configuration(home.kept_hours) if is_new else None,
                    writer_properties=WRITER_PROPERTIES,
                    commit_properties=CommitProperties(custom_metadata={"through": str(through)}),
                )
        except TablesInvalid:
            if made.failure is not None:
                raise made.failure from None
            raise
        table = DeltaTable(path)
        keep_for(path, table, home.kept_hours)
        delete_old_files(path, table, home.kept_hours)
        rows[name] = made.rows
    return rows


class _CountedRows:
    """Batches on their way to a table: a few are in memory at once.

    `rows` have come so far. `failure` ended them: Delta's writer, which asks for them, keeps only
    its text.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self.rows = 0
        self.failure: QueryFailed | None = None
        self._batches = batches

    def reader(self) -> pa.RecordBatchReader:
        """Return all batches. Raises QueryFailed if there is not even a first."""
        first = next(self._batches)
        return pa.RecordBatchReader.from_batches(first.schema, self._counted(first))

    def _counted(self, first: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        try:
            for batch in chain([first], self._batches):
                self.rows += len(batch)
                yield batch
        except QueryFailed as failure:
            self.failure = failure
            raise
