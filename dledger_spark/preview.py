"""The first rows of a table, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from dledger_spark.scan import arrow_batches
from dledger_spark.schema import MESSAGES

# A preview stops soon: with small batches it decodes few rows that it does not show.
_BATCH_BYTES: Final = 256 * 1024


def first_rows(
    path: str,
    first: str | None,
    last: str | None,
    *,
    table: str,
    limit: int,
    topic: str | None = None,
    columns: Sequence[str] | None = None,
    fail_on_data_loss: bool = True,
) -> list[dict[str, Any]]:
    """At most `limit` rows of a range, as dicts.

    Args:
        path: the folder of a log.
        first: see `log_range.resolve_range`.
        last: likewise.
        table: "entries" or "messages".
        limit: how many rows at most.
        topic: only messages of this topic.
        columns: names of the columns; by default all.
        fail_on_data_loss: see `scan.arrow_batches`.
    """
    rows: list[dict[str, Any]] = []
    for batch in arrow_batches(
        path,
        first,
        last,
        table=table,
        columns=columns,
        batch_bytes=_BATCH_BYTES,
        fail_on_data_loss=fail_on_data_loss,
    ):
        found: pa.RecordBatch = batch
        if table == MESSAGES and topic is not None:
            found = batch.filter(pc.equal(batch.column("topic"), topic))
        rows += found.slice(0, limit - len(rows)).to_pylist()
        if len(rows) >= limit:
            break
    return rows
