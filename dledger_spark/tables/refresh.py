"""Keeps the derived tables up to date with the facts, at the cost of what is new.

A commit of a derived table says, like one of a table of facts, up to which entry of each log it is
complete, and from which query it was made. So a table that lacks nothing costs nothing, and one
that was made by another query is made anew.
"""

import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from typing import Any, Final, NamedTuple

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from dledger_spark.errors import QueryFailed, TablesInvalid
from dledger_spark.tables.catalog import CatalogTable, catalog, catalog_table
from dledger_spark.tables.delta_files import (
    WRITER_PROPERTIES,
    compact,
    configuration,
    delete_old_files,
    delta_failures,
    keep_for,
    table_at,
)
from dledger_spark.tables.derived import DERIVED, QUEUE_MINUTES, STORED, VIEWS, query
from dledger_spark.tables.engine import Engine
from dledger_spark.tables.fact_table import app_of
from dledger_spark.tables.increments import INCREMENTS, Nows, change_of
from dledger_spark.tables.table_home import TableHome
from dledger_spark.tables.touched import delta_time_of, inside, time_of
from dledger_spark.tables.update import next_index

# Opens an engine over tables.
Opens = Callable[[Sequence[CatalogTable]], AbstractContextManager[Engine]]
# The transaction whose version is a sum of the query, and the end of the names of those whose
# version is a time.
_QUERY: Final = "query"
_NOW: Final = "/now"


class _Marks(NamedTuple):
    """Up to which entry a table is complete, by group, and what it was made with.

    Attributes:
        query_sum: the sum of its query; None: there is no table.
        nows: see `Change`.
    """

    of_group: Mapping[str | None, int]
    query_sum: int | None
    nows: Nows


def refresh(
    home: TableHome,
    opens: Opens,
    through: Mapping[str, Any],
    on_table: Callable[[str], None] = lambda _table: None,
) -> dict[str, int]:
    """Bring each derived table up to date, in a commit of its own; return their numbers of rows.

    The caller has `held` the folder. `opens` is called if a table lacks something. `through` is the
    last entry of each log, for the metadata of the commits. `on_table` is called with the name of
    each such table before it is made.

    Raises:
        QueryFailed: a table cannot be computed.
        TablesInvalid: a table cannot be written.
    """
    ends = {group: next_index(home, group) or 0 for group in home.groups()}
    # Each is opened once, and kept at its last commit: nothing else commits while the lock is held.
    tables = {name: table_at(home.derived_path(name)) for name in STORED}
    marks = {name: _marks(home, name, tables[name], ends) for name in STORED}
    lacking = [name for name in STORED if marks[name][:2] != (ends, _sum(name))]
    if lacking:
        with opens(_sources(home, tables)) as engine:
            for name in lacking:
                on_table(name)
                refreshed = _Refreshed(home, engine, name, tables[name], marks[name], ends, through)
                tables[name] = refreshed.make()
                if name == QUEUE_MINUTES:
                    made = catalog_table(name, home.derived_path(name), tables[name])
                    engine.add(made.name, made.files, made.schema)
    for name in VIEWS:  # earlier versions stored them
        shutil.rmtree(home.derived_path(name), ignore_errors=True)
    counts = {name: _tended(home, name, table) for name, table in tables.items() if table}
    return {name: counts[name] for name in DERIVED}


def _sources(home: TableHome, tables: Mapping[str, DeltaTable | None]) -> list[CatalogTable]:
    """Return the tables under the names that `increments` explains."""
    found = [one._replace(name=f"all_{one.name}") for one in catalog(home, derived=False)]
    for name, table in tables.items():
        if table is not None:
            called = name if name == QUEUE_MINUTES else f"old_{name}"
            found.append(catalog_table(called, home.derived_path(name), table))
    return found


def _sum(name: str) -> int:
    """Return a positive sum of 62 bits of a table's query."""
    return int.from_bytes(hashlib.sha256(query(name).encode()).digest()[:8]) >> 2


