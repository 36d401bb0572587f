"""The first rows of a table, without Spark."""

from collections.abc import Sequence
from typing import Any, Final

import pyarrow.compute as pc

from dledger_spark.inflated_bodies import COLUMNS as INFLATED
from dledger_spark.inflated_bodies import inflated
from dledger_spark.log.readable_log import ReadableLog
from dledger_spark.scan import table_batches
from dledger_spark.schema import check_columns

# With small batches, few rows are decoded that are not shown.
_BATCH_BYTES: Final = 256 * 1024


def first_rows(
    ranges: Sequence[tuple[ReadableLog, range]],
    *,
    table: str,
    limit: int,
    topic: str | None = None,
    columns: Sequence[str] | None = None,
    fail_on_data_loss: bool = True,
    decompress: bool = False,
) -> list[dict[str, Any]]:
    """Return at most `limit` rows of ranges, one range after the other, as dicts.

    `table` is "entries" or "messages". With `decompress` bodies are inflated, and rows have a last
    column "body_problem". Without `columns`, rows have all of them.
    """
    names = check_columns(table, columns)
    if decompress:
        names = list(dict.fromkeys((*names, *INFLATED)))
    read = names if topic is None else list(dict.fromkeys((*names, "topic")))
    rows: list[dict[str, Any]] = []
    for log, entries in ranges:
        for part in log.parts(entries, fail_on_data_loss=fail_on_data_loss):
            for batch in table_batches(
                log,
                part,
                table,
                read,
                batch_bytes=_BATCH_BYTES,
                checksums=True,
                fail_on_data_loss=fail_on_data_loss,
            ):
                found = batch
                if topic is not None:
                    found = found.filter(pc.equal(found.column("topic"), topic))
                first = found.select(names).slice(0, limit - len(rows))
                for piece in inflated(first) if decompress else (first,):
                    rows += piece.to_pylist(maps_as_pydicts="lossy")
                if len(rows) >= limit:
                    return rows
    return rows
