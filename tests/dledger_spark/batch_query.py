"""A batch query of Spark's source without Spark: its plan, then its tasks one after another."""

import pyarrow as pa

from dledger_spark.source import DledgerDataSource


def source_of(**options: object) -> DledgerDataSource:
    """Return the source; `from_` stands for the option "from"."""
    return DledgerDataSource({name.rstrip("_"): str(value) for name, value in options.items()})


def table_of(source: DledgerDataSource, columns: str | None = None) -> pa.Table:
    """Return what the tasks read; `columns` are the names of the wanted ones, by default all."""
    schema = source.schema()
    if columns is not None:
        schema = type(schema)([schema[name] for name in columns.split()])
    reader = source.reader(schema)
    batches = [batch for piece in reader.partitions() for batch in reader.read(piece)]
    assert all(batch.schema.names == schema.names for batch in batches)
    return pa.Table.from_batches(batches) if batches else pa.table({})
