"""A log that can be read, wherever it is: what the data source needs of it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import pyarrow as pa

from dledger_spark.errors import UnrecordedEntries
from dledger_spark.log.mark import Mark
from dledger_spark.log.queued_entries import QueuedEntries
from dledger_spark.records.acceptance import Acceptance


class Origin(Protocol):
    """Names a log. Spark sends it to its tasks, so it can be pickled."""

    def open(self) -> Any:
        """Open the log, a `ReadableLog`, in this process."""


class ReadableLog(Protocol):
    """One group's log at one moment."""

    @property
    def origin(self) -> Origin:
        """Opens the log in another process."""

    @property
    def name(self) -> str:
        """What to call it in an error."""

    @property
    def group(self) -> str | None:
        """Its group; None if it is not known."""

    @property
    def first_index(self) -> int:
        """The first entry kept."""

    @property
    def committed(self) -> int | None:
        """The last entry known to be committed; None if nothing says so."""

    @property
    def unrecorded(self) -> int:
        """How many entries are there behind `committed`: they may be committed by now, or not."""

    @property
    def is_judged_whole(self) -> bool:
        """Whether the brokers' rule can be applied to all records from entry 0 on."""

    def resolve(self, first: str | int | None, last: str | int | None) -> range:
        """The entries that "from" and "to" name, both ends included.

        Args:
            first: an index; None for the first entry kept.
            last: an index; "end" for all entries, committed or not; None for the commit index.

        Raises:
            OptionInvalid: not a number, or there is no such end.
            CommittedUnknown: no end is given, and the folder does not record one.
            RangeUnavailable: entries are no longer kept, or not committed.
        """

    def parts(self, entries: range, *, fail_on_data_loss: bool) -> list[range]:
        """The parts of a resolved range that exist.

        Raises:
            DataLost: a part is missing, and `fail_on_data_loss` asks for all of it.
        """

    def share_out(self, entries: range, piece_bytes: int, min_pieces: int) -> list[range]:
        """Divide a range into adjacent pieces with about equally many bytes of the log.

        Args:
            entries: the range to divide.
            piece_bytes: a piece holds about this much at most, unless that makes over MAX_PIECES.
            min_pieces: a hint; it never makes pieces smaller than MIN_PIECE_BYTES.
        """

    def stop_within(self, entries: range, max_bytes: int) -> int:
        """Where to stop so as to read about `max_bytes` of a range; at least one entry."""

    def mark(self, index: int) -> Mark | None:
        """What identifies an entry, if it is kept, or the one before the log's first."""

    def batches(
        self, entries: range, *, batch_bytes: int, checksums: bool
    ) -> Iterator[pa.RecordBatch]:
        """The table of entries of a range that `parts` returned."""

    def queued(self, entries: range) -> Iterator[QueuedEntries]:
        """What consume queues say of a range that `parts` returned, from its beginning on."""


def acceptance_from(log: ReadableLog, first: int) -> Acceptance:
    """The state that judges records from an entry on. Topics count as unknown there, unless the
    log has all of its records' topics from its first entry on, and this is it.
    """
    return Acceptance(is_whole=first == 0 and log.is_judged_whole)


def warn_of_unrecorded(logs: Iterable[ReadableLog]) -> None:
    """Warn once for each log that holds entries behind those recorded as committed.

    Each time: Python shows the same text only once in a process, which reads many times. Spark
    plans a query in a Python process of its own, so the warning is a line on standard error, and
    the filters of `warnings` in the user's process do not reach it; those of PYTHONWARNINGS do.

    Args:
        logs: the logs that a query reads to their ends.
    """
    for log in logs:
        if log.committed is not None and (count := log.unrecorded):
            # The filter stands behind all others, so that those of the user count.
            warnings.filterwarnings("always", category=UnrecordedEntries, append=True)
            # Names the line that called the reader.
            warnings.warn(UnrecordedEntries(log.name, log.committed, count), stacklevel=3)
