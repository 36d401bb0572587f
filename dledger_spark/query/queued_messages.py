"""The messages among entries, some without reading the entries. Pure except for the reading.

Consume queues have topic, queue, offset and place of a message. A query that needs no more, and no
sums, gets these from them. A query for some topics reads only the entries with their messages.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dledger_spark.entries.entry_columns import EntryMismatch, Positions
from dledger_spark.log.queued_entries import QueuedEntries
from dledger_spark.query.source_options import TopicChoice
from dledger_spark.records.acceptance import Run, accepted_messages
from dledger_spark.records.message_columns import message_batch
from dledger_spark.schema import MESSAGE_SCHEMA

# The columns of the table of messages that queues and index files have.
KNOWN_COLUMNS: Final = frozenset(
    {"raft_group", "index", "topic", "queue", "offset", "physical_offset"}
)
# Reading a larger share of a log than this entry by entry takes longer than reading all of it.
_MAX_SHARE_ALONE: Final = 0.5


def queued_messages(
    stretch: QueuedEntries,
    refused: Sequence[Run],
    columns: Sequence[str],
    topics: TopicChoice | None,
    *,
    checksums: bool,
) -> list[pa.RecordBatch] | None:
    """Return the messages of a stretch, by its queues; None if all entries have to be read.

    Messages that only the log has come last. `refused` are the refused records. Without `topics`,
    `columns` are some of `KNOWN_COLUMNS`. `checksums`: check the sums of entries that are read.
    """
    is_known = not checksums and KNOWN_COLUMNS.issuperset(columns)
    numbers = None if topics is None else _numbers(stretch, topics)
    known = [_known(stretch, columns, numbers)] if is_known else []
    rows = stretch.others
    if not is_known and numbers is not None:
        wanted = stretch.rows[np.isin(stretch.topic_numbers, numbers)]
        rows = np.union1d(rows, wanted)
        if stretch.bytes_of(rows) > _MAX_SHARE_ALONE * stretch.bytes_of_all:
            return None
    if not len(rows):
        return known
    try:
        entries = stretch.read(rows, checksums=checksums)
    except EntryMismatch:
        return None
    return [*known, messages_of(entries, refused, columns, topics)]


def messages_of(
    entries: pa.RecordBatch,
    refused: Sequence[Run],
    columns: Sequence[str],
    topics: TopicChoice | None,
) -> pa.RecordBatch:
    """Return the messages among entries, without the refused ones.

    With topics, only their messages; entries without these are not decoded.
    """
    if topics is None:
        return accepted_messages(entries, refused, columns)
    found = message_batch(entries, ("index", "topic"))
    names = found.column("topic").unique().to_pylist()
    wanted = pa.array(topics.of(names), pa.string())
    indexes = found.filter(pc.is_in(found.column("topic"), wanted)).column("index")
    of_topics = entries.filter(pc.is_in(entries.column("index"), indexes))
    read = list(dict.fromkeys((*columns, "topic")))
    messages = accepted_messages(of_topics, refused, read)
    # An entry may hold records of several topics.
    return messages.filter(pc.is_in(messages.column("topic"), wanted)).select(columns)


def _numbers(stretch: QueuedEntries, topics: TopicChoice) -> list[int]:
    chosen = set(topics.of(stretch.topics))
    return [number for number, topic in enumerate(stretch.topics) if topic in chosen]


def _known(
    stretch: QueuedEntries, columns: Sequence[str], numbers: list[int] | None
) -> pa.RecordBatch:
    """Return the messages of the entries that queues have completely; of the topics `numbers` only.

    None of them was refused, or it would be in no queue.
    """
    is_other = np.zeros(len(stretch.entries), np.bool_)
    is_other[stretch.others] = True
    kept = ~is_other[stretch.rows]
    if numbers is not None:
        kept &= np.isin(stretch.topic_numbers, numbers)
    batch = pa.RecordBatch.from_arrays(
        [_column(stretch, name) for name in columns],
        schema=pa.schema([MESSAGE_SCHEMA.field(name) for name in columns]),
    )
    return batch if kept.all() else batch.filter(pa.array(kept))


def _column(stretch: QueuedEntries, name: str) -> Any:
    """Return one of `KNOWN_COLUMNS` for each record."""
    match name:
        case "raft_group":
            return pa.repeat(pa.scalar(stretch.group, pa.string()), len(stretch.rows))
        case "topic":
            names = pa.array(stretch.topics, pa.string())
            return names.take(pa.array(stretch.topic_numbers))
        case "queue":
            values: Positions = stretch.queues
        case "offset":
            values = stretch.offsets
        case "index":
            values = stretch.rows + stretch.entries.start
        case _:
            values = stretch.places
    return pa.array(values.astype(MESSAGE_SCHEMA.field(name).type.to_pandas_dtype()))
