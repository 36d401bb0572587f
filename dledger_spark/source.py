"""The data source "dledger" of Spark: the entries of logs, or the messages in them, as a table.

    register(spark)
    spark.read.format("dledger").option("path", FOLDER).load()
    spark.readStream.format("dledger").option("path", FOLDER).load()

`source_options` has the options. Spark asks a Python source for all columns, whatever a query
needs, so a query that needs few should name them: `.schema("topic string, offset bigint")`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from dledger_spark.errors import OptionInvalid, PackageMissing

try:
    from dledger_spark.spark_version import FOR_BATCHES, FOR_STREAMS, require_spark

    require_spark(FOR_BATCHES, "the data source")
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StringType, StructType
except ModuleNotFoundError as missing:
    raise PackageMissing(str(missing.name)) from None

from dledger_spark.inflated_bodies import BODY_PROBLEM
from dledger_spark.log.readable_log import warn_of_unrecorded
from dledger_spark.query.named_logs import open_all
from dledger_spark.query.record_judge import RecordJudge
from dledger_spark.query.session_cores import tell_cores
from dledger_spark.query.source_options import SourceOptions, read_options
from dledger_spark.query.source_plan import (
    batch_entries,
    is_open,
    plan,
    read_piece,
    require_topics,
)
from dledger_spark.query.told_errors import told, told_rows
from dledger_spark.schema import SCHEMAS, check_columns

if TYPE_CHECKING:  # earlier versions of pyspark, without these readers, lack these modules
    from dledger_spark.query.stream_source import DledgerStreamReader

NAME: Final = "dledger"
_PROPERTIES: Final = "properties"


def register(session: Any) -> None:
    """Register the source in a session of classic Spark (not Connect), so that it uses all cores.

    `session.dataSource.register(DledgerDataSource)` does so too, but the source then makes tasks
    for the cores of the driver's machine.
    """
    tell_cores(session)
    session.dataSource.register(DledgerDataSource)


class DledgerDataSource(DataSource):
    """A source over the logs of one or several groups. Reads committed entries only."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return NAME

    @told
    def schema(self) -> StructType:
        """Return the columns of the table. Raises OptionInvalid."""
        return _schema(read_options(self.options))

    @told
    def reader(self, schema: StructType) -> DledgerReader:
        """Return a reader of the columns in `schema`."""
        options = read_options(self.options, streaming=False)
        return DledgerReader(options, _columns(schema, options))

    @told
    def streamReader(self, schema: StructType) -> DledgerStreamReader:  # noqa: N802  # Spark names it
        """Return a reader of a stream of the columns in `schema`.

        Raises:
            SparkTooOld: pyspark is older than 4.2.
        """
        require_spark(FOR_STREAMS, "a stream")
        from dledger_spark.query.stream_source import DledgerStreamReader  # noqa: PLC0415

        options = read_options(self.options, streaming=True)
        return DledgerStreamReader(options, _columns(schema, options))


class DledgerReader(DataSourceReader):
    """Plans in the driver and reads in the tasks; each task opens its log itself."""

    def __init__(self, options: SourceOptions, columns: list[str]) -> None:
        self._options = options
        self._columns = columns

    @told
    def partitions(self) -> list[InputPartition]:
        """Return ranges of about equal size. The commit indexes are read here, once for all
        tasks.
        """
        options = self._options
        judge = RecordJudge(fail_on_data_loss=options.fail_on_data_loss)
        found = list(batch_entries(open_all(options), options))
        warn_of_unrecorded(log for log, entries in found if is_open(log, entries, options))
        pieces: list[InputPartition] = [
            piece
            for log, entries in found
            for piece in plan(log, entries, entries.start, options, judge)
        ]
        require_topics(judge, options, [log for log, _ in found])
        return pieces

    @told_rows
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_piece(partition, self._options, self._columns, self._options.topics)


def _schema(options: SourceOptions) -> StructType:
    schema = from_arrow_schema(SCHEMAS[options.table])
    if options.decompress:
        schema = schema.add(BODY_PROBLEM, StringType())
    if not options.include_properties:
        return StructType([field for field in schema.fields if field.name != _PROPERTIES])
    return schema


def _columns(schema: StructType, options: SourceOptions) -> list[str]:
    """Return the columns of a schema, which may have some of the table's columns in any order."""
    made = {BODY_PROBLEM} if options.decompress else set()
    check_columns(options.table, [name for name in schema.names if name not in made])
    names = list(schema.names)
    known = {field.name: field.dataType for field in _schema(options).fields}
    for field in schema.fields:
        if field.name not in known:
            raise OptionInvalid("includeProperties", "false", "the schema has that column")
        if field.dataType != known[field.name] or not field.nullable:
            wanted = known[field.name].simpleString()
            expected = f"the column is {wanted}, and may be null as far as Spark knows"
            raise OptionInvalid(f"schema of {field.name}", field.dataType.simpleString(), expected)
    return names
