"""Copies the tables of a folder to another place, such as an object store, each row exactly once.

The folder stays the place where the tables are made: it has the lock and the states of the fold.
The copy is Delta tables alone. A commit of a table of facts there says, as here, up to which entry
of each log it is complete, in the commit that has the rows. So a run that is killed at any moment
and started again neither loses nor doubles a row.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from dledger_spark.errors import OptionInvalid, TablesInvalid
from dledger_spark.facts.fact_schemas import FACTS, LAST
from dledger_spark.local_path import local_path
from dledger_spark.tables.catalog import CatalogTable, entries_of, mark_in
from dledger_spark.tables.delta_files import (
    SMALL_FILES_MAX,
    WHOLE_FILE_BYTES,
    WRITER_PROPERTIES,
    Rows,
    configuration,
    delta_failures,
    reading,
)
from dledger_spark.tables.engine import BATCH_ROWS
from dledger_spark.tables.fact_table import app_of
from dledger_spark.tables.table_home import DERIVED_FOLDER, FACTS_FOLDER, TableHome

# In the metadata of commits of the table of entries: the last entry of each log.
_MARKS: Final = "dledger.marks"
# Commits that are searched for it: others put files together.
_COMMITS: Final = 100
_DERIVED_APP: Final = "dledger/derived"


class Target(NamedTuple):
    """Where to publish: a URL, and Delta's options of its store."""

    url: str
    options: dict[str, str]
    kept_hours: int

    def table(self, folder: str, name: str) -> tuple[str, DeltaTable | None]:
        """Return a table's URL, and the table if there is one. Raises TablesInvalid."""
        url = f"{self.url.rstrip('/')}/{folder}/{name}"
        with delta_failures(url, "cannot be read"):
            if DeltaTable.is_deltatable(url, self.options):
                return url, DeltaTable(url, storage_options=self.options)
        return url, None


def publish(
    home: TableHome,
    tables: Sequence[CatalogTable],
    target: Target,
    on_table: Callable[[str], None] = lambda _table: None,
) -> dict[str, int]:
    """Copy what is new; return the number of rows written, by table.

    The caller has `held` the folder, so that one process publishes it at a time.

    Raises:
        TablesInvalid: the place cannot be written, has the tables of another log, or is in the
            folder itself.
    """
    _check_apart(home, target)
    groups = home.groups()
    _check_same(tables, target, groups)
    written = {}
    # The table of entries comes last among the facts: its end counts for all.
    for one in sorted(tables, key=lambda table: (table.name not in FACTS, table.name == LAST)):
        on_table(one.name)
        put = _put_facts if one.name in FACTS else _put_derived
        written[one.name] = put(one, target, groups)
    return written


def published_at(tables: Sequence[CatalogTable], url: str) -> list[CatalogTable]:
    """Return tables with the places of their copies below a URL as their paths."""
    at = url.rstrip("/")
    folders = {one.name: FACTS_FOLDER if one.name in FACTS else DERIVED_FOLDER for one in tables}
    return [one._replace(path=f"{at}/{folders[one.name]}/{one.name}") for one in tables]


def _put_facts(one: CatalogTable, target: Target, groups: Sequence[str | None]) -> int:
    url, there = target.table(FACTS_FOLDER, one.name)
    wanted, ends = None, {}
    for group in groups:
        end = one.table.transaction_version(app_of(group))
        begin = 0 if there is None else there.transaction_version(app_of(group)) or 0
        if end is None or end <= begin:
            continue
        ends[group] = end
        of_group = pc.field("raft_group").is_null() if group is None else None
        of_group = pc.field("raft_group") == group if of_group is None else of_group
        lacking = of_group & (pc.field("index") >= begin) & (pc.field("index") < end)
        wanted = lacking if wanted is None else wanted | lacking
    if wanted is None:
        return 0
    rows = Rows(one.schema, _batches(one, wanted))
    metadata = {_MARKS: json.dumps(_marks(one, ends))} if one.name == LAST else {}
    with rows.written_to(url):
        write_deltalake(
            url if there is None else there,
            rows.reader,
            mode="append",
            storage_options=target.options,
            configuration=configuration(target.kept_hours) if there is None else None,
            writer_properties=WRITER_PROPERTIES,
            commit_properties=CommitProperties(
                app_transactions=[Transaction(app_of(group), end) for group, end in ends.items()],
                custom_metadata=metadata,
            ),
        )
        table = DeltaTable(url, storage_options=target.options)
        if len(table.file_uris()) >= SMALL_FILES_MAX:
            table.optimize.compact(target_size=WHOLE_FILE_BYTES, max_concurrent_tasks=1)
            _vacuum(table, target)
    return rows.count


def _put_derived(one: CatalogTable, target: Target, _groups: Sequence[str | None]) -> int:
    url, there = target.table(DERIVED_FOLDER, one.name)
    # The versions of a table that was made again begin at 0 again.
    app, version = f"{_DERIVED_APP}/{one.table.metadata().id}", one.table.version() + 1
    if there is not None and there.transaction_version(app) == version:
        return 0
    rows = Rows(one.schema, _batches(one, None))
    with rows.written_to(url):
        write_deltalake(
            url if there is None else there,
            rows.reader,
            mode="overwrite",
            schema_mode="overwrite",
            storage_options=target.options,
            configuration=configuration(target.kept_hours) if there is None else None,
            writer_properties=WRITER_PROPERTIES,
            commit_properties=CommitProperties(app_transactions=[Transaction(app, version)]),
        )
        _vacuum(DeltaTable(url, storage_options=target.options), target)
    return rows.count


def _vacuum(table: DeltaTable, target: Target) -> None:
    table.vacuum(target.kept_hours, dry_run=False, enforce_retention_duration=False)


def _batches(one: CatalogTable, wanted: Any) -> Iterator[pa.RecordBatch]:
    with reading(one.path):
        files = ds.dataset(one.files, schema=one.schema, format="parquet")
        yield from files.to_batches(
            filter=wanted, batch_size=BATCH_ROWS, batch_readahead=1, fragment_readahead=1
        )


def _marks(one: CatalogTable, ends: Mapping[str | None, int]) -> dict[str, list[int]]:
    """Return index, term and chain sum of the last entry of each log."""
    marks = {group: mark_in(one, group, end - 1) for group, end in ends.items()}
    return {group or "": [ends[group] - 1, *mark] for group, mark in marks.items() if mark}


def _check_apart(home: TableHome, target: Target) -> None:
    """Refuse a place in the tables' folder, whose tables would replace themselves."""
    try:
        place = os.path.realpath(local_path("target", target.url))
    except OptionInvalid:
        return  # on no disk of this machine
    own = os.path.realpath(home.path)
    if os.path.commonpath([place, own]) == own:
        raise TablesInvalid(target.url, "is the tables' own folder, or in it: name another place")


def _check_same(
    tables: Sequence[CatalogTable], target: Target, groups: Sequence[str | None]
) -> None:
    """Refuse a place whose last published entry is another one here."""
    entries = entries_of(tables)
    url, there = target.table(FACTS_FOLDER, entries.name)
    if there is None:
        return
    with delta_failures(url, "cannot be read"):
        told = [commit[_MARKS] for commit in there.history(_COMMITS) if _MARKS in commit]
    for group in groups:
        for marks in told:
            mark = json.loads(marks).get(group or "")
            if mark is not None:
                here = mark_in(entries, group, mark[0])
                if here is not None and [*here] != mark[1:]:
                    problem = f"was published from another log: entry {mark[0]} is another one"
                    raise TablesInvalid(url, f"{problem}; name another place")
                break
