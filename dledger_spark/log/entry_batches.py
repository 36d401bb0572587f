"""Reads the entries of a range of a log in a folder as Arrow batches.

Files are not mapped: if a mapped file is cut short, its readers are killed, where `pread` allows a
one-line error. Reading from the page cache is many times faster than the steps after it.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dledger_spark.entries.entry_columns import (
    HEADER_BYTES,
    MAX_ENTRY_BYTES,
    EntryMismatch,
    Positions,
    entry_batch,
)
from dledger_spark.entries.entry_sums import check_sums
from dledger_spark.errors import LogDamaged, OptionInvalid, RangeUnavailable
from dledger_spark.log.entry_positions import positions_by_hop, positions_by_index
from dledger_spark.log.log_folder import HEADER_FIELDS, LogFolder, Segment, open_file
from dledger_spark.log.log_range import gaps_in

# The approximate length of a batch of entries: it fits the caches of a CPU's core, and makes the
# fixed cost of a batch small. One entry may be longer.
BATCH_BYTES: Final = 2 * 1024 * 1024
MAX_BATCH_BYTES: Final = 512 * 1024 * 1024  # Arrow's offsets in a batch end at 2 GiB
# One pread reads a whole batch, and the kernel returns at most 2 GiB at once.
assert MAX_BATCH_BYTES + MAX_ENTRY_BYTES < 2**31 - 4096


def entry_batches(
    log: LogFolder, entries: range, *, batch_bytes: int, checksums: bool, bodies: bool = True
) -> Iterator[pa.RecordBatch]:
    """Yield the table of entries of a range that `ReadableLog.parts` returned.

    Without `bodies` it lacks that column, and the sums of bodies are not checked.

    Raises:
        OptionInvalid: `batch_bytes` is out of range.
        LogDamaged: an entry is damaged, or missing. All earlier batches are right.
        DataLost: a file is missing.
        RangeUnavailable: retention has removed the first entries.
        SegmentGone: retention removes a file meanwhile.
    """
    if not 0 < batch_bytes <= MAX_BATCH_BYTES:
        raise OptionInvalid("batch_bytes", str(batch_bytes), f"use 1 to {MAX_BATCH_BYTES}")
    index, chain = entries.start, None
    if entries and index < log.first_index:
        problem = f"retention has removed all before {log.first_index}; start there"
        raise RangeUnavailable(log.path, index, entries.stop - 1, problem)
    gaps = gaps_in(log, entries)
    stop = max(gaps[0].first, index) if gaps else entries.stop
    for at, segment in enumerate(log.segments):
        last = log.last_in(at, stop - 1)
        if segment.first_index <= index <= last:
            if index == entries.start:
                chain = _chain_before(log, at, index)
            reader = _SegmentReader(log, segment, batch_bytes, checksums, bodies, chain)
            yield from reader.batches(index, last)
            chain = reader.chain
            index = last + 1
    if gaps:
        raise gaps[0].error()
    if index < entries.stop:
        raise LogDamaged(f"{log.path}/data", 0, f"no file holds entry {index}")


def _chain_before(log: LogFolder, at: int, index: int) -> int | None:
    """Return the chain sum of the entry before `index`, which is in segment number `at`.

    None if that entry cannot be read: it is outside of the range, so it may be damaged.
    """
    if index == log.first_index:
        return log.before_begin_chain
    segment = log.segments[at]
    if index == segment.first_index:
        if at == 0 or not log.is_followed(at - 1):
            return None
        segment = log.segments[at - 1]
    with suppress(LogDamaged):
        for places in (
            positions_by_index(log, segment, index - 1, index - 1),
            positions_by_hop(segment, index - 1, index - 1),
        ):
            for place in places:
                with open_file(segment.path) as file:
                    raw = os.pread(file, HEADER_BYTES, int(place[0]) - segment.start)
                if len(raw) == HEADER_BYTES:
                    header = HEADER_FIELDS.unpack(raw)
                    if header[2] == index - 1:
                        return int(header[6])
    return None


class _SegmentReader:
    """Reads a range of one segment, by its index files as far as they are right."""

    def __init__(
        self,
        log: LogFolder,
        segment: Segment,
        batch_bytes: int,
        checksums: bool,
        bodies: bool,
        chain: int | None,
    ) -> None:
        self._log = log
        self._segment = segment
        self._batch_bytes = batch_bytes
        self._checksums = checksums
        self._bodies = bodies
        self.chain = chain  # chain sum of the entry before; None if it is unknown
        self._index = 0
        self._pos: int | None = None  # of the entry `_index`, once it is certain
        self._term = 0

    def batches(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        self._index = first
        with open_file(self._segment.path) as file:
            by_index = positions_by_index(self._log, self._segment, first, last)
            try:
                yield from self._read_all(file, by_index)
            except EntryMismatch as mismatch:
                if mismatch.sealed:
                    raise self._damaged(mismatch) from None
            if self._index > last:
                return
            known = None if self._pos is None else (self._index, self._pos)
            by_hop = positions_by_hop(self._segment, self._index, last, known)
            try:
                yield from self._read_all(file, by_hop)
            except EntryMismatch as mismatch:
                raise self._damaged(mismatch) from None

    def _read_all(self, file: int, pieces: Iterator[Positions]) -> Iterator[pa.RecordBatch]:
        for positions in pieces:
            if self._pos is not None and positions[0] != self._pos:
                raise EntryMismatch(0, "the index leaves a gap")
            for piece in _cut(positions, self._batch_bytes):
                yield from self._read_sound(file, piece)

    def _read_sound(self, file: int, positions: Positions) -> Iterator[pa.RecordBatch]:
        """Yield the entries of a batch up to the first one that is damaged.

        Raises:
            EntryMismatch: behind these; its row is 0.
        """
        while True:
            try:
                yield self._read(file, positions)
            except EntryMismatch as mismatch:
                if not mismatch.row:
                    raise
                yield from self._read_sound(file, positions[: mismatch.row + 1])
                positions = positions[mismatch.row :]
            else:
                return

    def _read(self, file: int, positions: Positions) -> pa.RecordBatch:
        base = int(positions[0])
        size = int(positions[-1]) - base
        content = os.pread(file, size, base - self._segment.start)
        if len(content) < size:
            raise EntryMismatch(len(positions) - 2, "the file is shorter than it was")
        starts = positions - base
        indexes = np.arange(self._index, self._index + len(positions) - 1)
        group, bodies = self._log.group, self._bodies
        batch = entry_batch(
            content, starts, positions[:-1], indexes, self._term, group, bodies=bodies
        )
        if self._checksums:
            found = batch.column("body") if bodies else None
            unchecked = self._log.unchecked_through
            check_sums(content, starts, found, indexes, unchecked, self.chain)
        self._index += len(batch)
        self._pos = base + size
        self._term = batch.column("term")[-1].as_py()
        self.chain = batch.column("chain_crc")[-1].as_py()
        return batch

    def _damaged(self, mismatch: EntryMismatch) -> LogDamaged:
        index = self._index + mismatch.row
        places: Any = next(positions_by_hop(self._segment, index, index))
        return LogDamaged(
            self._segment.path,
            int(places[0]) - self._segment.start,
            f"entry {index}: {mismatch.problem}",
            index,
        )


def _cut(positions: Positions, batch_bytes: int) -> Iterator[Positions]:
    """Yield runs of whole entries of at most `batch_bytes`, or of one longer entry."""
    at, rows = 0, len(positions) - 1
    while at < rows:
        end = int(np.searchsorted(positions, positions[at] + batch_bytes, side="right")) - 1
        end = max(end, at + 1)
        yield positions[at : end + 1]
        at = end
