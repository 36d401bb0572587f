"""Spark's tables read runs of properties as the broker and its clients do."""

import pyarrow as pa

from dledger_spark.records.property_columns import PropertyColumns
from remoting.message.properties import decode_properties, shown_value
from tests.remoting.message.test_remoting_property_runs import NAMES, runs


def test_columns_of_properties_have_what_every_other_reader_finds() -> None:
    some = [run for run in runs(20_000) if b"\xff" not in run]
    columns = PropertyColumns(pa.array(some, pa.binary()))
    expected = [
        {name: shown_value(value) for name, value in decode_properties(run).items()} for run in some
    ]
    for name in NAMES:
        assert columns.column(name).to_pylist() == [pairs.get(name) for pairs in expected]
    assert [dict(pairs) for pairs in columns.map_column().to_pylist()] == expected
