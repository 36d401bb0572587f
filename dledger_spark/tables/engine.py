"""What answers queries over the tables: DuckDB or Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa


class Engine(Protocol):
    """What answers queries over the tables."""

    def query(self, sql: str) -> pa.Table:
        """The rows of a query. Raises QueryFailed."""
        ...

    def batches(self, sql: str) -> Iterator[pa.RecordBatch]:
        """The same rows, a batch after the other, however many there are; one batch at least.

        Raises QueryFailed, at any batch.
        """
        ...
