"""Answers queries over the tables with DuckDB: no Java, and quick on one machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import duckdb
import pyarrow as pa

from dledger_spark.errors import QueryFailed
from dledger_spark.tables.catalog import CatalogTable

# Functions of Spark's that DuckDB has under another name.
_FUNCTIONS: Final = (
    "create macro unix_millis(moment) as epoch_ms(moment)",
    "create macro timestamp_millis(ms) as (make_timestamp(ms * 1000) at time zone 'UTC')",
    "create macro get_json_object(json, path) as json_extract_string(json, path)",
    "create macro explode(words) as unnest(words)",
)


class DuckdbEngine:
    """A connection that knows the tables. See `duckdb_engine`.

    Args:
        connection: the connection.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection

    def query(self, sql: str) -> pa.Table:
        """The rows of a query. Raises QueryFailed."""
        try:
            found: Any = self.connection.sql(sql)
            return pa.table({}) if found is None else found.to_arrow_table()
        except duckdb.Error as error:
            # What follows points into the text of the query, over several lines.
            told = str(error).partition("\n\nLINE ")[0]
            raise QueryFailed(" ".join(told.split())) from None


@contextmanager
def duckdb_engine(tables: Sequence[CatalogTable]) -> Iterator[DuckdbEngine]:
    """An engine over the tables of a folder, for as long as the block runs."""
    with engine_over(
        {one.name: one.schema.empty_table() for one in tables if not one.files}
    ) as made:
        for one in tables:
            if one.files:
                listed = ", ".join(_quoted(path) for path in one.files)
                made.connection.execute(
                    f'create view "{one.name}" as select * from read_parquet([{listed}])'
                )
        yield made


@contextmanager
def engine_over(tables: Mapping[str, pa.Table]) -> Iterator[DuckdbEngine]:
    """An engine over tables in memory, for as long as the block runs."""
    with duckdb.connect(":memory:") as connection:
        connection.execute("set timezone = 'UTC'")
        for function in _FUNCTIONS:
            connection.execute(function)
        for name, table in tables.items():
            connection.register(name, table)
        yield DuckdbEngine(connection)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
