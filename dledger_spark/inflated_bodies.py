"""Inflates the bodies of messages, within bounds. Pure.

Producers compress large bodies by zlib, LZ4 or ZSTD, and set a bit of the system flag. A body that
cannot be inflated, or would be too long, becomes null, and a column has the reason: one message of
a broken producer must not end a query over all others.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dledger_spark.errors import PackageMissing
from remoting.message.errors import CompressionMissing, MessageMalformed
from remoting.message.record import COMPRESSED_FLAG, MAX_BODY_BYTES, MessageRecord, body_of

BODY_PROBLEM: Final = "body_problem"
# The columns of the table of messages that `inflated` needs.
COLUMNS: Final = ("body", "system_flag")
# The inflated bodies in memory, besides one of MAX_BODY_BYTES.
BATCH_BYTES: Final = 64 * 1024 * 1024


def inflated(
    messages: pa.RecordBatch,
    *,
    max_body_bytes: int = MAX_BODY_BYTES,
    batch_bytes: int = BATCH_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Yield the messages with inflated bodies, and a column "body_problem", null if there is none.

    Args:
        messages: rows with the columns COLUMNS.
        max_body_bytes: the longest inflated body.
        batch_bytes: a batch ends with the body that exceeds this.

    Raises:
        PackageMissing: a body is compressed by LZ4 or ZSTD, whose library is not installed.
    """
    flags = messages.column("system_flag").to_numpy()
    compressed = np.flatnonzero(flags & COMPRESSED_FLAG).tolist()
    start, size = 0, 0
    found: dict[int, bytes | None] = {}
    problems: dict[int, str] = {}
    for row in compressed:
        stored = messages.column("body")[row].as_py()
        record = MessageRecord(topic="", body=stored, system_flag=int(flags[row]))
        try:
            body = body_of(record, max_body_bytes)
        except CompressionMissing as missing:
            raise PackageMissing(missing.library, "compression") from None
        except MessageMalformed as malformed:
            found[row], problems[row] = None, malformed.reason
            continue
        found[row] = body
        size += len(body)
        if size > batch_bytes:
            yield _with(messages.slice(start, row + 1 - start), start, found, problems)
            start, size = row + 1, 0
            found, problems = {}, {}
    if start < len(messages) or not len(messages):
        yield _with(messages.slice(start), start, found, problems)


def _with(
    messages: pa.RecordBatch, start: int, found: dict[int, bytes | None], problems: dict[int, str]
) -> pa.RecordBatch:
    """Return rows, numbered from `start`, with other bodies and with problems."""
    rows = len(messages)
    bodies = messages.column("body")
    if found:
        places = np.arange(rows)
        places[np.array([row - start for row in found])] = rows + np.arange(len(found))
        both = pa.concat_arrays([bodies, pa.array(found.values(), pa.binary())])
        bodies = both.take(pa.array(places))
    told: Any = pa.nulls(rows, pa.string())
    if problems:
        told = pa.array([problems.get(start + row) for row in range(rows)], pa.string())
    schema = messages.schema.append(pa.field(BODY_PROBLEM, pa.string()))
    columns = [
        bodies if name == "body" else messages.column(name) for name in messages.schema.names
    ]
    return pa.RecordBatch.from_arrays([*columns, told], schema=schema)
