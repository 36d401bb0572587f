"""A stretch of a log whose records are mostly known from consume queues, without reading it. Pure.

The queues have the places of records, and the index files those of entries. If they agree on every
byte of an entry, its records are known without reading it. All other entries (commands, messages of
deleted topics, refused records) have to be read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dledger_spark.entries.entry_columns import HEADER_BYTES, Positions
from dledger_spark.records.acceptance import QueueRun


class QueueUnits(NamedTuple):
    """Adjacent messages of one queue.

    Attributes:
        topic: its number among the topics.
        first_offset: the queue offset of the first message.
        places: the place of each record in the log, rising.
        sizes: the bytes of each record.
    """

    topic: int
    queue: int
    first_offset: int
    places: Positions
    sizes: Positions


class ReadAlone(Protocol):
    """Reads entries that need not be adjacent; see `queued_log.read_alone`."""

    def __call__(
        self, indexes: Positions, begins: Positions, ends: Positions, *, checksums: bool
    ) -> pa.RecordBatch: ...


@dataclass(frozen=True)
class QueuedEntries:
    """Adjacent entries of one segment, and their records in the queues.

    Attributes:
        entries: their indexes.
        positions: where each entry begins in the log, and at last where the last one ends.
        topics: the names of all topics.
        units: the records of each queue, in one or several pieces; each is in one of the entries.
        read_alone: reads some of the entries.
    """

    group: str
    entries: range
    positions: Positions
    topics: Sequence[str]
    units: Sequence[QueueUnits]
    read_alone: ReadAlone

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
        """The place of each record in the log, rising."""
        return self._unordered_places[self._order]

    @cached_property
    def rows(self) -> Positions:
        """The entry of each record, counted from 0."""
        begins = self.positions[:-1] + HEADER_BYTES
        places = self.places
        if len(places) == len(begins) and (places == begins).all():
            return np.arange(len(begins))
        rows: Positions = np.searchsorted(self.positions, places, side="right") - 1
        return rows

    @property
    def topic_numbers(self) -> Positions:
        return self._of_units([one.topic for one in self.units])

    @property
    def queues(self) -> Positions:
        return self._of_units([one.queue for one in self.units])

    @property
    def offsets(self) -> Positions:
        offsets = [np.arange(len(one.places)) + one.first_offset for one in self.units]
        return _joined(offsets)[self._order]

    @cached_property
    def others(self) -> Positions:
        """The entries whose records do not make up the whole body, counted from 0."""
        covered = np.bincount(self.rows, self._sizes, len(self.entries))
        return np.flatnonzero(covered != np.diff(self.positions) - HEADER_BYTES)

    @cached_property
    def _unordered_places(self) -> Positions:
        return _joined([one.places for one in self.units])

    @cached_property
    def _sizes(self) -> Positions:
        return _joined([one.sizes for one in self.units])[self._order]

    @cached_property
    def _order(self) -> Positions:
        order: Positions = np.argsort(self._unordered_places, kind="stable")
        return order

    def _of_units(self, values: list[int]) -> Positions:
        counts = [len(one.places) for one in self.units]
        return np.repeat(np.array(values, np.int64), counts)[self._order]

    @property
    def agrees(self) -> bool:
        """Whether every record lies within one entry, behind its header, and no two overlap."""
        places, rows = self.places, self.rows
        ends = places + self._sizes
        # A record before the first entry has the row -1, and is compared with the end of the last.
        return bool(
            (self._sizes > 0).all()
            and (places[1:] >= ends[:-1]).all()
            and (places >= self.positions[rows] + HEADER_BYTES).all()
            and (ends <= self.positions[rows + 1]).all()
        )

    @property
    def bytes_of_all(self) -> int:
        return int(self.positions[-1] - self.positions[0])

    def read(self, rows: Positions, *, checksums: bool) -> pa.RecordBatch:
        """Read some of the entries, numbered from 0, rising, as the table of entries; at least one.

        Raises:
            EntryMismatch: another entry is there, or it is damaged.
            SegmentGone: retention has removed the file.
        """
        begins, ends = self.positions[rows], self.positions[rows + 1]
        return self.read_alone(rows + self.entries.start, begins, ends, checksums=checksums)

    def bytes_of(self, rows: Positions) -> int:
        return int((self.positions[rows + 1] - self.positions[rows]).sum())


def _joined(values: Sequence[npt.NDArray[np.int64]]) -> Positions:
    return np.concatenate(values) if values else np.empty(0, np.int64)
