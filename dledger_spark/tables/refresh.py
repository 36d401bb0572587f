"""Keeps the derived tables up to date with the facts, at the cost of what is new.

A commit of a derived table says, like one of a table of facts, up to which entry of each log it is
complete, and from which query and which facts it was made. So a table that lacks nothing costs
nothing, and one that was made by another query, or of other facts, is made anew.
"""

import hashlib
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from dledger_spark.errors import QueryFailed, TablesInvalid
from dledger_spark.facts.fact_schemas import LAST
from dledger_spark.local_path import files_of_delta
from dledger_spark.tables.catalog import CatalogTable, catalog, catalog_table
from dledger_spark.tables.delta_files import (
    WRITER_PROPERTIES,
    Rows,
    compact,
    configuration,
    delete_old_files,
    delta_failures,
    keep_for,
    lost_file,
    require_sound,
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
# The transactions whose versions are sums: of the query, and of what identifies the facts; and the
# end of the names of those whose version is a time.
_QUERY: Final = "query"
_FACTS: Final = "facts"
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


_NOTHING: Final = _Marks({}, None, {})


def refresh(
    home: TableHome,
    opens: Opens,
    through: Mapping[str, Any],
    on_table: Callable[[str], None] = lambda _table: None,
) -> dict[str, int]:
    """Bring each derived table up to date, in a commit of its own; return their numbers of rows.

    The caller has `held` the folder. `opens` is called if a table lacks something. `through` is the
    last entry of each log, for the metadata of the commits. `on_table` is called with the name of
    each such table before it is made. A table with a file that is gone or damaged is made anew, and
    so is one that was made of other facts. There are none before the first facts.

    Raises:
        QueryFailed: a table cannot be computed.
        TablesInvalid: a table cannot be written.
    """
    home.check_held()
    entries = table_at(home.fact_path(LAST))
    if entries is None:
        return {}
    facts = _sum(str(entries.metadata().id))
    # Each is opened once, and kept at its last commit: nothing else commits while the lock is held.
    tables = {name: table_at(home.derived_path(name)) for name in STORED}
    refreshed = partial(_refreshed, home, opens, through, on_table, tables, facts)
    anew = {name for name, one in tables.items() if one and not _goes_on(home, name, one, facts)}
    try:
        return refreshed(anew)
    except (QueryFailed, TablesInvalid):
        # Nothing looks at the content of files before a query does.
        damaged = {name for name, one in tables.items() if one and not _is_sound(home, name, one)}
        if damaged <= anew:
            raise
    return refreshed(anew | damaged)


def _goes_on(home: TableHome, name: str, table: DeltaTable, facts: int) -> bool:
    """Return whether a table has all its files, and was made of these facts."""
    made_of = table.transaction_version(_FACTS)  # earlier versions do not say it
    return made_of in (None, facts) and lost_file(home.derived_path(name), table) is None


def _is_sound(home: TableHome, name: str, table: DeltaTable) -> bool:
    """Return whether all rows of a table can be read."""
    try:
        require_sound(files_of_delta(home.derived_path(name), table.file_uris()))
    except TablesInvalid:
        return False
    return True


def _refreshed(
    home: TableHome,
    opens: Opens,
    through: Mapping[str, Any],
    on_table: Callable[[str], None],
    tables: dict[str, DeltaTable | None],
    facts: int,
    anew: Collection[str],
) -> dict[str, int]:
    """Do as `refresh`; the tables `anew` are made of all facts, and not read."""
    ends = {group: next_index(home, group) or 0 for group in home.groups()}
    marks = {
        name: _NOTHING if name in anew else _marks(home, name, tables[name], ends)
        for name in STORED
    }
    lacking = [name for name in STORED if marks[name][:2] != (ends, _sum(query(name)))]
    if lacking:
        sound = {name: table for name, table in tables.items() if name not in anew}
        with opens(_sources(home, sound)) as engine:
            for name in lacking:
                on_table(name)
                home.check_held()
                made = _Refreshed(
                    home, engine, name, tables[name], marks[name], ends, through, facts
                )
                tables[name] = made.make()
                if name == QUEUE_MINUTES:
                    new = catalog_table(name, home.derived_path(name), tables[name])
                    engine.add(new.name, new.files, new.schema)
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


def _sum(text: str) -> int:
    """Return a positive sum of 62 bits."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 2


def _marks(
    home: TableHome, name: str, table: DeltaTable | None, ends: Mapping[str | None, int]
) -> _Marks:
    if table is None:
        return _NOTHING
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
        facts: int,
    ) -> None:
        self._path = home.derived_path(name)
        self._kept_hours = home.kept_hours
        self._engine = engine
        self._name = name
        self._table = table
        goes_on = marks.query_sum == _sum(query(name))
        self._begins = marks.of_group if goes_on else None
        self._nows = marks.nows if goes_on else {}
        self._through = dict(through)
        self._ends = ends
        self._facts = facts

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
                Transaction(_QUERY, _sum(query(self._name))),
                Transaction(_FACTS, self._facts),
                *(Transaction(app_of(group), end) for group, end in self._ends.items()),
                *(Transaction(f"{app_of(group)}{_NOW}", now) for group, now in self._nows.items()),
            ],
        )

    def _written(self, sql: str, predicate: str | None) -> DeltaTable:
        """Replace the rows that fulfil the predicate, or all."""
        batches = self._engine.batches(sql)
        first = next(batches)
        rows = Rows(first.schema, chain([first], batches))
        with rows.written_to(self._path):
            write_deltalake(
                self._table or self._path,
                rows.reader,
                mode="overwrite",
                predicate=predicate,
                schema_mode="overwrite" if predicate is None else None,
                configuration=None if self._table else configuration(self._kept_hours),
                writer_properties=WRITER_PROPERTIES,
                commit_properties=self._commit,
            )
            return self._table or DeltaTable(self._path)

    def _with_nothing_new(self) -> DeltaTable:
        """Only say up to which entries the table is complete."""
        with delta_failures(self._path, "cannot be written"):
            table = self._table or DeltaTable(self._path)
            table.create_write_transaction(
                [], "append", table.schema(), commit_properties=self._commit
            )
            table.update_incremental()
            return table
