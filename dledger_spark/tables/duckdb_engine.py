"""Runs queries over the tables with DuckDB: without Java, and fast on one machine.

Its memory is bounded; more data goes to files in the temporary folder.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import duckdb
import pyarrow as pa

from dledger_spark.errors import QueryFailed
from dledger_spark.facts.fact_schemas import FACTS
from dledger_spark.interruptions import interrupted_by
from dledger_spark.local_path import pattern_for_duckdb
from dledger_spark.scratch_folder import scratch_folder
from dledger_spark.tables.catalog import CatalogTable
from dledger_spark.tables.delta_files import require_sound
from dledger_spark.tables.derived import VIEWS, query
from dledger_spark.tables.engine import BATCH_ROWS
from dledger_spark.tables.touched import quoted

DEFAULT_MEMORY_MIB: Final = 2048
# DuckDB needs about this for each thread; with less it gets fewer threads.
THREAD_MEMORY_MIB: Final = 256
# The files of a table with less are read once, into memory. Else each of many views over it opens
# them again when a query is planned. Ten times as much is still little beside the memory's limit.
HELD_BYTES: Final = 256 * 1024

# A column of many tables, and a keyword of SQL: DuckDB's error points behind it.
_BARE_OFFSET: Final = re.compile(r"""(?<![\w."'])offset(?![\w"'])""", re.IGNORECASE)
_OFFSET_HINT: Final = 'write the column offset as "offset", or with its table: m.offset'

# What DuckDB raises if it cannot read a file, and at times else.
_OF_FILES: Final = (duckdb.IOException, duckdb.InvalidInputException, RuntimeError, OSError)

# Functions of Spark's that DuckDB has under another name.
_FUNCTIONS: Final = (
    "create macro unix_millis(moment) as epoch_ms(moment)",
    "create macro timestamp_millis(ms) as (make_timestamp(ms * 1000) at time zone 'UTC')",
    "create macro get_json_object(json, path) as json_extract_string(json, path)",
    "create macro explode(words) as unnest(words)",
    "create macro sequence(first, last, step) as generate_series(first, last, step)",
)


class DuckdbEngine:
    """A connection with the tables. See `duckdb_engine`."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection
        self._defined: dict[str, str] = {}
        self._held: set[str] = set()
        self._files: dict[str, Sequence[str]] = {}

    def define(self, name: str, sql: str) -> None:
        if self._defined.get(name) == sql:
            return  # DuckDB looks up what a view reads when the view is read
        with self._failures(f"{name} {sql}"):
            self.connection.execute(f'create or replace temp view "{name}" as {sql}')
        self._defined[name] = sql

    def add(self, name: str, files: Sequence[str], schema: Any) -> None:
        if name in self._held:  # a view cannot replace it
            self._held.remove(name)
            self.connection.execute(f'drop table "{name}"')
        if not files:
            self.connection.register(name, schema.empty_table())
            return
        self._files[name] = files
        listed = ", ".join(quoted(pattern_for_duckdb(path)) for path in files)
        sql = f"select * from read_parquet([{listed}])"
        if not self._hold(name, files, sql):
            self.define(name, sql)

    def _hold(self, name: str, files: Sequence[str], sql: str) -> bool:
        """Read a table into memory, if it is small and can be read; return whether it was."""
        try:
            if sum(map(os.path.getsize, files)) > HELD_BYTES:
                return False
            self._defined.pop(name, None)
            self.connection.execute(f'drop view if exists "{name}"')
            self.connection.execute(f'create temp table "{name}" as {sql}')
        except (duckdb.Error, OSError):
            return False  # the view tells why the table cannot be read
        self._held.add(name)
        return True

    def query(self, sql: str) -> pa.Table:
        with self._failures(sql):
            found: Any = self.connection.sql(sql)
            return pa.table({}) if found is None else found.to_arrow_table()

    def batches(self, sql: str) -> Iterator[pa.RecordBatch]:
        with self._failures(sql):
            found: Any = self.connection.sql(sql)
            reader = found.to_arrow_reader(BATCH_ROWS)
            yield pa.RecordBatch.from_pylist([], reader.schema)
            yield from reader

    @contextmanager
    def _failures(self, sql: str) -> Iterator[None]:
        """Raise QueryFailed if a query fails; TablesInvalid if that is due to a damaged file."""
        try:
            yield
        except (duckdb.Error, pa.ArrowException, OSError, RuntimeError) as error:
            if isinstance(error, _OF_FILES) or type(error) is duckdb.Error:
                for name, files in self._files.items():
                    if name.removeprefix("all_").removeprefix("old_") in sql:
                        require_sound(files)
            # The rest points into the text of the query, over several lines.
            reason = " ".join(str(error).partition("\n\nLINE ")[0].split())
            if isinstance(error, duckdb.ParserException) and _BARE_OFFSET.search(sql):
                reason += f"; {_OFFSET_HINT}"
            raise QueryFailed(reason) from None


@contextmanager
def duckdb_engine(
    tables: Sequence[CatalogTable], memory_mib: int = DEFAULT_MEMORY_MIB
) -> Iterator[DuckdbEngine]:
    """Yield an engine over the tables of a folder. `query` needs memory beyond `memory_mib`."""
    with engine_over({}, memory_mib) as made:
        for one in tables:
            made.add(one.name, one.files, one.schema)
        if {one.name for one in tables}.issuperset(FACTS):
            for name in VIEWS:
                made.define(name, query(name))
        yield made


@contextmanager
def engine_over(
    tables: Mapping[str, pa.Table], memory_mib: int = DEFAULT_MEMORY_MIB
) -> Iterator[DuckdbEngine]:
    with scratch_folder() as folder, duckdb.connect(":memory:") as connection:
        connection.execute(f"set memory_limit = '{memory_mib}MiB'")
        threads = max(1, min(os.cpu_count() or 1, memory_mib // THREAD_MEMORY_MIB))
        connection.execute(f"set threads = {threads}")
        connection.execute(f"set temp_directory = {quoted(folder)}")
        # Otherwise whole results are in memory before their first rows are read.
        connection.execute("set preserve_insertion_order = false")
        connection.execute("set timezone = 'UTC'")
        for function in _FUNCTIONS:
            connection.execute(function)
        for name, table in tables.items():
            connection.register(name, table)
        with interrupted_by(connection.interrupt):
            yield DuckdbEngine(connection)
