"""Stretches of a log of which consume queues tell the records, so that most need not be read.

The queues name the records (see `queue_files`), and the index files say where entries lie. Where
both agree on every byte of an entry, its records are known without a look at it. All other entries
(commands, messages of deleted topics, what brokers refused) can be read one by one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dledger_spark.acceptance import QueueRun
from dledger_spark.entry_columns import (
    HEADER_BYTES,
    EntryMismatch,
    Positions,
    check_sums,
    entry_batch,
)
from dledger_spark.entry_positions import positions_by_index
from dledger_spark.log_folder import LogFolder, Segment, open_file
from dledger_spark.queue_files import (
    QueueCursors,
    QueueUnits,
    queue_folder,
    whole_before,
)

# So many entries are told at once. Where the queues do not suffice, all of them are read.
STRETCH_ENTRIES: Final = 8192


@dataclass(frozen=True)
class QueuedEntries:
    """Adjacent entries of one segment, and what the queues say of them.

    Attributes:
        entries: their indexes.
        topics: the names of all topics.
        units: the records of each queue, in one or several pieces; every one lies in one of the
            entries.
    """

    entries: range
    topics: Sequence[str]
    units: Sequence[QueueUnits]
    _log: LogFolder
    _segment: Segment
    _positions: Positions

    @property
    def runs(self) -> list[QueueRun]:
        """The records by queue, each queue once."""
        runs: dict[tuple[int, int], QueueRun] = {}
        for one in self.units:
            key, messages = (one.topic, one.queue), len(one.places)
            run = runs.get(key)
            if run is None:
                run = QueueRun(self.topics[one.topic], one.queue, one.first_offset, 0)
            runs[key] = run._replace(messages=run.messages + messages)
        return list(runs.values())

    @cached_property
    def places(self) -> Positions:
        """Where each record lies in the log, rising."""
        return self._places[self._order]

    @cached_property
    def rows(self) -> Positions:
        """Which entry each record is in, from 0 on."""
        begins = self._positions[:-1] + HEADER_BYTES
        places = self.places
        if len(places) == len(begins) and (places == begins).all():
            return np.arange(len(begins))
        rows: Positions = np.searchsorted(self._positions, places, side="right") - 1
        return rows

    @property
    def topic_numbers(self) -> Positions:
        """The topic of each record, by its number in `topics`."""
        return self._of_units([one.topic for one in self.units])

    @property
    def queues(self) -> Positions:
        """The queue of each record."""
        return self._of_units([one.queue for one in self.units])

    @property
    def offsets(self) -> Positions:
        """The offset of each record in its queue."""
        if not self.units:
            return np.empty(0, np.int64)
        offsets = np.concatenate(
            [np.arange(len(one.places)) + one.first_offset for one in self.units]
        )
        return offsets[self._order]

    @cached_property
    def others(self) -> Positions:
        """The entries of which the records do not make up the whole body, from 0 on."""
        covered = np.bincount(self.rows, self._sizes[self._order], len(self.entries))
        return np.flatnonzero(covered != np.diff(self._positions) - HEADER_BYTES)

    @cached_property
    def _places(self) -> Positions:
        return _joined([one.places for one in self.units])

    @cached_property
    def _sizes(self) -> Positions:
        return _joined([one.sizes for one in self.units])

    @cached_property
    def _order(self) -> Positions:
        """The records of all queues in the log's order."""
        order: Positions = np.argsort(self._places, kind="stable")
        return order

    def _of_units(self, values: list[int]) -> Positions:
        counts = [len(one.places) for one in self.units]
        return np.repeat(np.array(values, np.int64), counts)[self._order]

    @property
    def agrees(self) -> bool:
        """Whether every record lies within one entry, behind its header, and no two overlap."""
        places, rows = self.places, self.rows
        ends = places + self._sizes[self._order]
        # A record before the first entry has the row -1, and is compared with the end of the last.
        return bool(
            (self._sizes > 0).all()
            and (places[1:] >= ends[:-1]).all()
            and (places >= self._positions[rows] + HEADER_BYTES).all()
            and (ends <= self._positions[rows + 1]).all()
        )

    @property
    def group(self) -> str | None:
        """The group of the log."""
        return self._log.group

    @property
    def bytes_of_all(self) -> int:
        """How many bytes of the log the entries take."""
        return int(self._positions[-1] - self._positions[0])

    def bytes_of(self, rows: Positions) -> int:
        """How many bytes of the log some of the entries take."""
        return int((self._positions[rows + 1] - self._positions[rows]).sum())

    def read(self, rows: Positions, *, checksums: bool) -> pa.RecordBatch:
        """Some of the entries, as the table of entries has them.

        Args:
            rows: their numbers from 0 on, rising; at least one.
            checksums: see `entry_columns.check_sums`.

        Raises:
            EntryMismatch: another entry is there, or it is damaged.
            SegmentGone: retention has removed the file.
        """
        begins, ends = self._positions[rows], self._positions[rows + 1]
        heads = np.flatnonzero(np.append(True, begins[1:] != ends[:-1]))
        tails = np.append(heads[1:], len(rows)) - 1
        spans = zip(begins[heads].tolist(), ends[tails].tolist(), strict=True)
        with open_file(self._segment.path) as file:
            content = b"".join(
                os.pread(file.fileno(), end - begin, begin - self._segment.start)
                for begin, end in spans
            )
        starts = np.append(0, np.cumsum(ends - begins))
        if len(content) != starts[-1]:
            raise EntryMismatch(0, "the file is shorter than it was")
        indexes = rows + self.entries.start
        batch = entry_batch(content, starts, begins, indexes, 0, self._log.group)
        if checksums:
            unchecked = self._log.unchecked_through
            check_sums(content, starts, batch.column("body"), indexes, unchecked, None)
        return batch


def _joined(values: Sequence[npt.NDArray[np.int64]]) -> Positions:
    return np.concatenate(values) if values else np.empty(0, np.int64)


def queued_entries(log: LogFolder, entries: range) -> Iterator[QueuedEntries]:
    """The stretches of a range that queues tell of, one behind the other from its beginning on.

    It ends, without an error, where the queues are not known to be whole, or do not agree with the
    index files, and where the index files end. There is nothing for a log of Java's.
    """
    before = whole_before(log.path)
    if before < 0 or log.group is None or log.unchecked_through >= entries.start:
        return
    cursors: QueueCursors | None = None
    for segment, first, positions in _stretches(log, entries):
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
        stretch = QueuedEntries(
            range(first, first + count), topics, units, log, segment, positions[: count + 1]
        )
        if not stretch.agrees:
            return
        yield stretch
        if count < len(positions) - 1:
            return


def _stretches(log: LogFolder, entries: range) -> Iterator[tuple[Segment, int, Positions]]:
    """The entries of a range by segment, as far as the index files go: where each begins."""
    index = entries.start
    for at, segment in enumerate(log.segments):
        last = log.last_in(at, entries.stop - 1)
        if segment.first_index <= index <= last:
            for positions in positions_by_index(log, segment, index, last):
                for cut in range(0, len(positions) - 1, STRETCH_ENTRIES):
                    piece = positions[cut : cut + STRETCH_ENTRIES + 1]
                    yield segment, index, piece
                    index += len(piece) - 1
            if index <= last:
                return
