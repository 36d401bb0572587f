"""Runs queries over the tables with Spark, which needs only their Parquet files."""

import shutil
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from dledger_spark.errors import QueryFailed
from dledger_spark.facts.fact_schemas import FACTS
from dledger_spark.local_path import SPARK_PATHS
from dledger_spark.tables.catalog import CatalogTable
from dledger_spark.tables.derived import VIEWS, query
from dledger_spark.tables.engine import BATCH_ROWS

# Spark sends a table to all workers if its files are small, and then the driver holds its rows. The
# tables' files are: six million rows of consumer_progress take 10 MB, and a gigabyte in memory. So
# that is decided by the sizes that shuffles have found.
_BY_FILES: Final = "spark.sql.autoBroadcastJoinThreshold"
_BY_ROWS: Final = "spark.sql.adaptive.autoBroadcastJoinThreshold"
_JOINS: Final = {_BY_FILES: "-1", _BY_ROWS: "10MB"}


class SparkEngine:
    """The tables as temporary views of a session that begins as a copy of the given one.

    So two engines may use one session at once, and its own views and settings stay. `batches` makes
    and removes the folder `spill`, which the driver and all executors share.
    """

    def __init__(self, session: Any, tables: Sequence[CatalogTable], spill: str) -> None:
        # Spark's own streams take this copy for their batches; `newSession` would lose settings.
        self._session = type(session)(session.sparkContext, session._jsparkSession.cloneSession())
        for name, value in _JOINS.items():
            self._session.conf.set(name, value)
        self._spill = spill
        register_tables(self._session, tables)

    def query(self, sql: str) -> pa.Table:
        try:
            return self._session.sql(sql).toArrow()
        except PySparkException as error:
            raise _failed(error) from None

    def define(self, name: str, sql: str) -> None:
        try:
            self._session.sql(sql).createOrReplaceTempView(name)
        except PySparkException as error:
            raise _failed(error) from None

    def add(self, name: str, files: Sequence[str], schema: Any) -> None:
        _register(self._session, name, files, schema)

    def batches(self, sql: str) -> Iterator[pa.RecordBatch]:
        """Yield batches through files: the driver may have less memory than they need."""
        try:
            frame = self._session.sql(sql)
            frame.write.mode("overwrite").parquet(self._spill)
            schema = to_arrow_schema(frame.schema, timezone="UTC")
            yield pa.RecordBatch.from_pylist([], schema)
            # Spark writes times in Parquet's old format of 96 bits.
            files = ds.ParquetFileFormat(
                read_options=ds.ParquetReadOptions(coerce_int96_timestamp_unit="us")
            )
            yield from ds.dataset(self._spill, schema=schema, format=files).to_batches(
                batch_size=BATCH_ROWS, batch_readahead=1, fragment_readahead=1
            )
        except PySparkException as error:
            raise _failed(error) from None
        except (pa.ArrowException, OSError) as error:
            raise QueryFailed(f"{self._spill} cannot be read: {error}") from None
        finally:
            shutil.rmtree(self._spill, ignore_errors=True)


def _failed(error: PySparkException) -> QueryFailed:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return QueryFailed(lines[0] if lines else type(error).__name__)


def register_tables(session: Any, tables: Sequence[CatalogTable]) -> None:
    """Let `session.sql("select ... from traffic")` find the tables."""
    for one in tables:
        _register(session, one.name, one.files, one.schema)
    if {one.name for one in tables}.issuperset(FACTS):
        for name in VIEWS:
            session.sql(query(name)).createOrReplaceTempView(name)


def frame_of(session: Any, files: Sequence[str], schema: Any) -> Any:
    """Return the DataFrame of some Parquet files."""
    of_spark = from_arrow_schema(schema)
    if files:
        return session.read.options(**SPARK_PATHS).schema(of_spark).parquet(*files)
    return session.createDataFrame([], of_spark)


def _register(session: Any, name: str, files: Sequence[str], schema: Any) -> None:
    frame_of(session, files, schema).createOrReplaceTempView(name)
