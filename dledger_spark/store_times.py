"""Finds the entry at which a store time is reached."""

from __future__ import annotations

from typing import Final

from dledger_spark.errors import DataLost
from dledger_spark.message_columns import message_batch
from dledger_spark.readable_log import ReadableLog

# A search looks at some thirty places, and needs the first message of each.
_BATCH_BYTES: Final = 64 * 1024


def entry_at_time(log: ReadableLog, entries: range, time_ms: int) -> int:
    """The end of the entries whose messages were stored before `time_ms`.

    That is right behind the last such message, so entries that are no messages belong to the next
    one. Brokers never store a message with an earlier time than the one before; in a log where
    somebody else did, this is one of the places where the time is passed.

    Args:
        log: the log.
        entries: the entries to search; those that no file holds are passed over.
        time_ms: milliseconds since 1970.

    Returns:
        An index of `entries`, or the stop of them.
    """
    parts = _parts(log, entries)
    low, high = entries.start, entries.stop
    while low < high:
        middle = (low + high) // 2
        found = _first_message(log, parts, range(middle, high))
        if found is not None and found[1] < time_ms:
            low = found[0] + 1
        else:
            high = middle
    return low


def _parts(log: ReadableLog, entries: range) -> list[range]:
    """The entries that files hold: whether the others matter is not known before the search."""
    try:
        return log.parts(entries, fail_on_data_loss=True)
    except DataLost:
        return log.parts(entries, fail_on_data_loss=False)


def _first_message(log: ReadableLog, parts: list[range], entries: range) -> tuple[int, int] | None:
    """Index and store time, in milliseconds, of the first message; None if there is none."""
    for part in parts:
        inside = range(max(part.start, entries.start), min(part.stop, entries.stop))
        for batch in log.batches(inside, batch_bytes=_BATCH_BYTES, checksums=False):
            messages = message_batch(batch, ("index", "store_time")).drop_null()
            if len(messages):
                index, time = messages.slice(0, 1).columns
                return index[0].as_py(), time.cast("int64")[0].as_py() // 1000
    return None
