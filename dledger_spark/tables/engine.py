"""What answers queries over the tables: DuckDB or Spark."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa


class Engine(Protocol):
    """What answers queries over the tables."""

    def query(self, sql: str) -> pa.Table:
        """The rows of a query. Raises QueryFailed."""
        ...
