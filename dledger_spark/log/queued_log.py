"""Finds the records of a log's entries in the consume queues beside it, and reads single entries.

The queues are used as far as they are known to be whole (see `queue_files`).
"""

import os
from collections.abc import Iterator
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from dledger_spark.entries.entry_columns import EntryMismatch, Positions, entry_batch
from dledger_spark.entries.entry_sums import check_sums
from dledger_spark.log.entry_positions import positions_by_index
from dledger_spark.log.log_folder import LogFolder, open_file
from dledger_spark.log.queue_files import QueueCursors, queue_folder, whole_before
from dledger_spark.log.queued_entries import QueuedEntries

# The entries of a stretch. If the queues do not suffice, all of them are read.
STRETCH_ENTRIES: Final = 8192


def queued_entries(log: LogFolder, entries: range) -> Iterator[QueuedEntries]:
    """Yield the stretches of a range that the queues have, from its beginning on.

    It ends, without an error, where the queues are not known to be whole, or do not agree with the
    index files, and where the index files end. It yields nothing for a log of Java's.
    """
    before = whole_before(log.path)
    if before < 0 or log.group is None or log.unchecked_through >= entries.start:
        return
    cursors: QueueCursors | None = None
    for first, positions in _stretches(log, entries):
        count = int(np.searchsorted(positions, before, side="right")) - 1
        if count <= 0:
            return
        if cursors is None:
            folder = queue_folder(log.path, before)
            if folder is None:
                return
            topics = folder.topics
            cursors = QueueCursors(folder, int(positions[0]))
        units = cursors.take_before(int(positions[count]))
        indexes = range(first, first + count)
        stretch = QueuedEntries(
            log.group, indexes, positions[: count + 1], topics, units, partial(read_alone, log)
        )
        if not stretch.agrees:
            return
        yield stretch
        if count < len(positions) - 1:
            return


def _stretches(log: LogFolder, entries: range) -> Iterator[tuple[int, Positions]]:
    """Yield the first index and the positions of entries, as far as the index files go."""
    index = entries.start
    for at, segment in enumerate(log.segments):
        last = log.last_in(at, entries.stop - 1)
        if segment.first_index <= index <= last:
            for positions in positions_by_index(log, segment, index, last):
                for cut in range(0, len(positions) - 1, STRETCH_ENTRIES):
                    piece = positions[cut : cut + STRETCH_ENTRIES + 1]
                    yield index, piece
                    index += len(piece) - 1
            if index <= last:
                return


def read_alone(
    log: LogFolder, indexes: Positions, begins: Positions, ends: Positions, *, checksums: bool
) -> pa.RecordBatch:
    """Read entries of one segment that need not be adjacent.

    `indexes` are rising, at least one; each entry is at begins[i]..ends[i] in the log.

    Raises:
        EntryMismatch: another entry is there, or it is damaged.
        SegmentGone: retention has removed the file.
    """
    heads = np.flatnonzero(np.append(True, begins[1:] != ends[:-1]))
    tails = np.append(heads[1:], len(indexes)) - 1
    spans = zip(begins[heads].tolist(), ends[tails].tolist(), strict=True)
    start = int(begins[0]) // log.segment_bytes * log.segment_bytes
    with open_file(f"{log.path}/data/{start:020d}") as file:
        content = b"".join(os.pread(file, end - begin, begin - start) for begin, end in spans)
    starts = np.append(0, np.cumsum(ends - begins))
    if len(content) != starts[-1]:
        raise EntryMismatch(0, "the file is shorter than it was")
    batch = entry_batch(content, starts, begins, indexes, 0, log.group)
    if checksums:
        unchecked = log.unchecked_through
        check_sums(content, starts, batch.column("body"), indexes, unchecked, None)
    return batch