def _marks(
    home: TableHome, name: str, table: DeltaTable | None, ends: Mapping[str | None, int]
) -> _Marks:
    if table is None:
        return _Marks({}, None, {})
    with delta_failures(home.derived_path(name), "cannot be read"):
        there, nows = (
            {
                group: version
                for group in ends
                if (version := table.transaction_version(f"{app_of(group)}{of}")) is not None
            }
            for of in ("", _NOW)
        )
        return _Marks(there, table.transaction_version(_QUERY), nows)


def _tended(home: TableHome, name: str, table: DeltaTable) -> int:
    """Keep the number of a table's files bounded; return its number of rows."""
    path = home.derived_path(name)
    keep_for(path, table, home.kept_hours)
    if not compact(path, table, home.kept_hours):
        delete_old_files(path, table, home.kept_hours)
    with delta_failures(path, "cannot be read"):
        actions = pa.table(table.get_add_actions(flatten=True))
    return sum(actions.column("num_records").to_pylist())


class _Refreshed:
    """A table, while it is brought up to date."""

    def __init__(
        self,
        home: TableHome,
        engine: Engine,
        name: str,
        table: DeltaTable | None,
        marks: _Marks,
        ends: Mapping[str | None, int],
        through: Mapping[str, Any],
    ) -> None:
        self._path = home.derived_path(name)
        self._kept_hours = home.kept_hours
        self._engine = engine
        self._name = name
        self._table = table
        goes_on = marks.query_sum == _sum(name)
        self._begins = marks.of_group if goes_on else None
        self._nows = marks.nows if goes_on else {}
        self._through = dict(through)
        self._ends = ends

    def make(self) -> DeltaTable:
        """Bring the table up to date; return it at its new commit."""
        sql, where, self._nows = change_of(
            self._engine, self._name, self._begins, self._ends, self._nows
        )
        if sql is None:
            return self._with_nothing_new()
        if where is None:
            return self._written(sql, None)
        increment = INCREMENTS[self._name]
        literal = delta_time_of if increment.literal is time_of else increment.literal
        return self._written(sql, inside(increment.column, where, literal))

    @property
    def _commit(self) -> CommitProperties:
        return CommitProperties(
            custom_metadata={"through": str(self._through)},
            app_transactions=[
                Transaction(_QUERY, _sum(self._name)),
                *(Transaction(app_of(group), end) for group, end in self._ends.items()),
                *(Transaction(f"{app_of(group)}{_NOW}", now) for group, now in self._nows.items()),
            ],
        )

    def _written(self, sql: str, predicate: str | None) -> DeltaTable:
        """Replace the rows that fulfil the predicate, or all."""
        made = _Rows(self._engine.batches(sql))
        try:
            with delta_failures(self._path, "cannot be written"):
                write_deltalake(
                    self._table or self._path,
                    made.reader(),
                    mode="overwrite",
                    predicate=predicate,
                    schema_mode="overwrite" if predicate is None else None,
                    configuration=None if self._table else configuration(self._kept_hours),
                    writer_properties=WRITER_PROPERTIES,
                    commit_properties=self._commit,
                )
                return self._table or DeltaTable(self._path)
        except TablesInvalid:
            if made.failure is not None:
                raise made.failure from None
            raise

    def _with_nothing_new(self) -> DeltaTable:
        """Only say up to which entries the table is complete."""
        with delta_failures(self._path, "cannot be written"):
            table = self._table or DeltaTable(self._path)
            table.create_write_transaction(
                [], "append", table.schema(), commit_properties=self._commit
            )
            table.update_incremental()
            return table


class _Rows:
    """Batches on their way to a table: a few are in memory at once.

    `failure` ended them: Delta's writer, which asks for them, keeps only its text.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self.failure: QueryFailed | None = None
        self._batches = batches

    def reader(self) -> pa.RecordBatchReader:
        """Return all batches. Raises QueryFailed if there is not even a first."""
        first = next(self._batches)
        return pa.RecordBatchReader.from_batches(first.schema, self._watched(first))

    def _watched(self, first: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        try:
            yield from chain([first], self._batches)
        except QueryFailed as failure:
            self.failure = failure
            raise
