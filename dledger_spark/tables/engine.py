"""The interface of DuckDB and Spark as engines of queries over the tables."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa

# Rows in memory on their way to a table.
BATCH_ROWS: Final = 64 * 1024


class Engine(Protocol):
    def query(self, sql: str) -> pa.Table:
        """Return the rows of a query. Raises QueryFailed."""

    def batches(self, sql: str) -> Iterator[pa.RecordBatch]:
        """Yield the same rows in batches, however many there are; one batch at least.

        Raises QueryFailed, at any batch.
        """

    def define(self, name: str, sql: str) -> None:
        """Give a query a name in later ones, in place of an earlier query of that name.

        Raises QueryFailed.
        """

    def add(self, name: str, files: Sequence[str], schema: Any) -> None:
        """Let queries find a table of Parquet files, in place of an earlier one of its name."""
