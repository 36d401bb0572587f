"""The tables of a folder, by name."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from dledger_spark.errors import TablesInvalid
from dledger_spark.facts.fact_schemas import FACTS, LAST
from dledger_spark.local_path import files_of_delta
from dledger_spark.log.mark import Mark
from dledger_spark.tables.delta_files import reading, require_files, table_at
from dledger_spark.tables.derived import DERIVED, VIEWS, view_over
from dledger_spark.tables.table_home import TableHome


class CatalogTable(NamedTuple):
    """A table at one moment.

    Attributes:
        name: its name in queries.
        path: its folder.
        table: the Delta table.
        files: its Parquet files. (Tables here have neither deletion vectors nor partitions nor
            renamed columns, so the files alone are the table.)
    """

    name: str
    path: str
    table: DeltaTable
    files: list[str]

    @property
    def schema(self) -> Any:
        import pyarrow as pa  # noqa: PLC0415

        return pa.schema(self.table.schema().to_arrow())


def catalog(home: TableHome, *, derived: bool = True) -> list[CatalogTable]:
    """Return all tables of a folder, as they are now.

    Raises:
        TablesInvalid: there are none, or one cannot be read.
    """
    paths = {name: home.fact_path(name) for name in FACTS}
    if derived:
        paths |= {name: home.derived_path(name) for name in DERIVED}
    found = []
    for name, path in paths.items():
        table = table_at(path)
        if table is not None:
            found.append(catalog_table(name, path, table))
    if not found:
        raise no_tables(home)
    if LAST not in {one.name for one in found}:
        problem = f"the table {LAST}, which is made last, is not there"
        remedy = "run `dledger-spark tables` again, which makes what is missing"
        raise TablesInvalid(home.path, f"{problem}: {remedy}")
    return found


def entries_of(tables: Iterable[CatalogTable]) -> CatalogTable:
    """Return the table that `catalog` requires."""
    return next(one for one in tables if one.name == LAST)


def mark_in(entries: CatalogTable, group: str | None, index: int) -> Mark | None:
    """Return the mark of an entry that the table of entries has; None if it does not have it.

    Raises TablesInvalid.
    """
    with reading(entries.path):
        files = ds.dataset(entries.files, schema=entries.schema, format="parquet")
        rows = files.to_table(
            columns=["raft_group", "term", "chain_crc"], filter=pc.field("index") == index
        ).to_pylist()
    marks = (Mark(row["term"], row["chain_crc"]) for row in rows if row["raft_group"] == group)
    return next(marks, None)


def no_tables(home: TableHome) -> TablesInvalid:
    made = "make them with `dledger-spark tables --path LOG --out OUT`, and name OUT"
    return TablesInvalid(home.path, f"holds no tables: {made}")


def registration(tables: Sequence[CatalogTable], program: str, schema: str) -> Iterator[str]:
    """Yield statements that register tables, for "spark" or "duckdb", in a schema; a line each.

    Those of `VIEWS` are views over the facts, if all of these are there.
    """
    views = VIEWS if {one.name for one in tables}.issuperset(FACTS) else ()
    if program == "spark":
        name = f"`{schema.replace('`', '``')}`"
        yield f"CREATE DATABASE IF NOT EXISTS {name};"
        for one in tables:
            # Spark reads a location as a path, not as a URL.
            path = one.path.replace("\\", "\\\\").replace("'", "\\'")
            yield f"CREATE TABLE IF NOT EXISTS {name}.`{one.name}` USING delta LOCATION '{path}';"
        for view in views:
            text = view_over(view, lambda fact: f"{name}.`{fact}`")
            yield f"CREATE OR REPLACE VIEW {name}.`{view}` AS {text};"
        return
    name = '"' + schema.replace('"', '""') + '"'
    yield "INSTALL delta; LOAD delta;"
    yield f"CREATE SCHEMA IF NOT EXISTS {name};"
    for one in tables:
        path = one.path.replace("'", "''")
        yield f"CREATE OR REPLACE VIEW {name}.\"{one.name}\" AS FROM delta_scan('{path}');"
    for view in views:
        text = view_over(view, lambda fact: f'{name}."{fact}"')
        yield f'CREATE OR REPLACE VIEW {name}."{view}" AS {text};'


def catalog_table(name: str, path: str, opened: DeltaTable | None = None) -> CatalogTable:
    """Return the table at a path, as it is now, or as it was opened. Raises TablesInvalid."""
    with reading(path):
        table = opened or DeltaTable(path)
        files = files_of_delta(path, table.file_uris())
    require_files(path, table)
    return CatalogTable(name, path, table, files)
