"""The entries of a log as Arrow batches: no Spark, no lock, nothing written.

It does not map files: if a mapped file is cut short, its readers are killed, where a read gives a
one-line error. Reading from the page cache is many times faster than the steps after it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dledger_spark.acceptance import COLUMNS, Acceptance, Run, without
from dledger_spark.entry_columns import (
    HEADER_BYTES,
    MAX_ENTRY_BYTES,
    EntryMismatch,
    Positions,
    check_sums,
    entry_batch,
)
from dledger_spark.entry_positions import positions_by_hop, positions_by_index
from dledger_spark.errors import LogDamaged, OptionInvalid, RangeUnavailable
from dledger_spark.log_folder import (
    HEADER_FIELDS,
    LogFolder,
    OpenFile,
    Segment,
    open_file,
    open_log,
)
from dledger_spark.log_range import gaps_in, readable, resolve_range
from dledger_spark.message_columns import message_batch
from dledger_spark.schema import ENTRIES, MESSAGES, SCHEMAS, TABLES
from dledger_spark.unrecorded import warn_of_unrecorded_in

# The approximate length of a batch of entries: it fits the caches of a CPU's core, and the fixed
# cost of a batch is small beside it. One entry may be longer.
BATCH_BYTES: Final = 2 * 1024 * 1024
MAX_BATCH_BYTES: Final = 512 * 1024 * 1024  # Arrow's offsets in a batch end at 2 GiB


def arrow_batches(
    path: str | LogFolder,
    first: int | str | None = None,
    last: int | str | None = None,
    *,
    table: str = ENTRIES,
    columns: Sequence[str] | None = None,
    batch_bytes: int = BATCH_BYTES,
    checksums: bool = True,
    fail_on_data_loss: bool = True,
) -> Iterator[pa.RecordBatch]:
    """The entries first..last, or the messages in them.

    Args:
        path: the folder of a log, or the result of `open_log`.
        first: the first entry; None for the first one kept.
        last: the last entry; None for the commit index, "end" for all, committed or not.
        table: "entries" or "messages" (see `dledger_spark.schema` for the columns).
        columns: names of the wanted columns, in their order; by default all.
        batch_bytes: how much of the log goes into a batch.
        checksums: whether to check the two sums of each entry. Headers are always compared with
            their place and with one another.
        fail_on_data_loss: whether to raise if entries of the range are in no file; otherwise the
            iterator goes on behind them.

    Warns of `UnrecordedEntries` if no last entry is named, and the folder holds entries behind the
    commit index on record.

    Raises:
        DledgerSparkError: see `dledger_spark.errors`. All earlier batches are right.
    """
    log = path if isinstance(path, LogFolder) else open_log(path)
    names = check_columns(table, columns)
    entries = resolve_range(log, first, last)
    if last in (None, ""):
        warn_of_unrecorded_in(log)
    for part in readable(log, entries, fail_on_data_loss=fail_on_data_loss):
        acceptance = beginning(log, part)
        for batch in read_range(log, part, batch_bytes=batch_bytes, checksums=checksums):
            if table != MESSAGES:
                yield batch.select(names)
            elif acceptance is None:
                yield message_batch(batch, names)
            else:
                records = message_batch(batch, _with(names, COLUMNS))
                yield without(records, acceptance.judge(batch, records)).select(names)


def beginning(log: LogFolder, entries: range) -> Acceptance | None:
    """The state that judges records from the first entry of a range; None if none are judged.

    Logs of Java's brokers are not judged; a log that Java began does not have all its topics.
    """
    if log.group is None:
        return None
    return Acceptance(is_whole=entries.start == 0 and log.unchecked_through < 0)


def accepted_messages(
    entries: pa.RecordBatch, refused: Sequence[Run], names: Sequence[str]
) -> pa.RecordBatch:
    """The messages among entries, without the refused ones."""
    if not refused:
        return message_batch(entries, names)
    return without(message_batch(entries, _with(names, ("index",))), refused).select(names)


def _with(names: Sequence[str], others: Sequence[str]) -> list[str]:
    return list(dict.fromkeys((*names, *others)))


def read_range(
    log: LogFolder,
    entries: range,
    *,
    table: str = ENTRIES,
    columns: Sequence[str] | None = None,
    batch_bytes: int = BATCH_BYTES,
    checksums: bool = True,
    refused: Sequence[Run] = (),
) -> Iterator[pa.RecordBatch]:
    """`arrow_batches` of a range that `readable` returned, here or in another process.

    It does not judge the records again: `refused` comes from `Acceptance.judge`.
    """
    names = check_columns(table, columns)
    if not 0 < batch_bytes <= MAX_BATCH_BYTES:
        raise OptionInvalid("batch_bytes", str(batch_bytes), f"use 1 to {MAX_BATCH_BYTES}")
    for batch in _entry_batches(log, entries, batch_bytes, checksums):
        if table == MESSAGES:
            yield accepted_messages(batch, refused, names)
        else:
            yield batch.select(names)


def check_columns(table: str, columns: Sequence[str] | None) -> list[str]:
    """The names of the wanted columns.

    Raises:
        OptionInvalid: there is no such table, or it has no such column.
    """
    if table not in TABLES:
        raise OptionInvalid("table", table, f"use one of {', '.join(TABLES)}")
    known = SCHEMAS[table].names
    names = known if columns is None else list(columns)
    for name in names:
        if name not in known:
            raise OptionInvalid("column", name, f"the table of {table} has {', '.join(known)}")
    return names


def _entry_batches(
    log: LogFolder, entries: range, batch_bytes: int, checksums: bool
) -> Iterator[pa.RecordBatch]:
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
            reader = _SegmentReader(log, segment, batch_bytes, checksums, chain)
            yield from reader.batches(index, last)
            chain = reader.chain
            index = last + 1
    if gaps:
        raise gaps[0].error()
    if index < entries.stop:
        raise LogDamaged(f"{log.path}/data", 0, f"no file holds entry {index}")


def _chain_before(log: LogFolder, at: int, index: int) -> int | None:
    """The chain sum of the entry before `index`, which is in segment number `at`.

    None if that entry cannot be read: it is outside of the wanted range, so it may be damaged.
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
                    raw = os.pread(file.fileno(), HEADER_BYTES, int(place[0]) - segment.start)
                if len(raw) == HEADER_BYTES:
                    header = HEADER_FIELDS.unpack(raw)
                    if header[2] == index - 1:
                        return int(header[6])
    return None


