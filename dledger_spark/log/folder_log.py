"""A log in the folder of a node; see `readable_log.ReadableLog`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from dledger_spark.entries.entry_columns import Positions
from dledger_spark.errors import CommittedUnknown, FolderNotShared, LogDamaged, RangeUnavailable
from dledger_spark.log.entry_batches import BATCH_BYTES, entry_batches
from dledger_spark.log.entry_positions import positions_by_hop, positions_by_index, whole_entries
from dledger_spark.log.left_out import LeftOut, missing, unreadable, without
from dledger_spark.log.log_folder import LogFolder, Segment, open_log
from dledger_spark.log.log_range import (
    END,
    MAX_PIECES,
    MIN_PIECE_BYTES,
    START_THERE,
    end_of_log,
    gaps_in,
    index_option,
)
from dledger_spark.log.mark import NO_CHAIN, NO_TERM, UNKNOWN, Mark, mark_of
from dledger_spark.log.queued_entries import QueuedEntries
from dledger_spark.log.queued_log import queued_entries
from dledger_spark.log_set import open_logs


@dataclass(frozen=True, slots=True)
class FolderOrigin:
    path: str

    def open(self) -> FolderLog:
        """Open the log, in a task. Raises FolderNotShared, LogDamaged."""
        # The driver has found the folder. Executors may run on other machines.
        if not os.path.isdir(f"{self.path}/data"):
            raise FolderNotShared(self.path, os.uname().nodename)
        return FolderLog(open_log(self.path))


def open_folders(*paths: str) -> list[FolderLog]:
    """Return the log of each group below some paths. Raises what `log_set.open_logs` does."""
    return [FolderLog(folder) for folder in open_logs(*paths).logs]


@dataclass(frozen=True, slots=True)
class FolderLog:
    folder: LogFolder

    @property
    def origin(self) -> FolderOrigin:
        return FolderOrigin(self.folder.path)

    @property
    def name(self) -> str:
        return self.folder.path

    @property
    def group(self) -> str | None:
        return self.folder.group

    @property
    def first_index(self) -> int:
        return self.folder.first_index

    @property
    def committed(self) -> int | None:
        """The recorded commit index, a lower bound: a node records it four times a second."""
        return self.folder.committed

    @property
    def unrecorded(self) -> int:
        """The number of entries behind the recorded commit index.

        If the index file is right there, only these entries are read.
        """
        log, committed = self.folder, self.folder.committed
        if committed is None:
            return 0
        if log.segments and committed >= log.segments[-1].first_index:
            segment = log.segments[-1]
            for positions in positions_by_index(log, segment, committed, committed):
                count, _ = whole_entries(segment, (committed, int(positions[0])))
                if count:
                    return count - 1
        return max(0, end_of_log(log) - committed)

    @property
    def is_judged_whole(self) -> bool:
        """Whether no entry is Java's, whose topics are not in the log."""
        return self.folder.unchecked_through < 0

    def resolve(self, first: str | int | None, last: str | int | None) -> range:
        log = self.folder
        begin = log.first_index if first in (None, "") else index_option("from", first)
        if last in (None, ""):
            if log.committed is None:
                raise CommittedUnknown(log.path)
            end = log.committed
        elif isinstance(last, str) and last.strip().lower() == END:
            end = end_of_log(log)
        else:
            end = index_option("to", last)
            limit = end_of_log(log) if log.committed is None else log.committed
            if end > limit:
                what = "the log ends with" if log.committed is None else "committed is"
                problem = f"{what} {limit}; ask for less, or for to={END} (all, committed or not)"
                raise RangeUnavailable(log.path, begin, end, problem)
        if begin > end:
            return range(begin, begin)
        if begin < log.first_index:
            problem = f"the first entry kept is {log.first_index}; {START_THERE}"
            raise RangeUnavailable(log.path, begin, end, problem)
        return range(begin, end + 1)

    def parts(self, entries: range, *, fail_on_data_loss: bool) -> list[range]:
        if fail_on_data_loss and (gaps := gaps_in(self.folder, entries)):
            raise gaps[0].error()
        return without(entries, self.missing(entries))

    def missing(self, entries: range) -> list[LeftOut]:
        return missing(self.folder, entries)

    def unreadable(self, entries: range) -> list[LeftOut]:
        return unreadable(self.folder, entries)

    def share_out(self, entries: range, piece_bytes: int, min_pieces: int) -> list[range]:
        log = self.folder
        if not entries:
            return []
        # Bytes of the log before an index, at the borders of segments. In between, entries are
        # assumed to be equally long, which needs no reading.
        indexes, amounts = [entries.start], [0]
        for at, segment in enumerate(log.segments):
            last = log.last_in(at, entries.stop - 1)
            first = max(entries.start, segment.first_index)
            if first <= last:
                indexes.append(last + 1)
                amounts.append(amounts[-1] + _amount(log, segment, first, last))
        total = amounts[-1]
        size = max(1, min(piece_bytes, max(MIN_PIECE_BYTES, total // max(min_pieces, 1))))
        count = min(max(1, round(total / size)), len(entries), MAX_PIECES)
        cuts = np.interp(np.linspace(0, total, count + 1), amounts, indexes)
        borders = np.unique(np.rint(cuts).astype(np.int64)).tolist()
        return [range(first, stop) for first, stop in pairwise(borders)]

    def stop_within(self, entries: range, max_bytes: int) -> int:
        log = self.folder
        left = max_bytes
        for at, segment in enumerate(log.segments):
            last = log.last_in(at, entries.stop - 1)
            first = max(entries.start, segment.first_index)
            if first <= last:
                try:
                    stop, left = _stop_in(log, segment, first, last, left)
                except LogDamaged:  # to read it tells more, so let that find it
                    stop, left = last + 1, left - segment.size
                if stop <= last or left <= 0:
                    return max(stop, entries.start + 1)
        return entries.stop

    def mark(self, index: int) -> Mark | None:
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
            # Either the log does not reach this entry, or the reader of the next entry, which needs
            # this one too, raises that it is damaged.
            return None
        return mark_of(batch)

    def batches(
        self, entries: range, *, batch_bytes: int, checksums: bool, bodies: bool = True
    ) -> Iterator[pa.RecordBatch]:
        return entry_batches(
            self.folder, entries, batch_bytes=batch_bytes, checksums=checksums, bodies=bodies
        )

    def queued(self, entries: range) -> Iterator[QueuedEntries]:
        return queued_entries(self.folder, entries)


def _stop_in(
    log: LogFolder, segment: Segment, first: int, last: int, max_bytes: int
) -> tuple[int, int]:
    """Return where `max_bytes` end among the entries first..last, and how many bytes remain.

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
    """Yield where entries begin, by the index files as far as they go."""
    known = None
    for positions in positions_by_index(log, segment, first, last):
        yield positions
        first += len(positions) - 1
        known = first, int(positions[-1])
    if first <= last:
        yield from positions_by_hop(segment, first, last, known)


def _amount(log: LogFolder, segment: Segment, first: int, last: int) -> int:
    """Return the approximate size in bytes of the entries first..last of a segment."""
    begin = next(positions_by_index(log, segment, first, first), None)
    end = next(positions_by_index(log, segment, last, last), None)
    if begin is None or end is None or end[-1] <= begin[0]:
        return segment.size
    return int(end[-1] - begin[0])
