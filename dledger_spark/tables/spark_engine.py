"""Answers queries over the tables with Spark, which needs no more than their Parquet files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema

from dledger_spark.errors import QueryFailed
from dledger_spark.tables.catalog import CatalogTable


class SparkEngine:
    """A session that knows the tables as temporary views.

    Args:
        session: the session.
        tables: the tables, as they are now.
    """

    def __init__(self, session: Any, tables: Sequence[CatalogTable]) -> None:
        self._session = session
        register_tables(session, tables)

    def query(self, sql: str) -> pa.Table:
        """The rows of a query. Raises QueryFailed."""
        try:
            return self._session.sql(sql).toArrow()
        except PySparkException as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            raise QueryFailed(lines[0] if lines else type(error).__name__) from None


def register_tables(session: Any, tables: Sequence[CatalogTable]) -> None:
    """Let `session.sql("select ... from traffic")` find the tables."""
    for one in tables:
        schema = from_arrow_schema(one.schema)
        if one.files:
            frame = session.read.schema(schema).parquet(*one.files)
        else:
            frame = session.createDataFrame([], schema)
        frame.createOrReplaceTempView(one.name)
