"""A log in the folder of a node, as the data source reads it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dledger_spark.entries.entry_columns import Positions
from dledger_spark.errors import FolderNotShared, LogDamaged
from dledger_spark.log.entry_batches import BATCH_BYTES, entry_batches
from dledger_spark.log.entry_positions import positions_by_hop, positions_by_index
from dledger_spark.log.log_folder import LogFolder, Segment, open_log
from dledger_spark.log.log_range import entries_behind, gaps_in, readable, resolve_range, share_out
from dledger_spark.log.mark import NO_CHAIN, NO_TERM, UNKNOWN, Mark, mark_of
from dledger_spark.log.queued_entries import QueuedEntries
from dledger_spark.log.queued_log import queued_entries
from dledger_spark.log_set import open_logs


@dataclass(frozen=True, slots=True)
class FolderOrigin:
    """The folder of a node."""

    path: str

    def open(self) -> FolderLog:
        """Open its log, in a task.

        Raises:
            FolderNotShared: this machine does not see the folder.
            LogDamaged: the hard-state record cannot be read.
        """
        # The driver has planned with the folder. Executors may run on other machines.
        if not os.path.isdir(f"{self.path}/data"):
            raise FolderNotShared(self.path, os.uname().nodename)
        return FolderLog(open_log(self.path))


def open_folders(path: str) -> list[FolderLog]:
    """The log of each group below a path. Raises as `log_set.open_logs`."""
    return [FolderLog(folder) for folder in open_logs(path).logs]


@dataclass(frozen=True, slots=True)
class FolderLog:
    """See `readable_log.ReadableLog`."""

    folder: LogFolder

    @property
    def origin(self) -> FolderOrigin:
        """Its folder."""
        return FolderOrigin(self.folder.path)

    @property
    def name(self) -> str:
        """The path of the folder."""
        return self.folder.path

    @property
    def group(self) -> str | None:
        """The group of the node."""
        return self.folder.group

    @property
    def first_index(self) -> int:
        """The first entry kept."""
        return self.folder.first_index

    @property
    def committed(self) -> int | None:
        """The commit index on record, a lower bound."""
        return self.folder.committed

    @property
    def unrecorded(self) -> int:
        """Entries behind the commit index on record, which a node writes four times a second."""
        committed = self.folder.committed
        return 0 if committed is None else entries_behind(self.folder, committed)

    @property
    def is_judged_whole(self) -> bool:
        """Whether no entry is Java's: its topics are not in the log."""
        return self.folder.unchecked_through < 0

    def resolve(self, first: str | int | None, last: str | int | None) -> range:
        """See `log_range.resolve_range`."""
        return resolve_range(self.folder, first, last)

    def parts(self, entries: range, *, fail_on_data_loss: bool) -> list[range]:
        """See `log_range.readable`."""
        return readable(self.folder, entries, fail_on_data_loss=fail_on_data_loss)

    def share_out(self, entries: range, piece_bytes: int, min_pieces: int) -> list[range]:
        """See `log_range.share_out`."""
        return share_out(self.folder, entries, piece_bytes, min_pieces)

    def stop_within(self, entries: range, max_bytes: int) -> int:
        """See `ReadableLog.stop_within`; the range is not empty."""
        log = self.folder
        left = max_bytes
        for at, segment in enumerate(log.segments):
            last = log.last_in(at, entries.stop - 1)
            first = max(entries.start, segment.first_index)
            if first <= last:
                stop, left = _stop_in(log, segment, first, last, left)
                if stop <= last:
                    return max(stop, entries.start + 1)
        return entries.stop

    def mark(self, index: int) -> Mark | None:
        """See `ReadableLog.mark`."""
        log = self.folder
        if index == log.first_index - 1:
            term, chain = log.before_begin_term, log.before_begin_chain
            return Mark(NO_TERM if term is None else term, chain or NO_CHAIN)
        if index < 0:
            return UNKNOWN
        one = range(index, index + 1)
        if index < log.first_index or gaps_in(log, one):
            return None
        try:
            batch = next(entry_batches(log, one, batch_bytes=BATCH_BYTES, checksums=False))
        except LogDamaged:
            # Either the log has not come so far here, or the reader of the next entry, which looks
            # for this one as well, will say that it is damaged.
            return None
        return mark_of(batch)

    def batches(
        self, entries: range, *, batch_bytes: int, checksums: bool
    ) -> Iterator[pa.RecordBatch]:
        """See `ReadableLog.batches`."""
        return entry_batches(self.folder, entries, batch_bytes=batch_bytes, checksums=checksums)

    def queued(self, entries: range) -> Iterator[QueuedEntries]:
        """See `ReadableLog.queued`."""
        return queued_entries(self.folder, entries)


def _stop_in(
    log: LogFolder, segment: Segment, first: int, last: int, max_bytes: int
) -> tuple[int, int]:
    """Where `max_bytes` end among the entries first..last, and how many bytes remain behind.

    The first number is last + 1 if they go further.
    """
    index = first
    for positions in _positions(log, segment, first, last):
        fitting = int(np.searchsorted(positions, positions[0] + max_bytes, side="right")) - 1
        index += fitting
        if fitting < len(positions) - 1:
            return index, 0
        max_bytes -= int(positions[-1] - positions[0])
    return index, max_bytes


def _positions(log: LogFolder, segment: Segment, first: int, last: int) -> Iterator[Positions]:
    """Where entries begin, by the index as far as it goes."""
    for positions in positions_by_index(log, segment, first, last):
        yield positions
        first += len(positions) - 1
    if first <= last:
        yield from positions_by_hop(segment, first, last)
