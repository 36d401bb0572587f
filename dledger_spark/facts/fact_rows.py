"""Gathers rows of the tables of facts, and converts them to Arrow batches."""

from typing import Any

import pyarrow as pa

from dledger_spark.facts.fact_schemas import FACTS
from dledger_spark.schema import FIRST_MS, LAST_MS


class FactRows:
    """Rows by table. Times are milliseconds since 1970; out of range they become null."""

    def __init__(self, raft_group: str | None) -> None:
        self._raft_group = raft_group
        self._rows: dict[str, list[tuple[Any, ...]]] = {table: [] for table in FACTS}

    def add(self, table: str, *values: Any) -> None:
        """Add a row: the columns after `raft_group`."""
        self._rows[table].append(values)

    def take(self) -> dict[str, pa.RecordBatch]:
        """Remove and return the rows so far; tables without rows are left out."""
        found = {
            table: self._batch(FACTS[table], rows) for table, rows in self._rows.items() if rows
        }
        for rows in self._rows.values():
            rows.clear()
        return found

    def _batch(self, schema: pa.Schema, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
        arrays = [pa.repeat(pa.scalar(self._raft_group, pa.string()), len(rows))]
        columns = zip(*rows, strict=True)
        for field, column in zip(list(schema)[1:], columns, strict=True):
            if pa.types.is_timestamp(field.type):
                arrays.append(pa.array(map(_in_us, column), pa.int64()).cast(field.type))
            else:
                arrays.append(pa.array(column, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _in_us(ms: int | None) -> int | None:
    return ms * 1000 if ms is not None and FIRST_MS <= ms <= LAST_MS else None
