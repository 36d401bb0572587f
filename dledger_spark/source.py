"""The data source "dledger" of Spark: the entries of logs, or the messages in them, as a table.

    spark.dataSource.register(DledgerDataSource)
    spark.read.format("dledger").option("path", FOLDER).load()

Options: `path`; `table` ("entries", "messages"); `from` and `to` (indexes, inclusive; `to` may be
"end"); `partitionBytes`, `minPartitions`; `checksums`, `failOnDataLoss` ("true", "false"). Spark
asks a Python source for all columns, whatever a query needs, so a query that needs few should name
them: `.schema("topic string, offset bigint")`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from dledger_spark.acceptance import Run
from dledger_spark.errors import OptionInvalid
from dledger_spark.log_folder import LogFolder, open_log
from dledger_spark.log_range import END, MAX_PIECE_BYTES, readable, resolve_range, share_out
from dledger_spark.log_set import open_logs
from dledger_spark.scan import beginning, check_columns, judge, read_range
from dledger_spark.schema import ENTRIES, MESSAGES, SCHEMAS

NAME: Final = "dledger"
# Enough for the cores of a laptop, unless the log is tiny.
DEFAULT_MIN_PARTITIONS: Final = 8
OPTIONS: Final = (
    *("path", "table", "from", "to", "partitionBytes", "minPartitions"),
    *("checksums", "failOnDataLoss"),
)
_KNOWN: Final = frozenset(name.lower() for name in OPTIONS)


@dataclass
class IndexRange(InputPartition):
    """The entries of one log that a task reads, both ends included, and the records it skips."""

    path: str
    first: int
    last: int
    refused: list[Run]


class DledgerDataSource(DataSource):
    """A batch source over the logs of one or several groups. Reads committed entries only."""

    @classmethod
    def name(cls) -> str:
        """The name after `format`."""
        return NAME

    def schema(self) -> StructType:
        """All columns of the table.

        Raises:
            OptionInvalid: an option or the table is unknown.
        """
        return from_arrow_schema(SCHEMAS[_table(self.options)])

    def reader(self, schema: StructType) -> DledgerReader:
        """A reader of the columns in `schema`."""
        return DledgerReader(dict(self.options), schema)


class DledgerReader(DataSourceReader):
    """Plans in the driver and reads in the tasks; each task opens the folder itself."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        # Spark does not preserve case in the names of options.
        self._options = {key.lower(): value for key, value in options.items()}
        self._table = _table(self._options)
        self._columns = _columns(schema, self._table)
        self._checksums = _flag(self._options, "checksums", default=True)
        self._fail_on_data_loss = _flag(self._options, "failOnDataLoss", default=True)
        if not self._options.get("path"):
            raise OptionInvalid("path", "", "give the folder of a node, or above it")

    def partitions(self) -> list[InputPartition]:
        """Ranges of about equal size. The commit indexes are read here, once for all tasks."""
        logs = open_logs(self._options["path"]).logs
        first, last = self._options.get("from"), self._options.get("to")
        if len(logs) > 1:
            _refuse_index("from", first)
            _refuse_index("to", last)
        return [
            piece for log in logs for piece in self._pieces(log, resolve_range(log, first, last))
        ]

    def _pieces(self, log: LogFolder, entries: range) -> Iterator[IndexRange]:
        piece_bytes = _count(self._options, "partitionBytes", MAX_PIECE_BYTES)
        min_pieces = _count(self._options, "minPartitions", DEFAULT_MIN_PARTITIONS)
        pieces = [
            piece
            for part in readable(log, entries, fail_on_data_loss=self._fail_on_data_loss)
            for piece in share_out(log, part, piece_bytes, min_pieces)
        ]
        if self._table == MESSAGES:
            refused = [judged.refused for judged in judge(log, pieces, partial(beginning, log))]
        else:
            refused = [[] for _ in pieces]
        for piece, runs in zip(pieces, refused, strict=True):
            yield IndexRange(log.path, piece.start, piece.stop - 1, runs)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of one range."""
        if not isinstance(partition, IndexRange):
            return iter(())  # without ranges Spark makes one partition of its own
        return read_range(
            open_log(partition.path),
            range(partition.first, partition.last + 1),
            table=self._table,
            columns=self._columns,
            checksums=self._checksums,
            refused=partition.refused,
        )


def _refuse_index(option: str, value: str | None) -> None:
    if value and value.strip().lower() != END:
        expected = "an index is one group's, and the path holds the logs of several: name one log"
        raise OptionInvalid(option, value, expected)


def _table(options: Mapping[str, str]) -> str:
    for key in options:
        if key.lower() not in _KNOWN:
            raise OptionInvalid(key, options[key], f"the options are {', '.join(OPTIONS)}")
    table = options.get("table", ENTRIES).lower()
    check_columns(table, None)
    return table


def _columns(schema: StructType, table: str) -> list[str]:
    """The columns of a schema, which may have some of the table's columns in any order."""
    names = check_columns(table, schema.names)
    known = {field.name: field.dataType for field in from_arrow_schema(SCHEMAS[table]).fields}
    for field in schema.fields:
        if field.dataType != known[field.name] or not field.nullable:
            wanted = known[field.name].simpleString()
            expected = f"the column is {wanted}, and may be null as far as Spark knows"
            raise OptionInvalid(f"schema of {field.name}", field.dataType.simpleString(), expected)
    return names


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name.lower(), str(default)).lower()
    if text not in {"true", "false"}:
        raise OptionInvalid(name, text, "use true or false")
    return text == "true"


def _count(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name.lower(), str(default))
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise OptionInvalid(name, text, "use a number of 1 or more")
    return int(text)
