"""The options of the data source, and what they refuse."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: run make setup-spark")

from dledger_spark.errors import OptionInvalid
from dledger_spark.query.named_logs import open_all
from dledger_spark.query.source_options import EARLIEST, LATEST, OPTIONS, Place, read_options
from dledger_spark.source import DledgerDataSource


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"too": "5"}, r"^\[DLEDGER_OPTION_INVALID\] too='5': the options are path, paths, "),
        ({"table": "rows"}, "use one of entries, messages"),
        ({"subscribe": "t"}, "add table=messages"),
        ({"table": "messages", "subscribe": "t,,u"}, "names of topics with commas"),
        ({"checksums": "maybe"}, "use true or false"),
        ({"includeProperties": "1"}, "use true or false"),
        ({"failOnDataLoss": "no"}, "use true or false"),
        ({"minPartitions": "0"}, "use a number of 1 or more"),
        ({"partitionBytes": "1e6"}, "use a number of 1 or more"),
        ({"maxOffsetsPerTrigger": "-5"}, "use a number of 1 or more"),
        ({"maxBytesPerTrigger": "9" * 30}, "use a number of 1 or more"),
        ({"startingOffsets": "first"}, "use earliest, latest, an index, or JSON"),
        ({"startingOffsets": "-1"}, "use earliest, latest, an index, or JSON"),
        ({"startingOffsets": "{}"}, "use earliest, latest, an index, or JSON"),
        ({"startingOffsets": "[1]"}, "use earliest, latest, an index, or JSON"),
        ({"startingOffsets": '{"g": -3}'}, "-1 is the latest, -2 the earliest"),
        ({"startingOffsets": '{"g": true}'}, "-1 is the latest, -2 the earliest"),
        ({"startingOffsets": '{"g": "soon"}'}, "-1 is the latest, -2 the earliest"),
        ({"startingOffsets": "[" * 100_000}, "use earliest, latest, an index, or JSON"),
        ({"startingTimestamp": "yesterday"}, "milliseconds since 1970"),
        ({"endingTimestamp": "-1"}, "milliseconds since 1970"),
        ({"from": "1", "startingOffsets": "2"}, "from is given as well; use one"),
        ({"startingOffsets": "2", "startingTimestamp": "3"}, "startingOffsets is given as well"),
        ({"to": "1", "endingTimestamp": "2"}, "to is given as well; use one"),
        (
            {"table": "messages", "subscribe": "t", "subscribePattern": "u"},
            "subscribePattern is given as",
        ),
        ({"table": "messages", "subscribePattern": "("}, "no regular expression of Python"),
        ({"table": "messages", "subscribePattern": "x" * 1001}, "1000 characters at most"),
        ({"subscribePattern": "t"}, "add table=messages"),
        ({"path": "a", "paths": '["b"]'}, "paths is given as well; use one"),
        ({"paths": "[]"}, "give JSON of 1 to 64 paths"),
        ({"paths": '["a", 5]'}, "give JSON of 1 to 64 paths"),
        ({"startingOffsetsByTimestamp": '{"g": "soon"}'}, "milliseconds since 1970 by group"),
        ({"endingOffsetsByTimestamp": "5"}, "milliseconds since 1970 by group"),
        ({"startingOffsetsByTimestampStrategy": "latest"}, "it belongs to startingTimestamp"),
        (
            {"startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "earliest"},
            "use error or latest",
        ),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "no batch may have more"),
        ({"maxTriggerDelay": "5m"}, "it belongs to minOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "9", "maxTriggerDelay": "soon"}, "a time such as 30s"),
        ({"endingOffsets": "earliest"}, "a batch that ends there is empty"),
        ({"endingOffsets": '{"g": -2}'}, "a batch that ends there is empty"),
    ],
)
def test_a_wrong_option_is_one_line_that_names_it(options: dict[str, str], problem: str) -> None:
    with pytest.raises(OptionInvalid, match=problem) as caught:
        read_options(options)
    assert "\n" not in str(caught.value)
    # An unknown option is told together with the names of all others.
    assert len(str(caught.value)) < 400 + ("too" in options) * len(", ".join(OPTIONS))
    with pytest.raises(OptionInvalid):
        DledgerDataSource(options).schema()


@pytest.mark.parametrize(
    ("options", "streaming", "problem"),
    [
        ({"maxOffsetsPerTrigger": "5"}, False, "this is no stream"),
        ({"maxBytesPerTrigger": "5"}, False, "this is no stream"),
        ({"startingOffsets": "latest"}, False, "a batch that begins there is empty"),
        ({"to": "5"}, True, "a stream has no end"),
        ({"endingOffsets": "5"}, True, "a stream has no end"),
        ({"endingTimestamp": "5"}, True, "a stream has no end"),
        ({"pushFilters": "true"}, True, "gave wrong rows where a query reads a DataFrame twice"),
        ({"pushfilters": "false"}, False, "gave wrong rows where a query reads a DataFrame twice"),
        ({"from": "x"}, True, "use earliest, latest, an index"),
    ],
)
def test_an_option_for_the_other_kind_of_query_is_refused(
    options: dict[str, str], streaming: bool, problem: str
) -> None:
    with pytest.raises(OptionInvalid, match=problem):
        read_options(options, streaming=streaming)
    source = DledgerDataSource({"path": "p", **options})
    with pytest.raises(OptionInvalid, match=problem):
        (source.streamReader if streaming else source.reader)(source.schema())


def test_options_have_defaults() -> None:
    found = read_options({"PATH": " p ", "table": "", "subscribe": " "})
    assert (found.path, found.table, found.topics, found.starting) == (" p ", "entries", None, None)
    assert (found.max_rows, found.max_bytes, found.min_partitions) == (None,) * 3
    assert (found.checksums, found.include_properties, found.fail_on_data_loss) == (True,) * 3
    with pytest.raises(OptionInvalid, match="give the folder of a node"):
        open_all(read_options({}))


def test_places_are_words_indexes_groups_or_times() -> None:
    def starting(text: str) -> Place | None:
        return read_options({"startingOffsets": text}).starting

    assert starting("EARLIEST") == Place("startingOffsets", EARLIEST)
    assert starting("latest") == Place("startingOffsets", LATEST)
    assert starting("17") == Place("startingOffsets", 17)
    by_group = {"a": 5, "b": LATEST, "c": EARLIEST}
    found = starting('{"a": 5, "b": -1, "c": "earliest"}')
    assert found == Place("startingOffsets", of_group=by_group)
    found = read_options({"endingTimestamp": "1700000000000"}).ending
    assert found == Place("endingTimestamp", time_ms=1_700_000_000_000)
