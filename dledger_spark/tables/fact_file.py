"""A new Parquet file of a table of facts, which a later commit adds to the table.

A task of Spark writes it where it has the rows, so they go through no other process. Until the
commit no reader sees it. The file of a task that was lost is deleted like those of killed writers.
"""

from __future__ import annotations

import json
import os
import uuid
from datetime import datetime
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dledger_spark.tables.delta_files import delta_failures

# Rows come in the log's order, so a query by index or time reads few groups.
GROUP_ROWS: Final = 128 * 1024
# So many bytes of rows wait for the others of their group; messages are larger than events.
GROUP_BYTES: Final = 64 * 1024 * 1024
# Columns whose values repeat in a group; for others a dictionary is tried in vain.
_REPEATED: Final = frozenset(
    {
        *("raft_group", "topic", "consumer_group", "producer_group", "tags"),
        *("event", "source", "name", "store_host", "born_host"),
    }
)
# The columns by whose bounds readers skip files.
_BOUNDED: Final = ("raft_group", "index", "time", "store_time", "physical_offset", "position")


class FileWritten(NamedTuple):
    """A file, and its statistics as Delta's log has them. `changed_ms`: since 1970."""

    name: str
    size: int
    changed_ms: int
    rows: int
    statistics: str


class FactFile:
    """Gathers the rows of one table; `close` returns the file, None if there is no row.

    Raises TablesInvalid if it cannot be written.
    """

    def __init__(self, folder: str, schema: pa.Schema, first: int | None = None) -> None:
        """Only rows from the entry `first` on are written; None: all."""
        self._folder = folder
        self._schema = schema
        self._first = first
        self._name = f"part-{uuid.uuid4()}.zstd.parquet"
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._writer: Any = None
        self._rows = 0
        self._bounds: dict[str, list[Any]] = {}
        self._nulls: dict[str, int] = {}

    def add(self, rows: pa.RecordBatch) -> None:
        if self._first is not None:
            rows = rows.filter(pc.greater_equal(rows.column("index"), self._first))
        self._waiting.append(rows)
        self._waiting_rows += len(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_rows >= GROUP_ROWS or self._waiting_bytes >= GROUP_BYTES:
            self._write()

    def close(self) -> FileWritten | None:
        self._write()
        if self._writer is None:
            return None
        path = f"{self._folder}/{self._name}"
        with delta_failures(self._folder, "cannot be written"):
            self._writer.close()
            with open(path, "rb") as file:
                os.fsync(file.fileno())
            status = os.stat(path)
        statistics = {
            "numRecords": self._rows,
            "minValues": {name: _told(low) for name, (low, _) in self._bounds.items()},
            "maxValues": {name: _told(high) for name, (_, high) in self._bounds.items()},
            "nullCount": self._nulls,
        }
        changed_ms = status.st_mtime_ns // 1_000_000
        told = json.dumps(statistics)
        return FileWritten(self._name, status.st_size, changed_ms, self._rows, told)

    def _write(self) -> None:
        rows = pa.Table.from_batches(self._waiting, schema=self._schema)
        self._waiting = []
        self._waiting_rows = self._waiting_bytes = 0
        if not len(rows):
            return
        with delta_failures(self._folder, "cannot be written"):
            if self._writer is None:
                os.makedirs(self._folder, exist_ok=True)
                self._writer = pq.ParquetWriter(
                    f"{self._folder}/{self._name}",
                    self._schema,
                    compression="zstd",
                    use_dictionary=[name for name in self._schema.names if name in _REPEATED],
                )
            self._writer.write_table(rows, row_group_size=GROUP_ROWS)
        self._rows += len(rows)
        for name in _BOUNDED:
            if name in self._schema.names:
                self._bound(name, rows.column(name))

    def _bound(self, name: str, column: Any) -> None:
        self._nulls[name] = self._nulls.get(name, 0) + column.null_count
        bounds = pc.min_max(column)
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        if low is not None:
            known = self._bounds.setdefault(name, [low, high])
            self._bounds[name] = [min(known[0], low), max(known[1], high)]


def _told(value: Any) -> Any:
    return f"{value:%Y-%m-%dT%H:%M:%S.%f}Z" if isinstance(value, datetime) else value
