"""The first rows of a table, without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from dledger_spark.acceptance import COLUMNS, Acceptance, without
from dledger_spark.inflated_bodies import COLUMNS as INFLATED
from dledger_spark.inflated_bodies import inflated
from dledger_spark.message_columns import message_batch
from dledger_spark.readable_log import ReadableLog
from dledger_spark.scan import check_columns
from dledger_spark.schema import MESSAGES

# A preview stops soon: with small batches it decodes few rows that it does not show.
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
    """At most `limit` rows of ranges, one range after the other, as dicts.

    Args:
        ranges: logs, and the entries to read of them.
        table: "entries" or "messages".
        limit: how many rows at most.
        topic: only messages of this topic.
        columns: names of the columns; by default all.
        fail_on_data_loss: see `ReadableLog.parts`.
        decompress: whether bodies are inflated; rows then have a last column "body_problem".
    """
    names = check_columns(table, columns)
    if decompress:
        names = list(dict.fromkeys((*names, *INFLATED)))
    rows: list[dict[str, Any]] = []
    for log, entries in ranges:
        for part in log.parts(entries, fail_on_data_loss=fail_on_data_loss):
            for batch in _batches(log, part, table, names, topic):
                first = batch.slice(0, limit - len(rows))
                for piece in inflated(first) if decompress else (first,):
                    rows += piece.to_pylist(maps_as_pydicts="lossy")
                if len(rows) >= limit:
                    return rows
    return rows


def _batches(
    log: ReadableLog, entries: range, table: str, names: list[str], topic: str | None
) -> Iterator[pa.RecordBatch]:
    state = None
    if log.group is not None:  # the topics of a log of Java's are not in it
        state = Acceptance(is_whole=entries.start == 0 and log.is_judged_whole)
    for batch in log.batches(entries, batch_bytes=_BATCH_BYTES, checksums=True):
        if table != MESSAGES:
            yield batch.select(names)
            continue
        found = message_batch(batch, list(dict.fromkeys((*names, *COLUMNS))))
        if state is not None:
            found = without(found, state.judge(batch, found))
        if topic is not None:
            found = found.filter(pc.equal(found.column("topic"), topic))
        yield found.select(names)
