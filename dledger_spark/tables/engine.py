"""The interface of DuckDB and Spark as engines of queries over the tables."""

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa


class Engine(Protocol):
    def query(self, sql: str) -> pa.Table:
        """Return the rows of a query. Raises QueryFailed."""

    def batches(self, sql: str) -> Iterator[pa.RecordBatch]:
        """Yield the same rows in batches, however many there are; one batch at least.

        Raises QueryFailed, at any batch.
        """