class _SegmentReader:
    """Reads a range of one segment, by its index as far as the index is right."""

    def __init__(
        self,
        log: LogFolder,
        segment: Segment,
        batch_bytes: int,
        checksums: bool,
        chain: int | None,
    ) -> None:
        self._log = log
        self._segment = segment
        self._batch_bytes = batch_bytes
        self._checksums = checksums
        self.chain = chain  # sum of the entry before; None if it is not known
        self._index = 0
        self._pos: int | None = None  # of the entry `_index`, once it is certain
        self._term = 0

    def batches(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """The entries first..last."""
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

    def _read_all(self, file: OpenFile, pieces: Iterator[Positions]) -> Iterator[pa.RecordBatch]:
        for positions in pieces:
            if self._pos is not None and positions[0] != self._pos:
                raise EntryMismatch(0, "the index leaves a gap")
            for piece in _cut(positions, self._batch_bytes):
                yield self._read(file, piece)

    def _read(self, file: OpenFile, positions: Positions) -> pa.RecordBatch:
        base = int(positions[0])
        size = int(positions[-1]) - base
        content = os.pread(file.fileno(), size, base - self._segment.start)
        if len(content) < size:
            raise EntryMismatch(len(positions) - 2, "the file is shorter than it was")
        starts = positions - base
        indexes = np.arange(self._index, self._index + len(positions) - 1)
        batch = entry_batch(content, starts, positions[:-1], indexes, self._term, self._log.group)
        if self._checksums:
            unchecked = self._log.unchecked_through
            check_sums(content, starts, batch.column("body"), indexes, unchecked, self.chain)
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
        )


def _cut(positions: Positions, batch_bytes: int) -> Iterator[Positions]:
    """Runs of whole entries of at most `batch_bytes`, or of one longer entry."""
    at, rows = 0, len(positions) - 1
    while at < rows:
        end = int(np.searchsorted(positions, positions[at] + batch_bytes, side="right")) - 1
        end = max(end, at + 1)
        yield positions[at : end + 1]
        at = end


# One pread reads a whole batch, and the kernel returns at most 2 GiB at once.
assert MAX_BATCH_BYTES + MAX_ENTRY_BYTES < 2**31 - 4096
