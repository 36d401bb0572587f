"""Rows of the tables of facts while they are gathered, and as Arrow batches."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from dledger_spark.facts.fact_schemas import FACTS

# The range of a TimestampType: the years 1 to 9999, in milliseconds since 1970.
_FIRST_MS = -62_135_596_800_000
_LAST_MS = 253_402_300_799_999


class FactRows:
    """Rows by table. Times are milliseconds since 1970; out of range they become null.

    Args:
        raft_group: the group of the log.
    """

    def __init__(self, raft_group: str | None) -> None:
        self._raft_group = raft_group
        self._columns: dict[str, list[list[Any]]] = {}

    def add(self, table: str, *values: Any) -> None:
        """Add a row: all columns behind `raft_group`."""
        columns = self._columns.get(table)
        if columns is None:
            columns = self._columns[table] = [[] for _ in FACTS[table].names[1:]]
        for column, value in zip(columns, values, strict=True):
            column.append(value)

    def take(self) -> dict[str, pa.RecordBatch]:
        """The rows so far, which are then forgotten; without the tables that have none."""
        found = {
            table: self._batch(FACTS[table], columns) for table, columns in self._columns.items()
        }
        self._columns = {}
        return found

    def _batch(self, schema: pa.Schema, columns: list[list[Any]]) -> pa.RecordBatch:
        rows = len(columns[0])
        groups = pa.array([self._raft_group], pa.string()).take(pa.array([0] * rows, pa.int32()))
        arrays = [groups]
        for field, column in zip(list(schema)[1:], columns, strict=True):
            if pa.types.is_timestamp(field.type):
                arrays.append(pa.array(map(_microseconds, column), pa.int64()).cast(field.type))
            else:
                arrays.append(pa.array(column, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _microseconds(ms: int | None) -> int | None:
    return ms * 1000 if ms is not None and _FIRST_MS <= ms <= _LAST_MS else None
