"""The interface of a log that can be read, wherever it is."""

import warnings
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from dledger_spark.errors import EntriesLeftOut, LogDamaged, UnrecordedEntries
from dledger_spark.log.left_out import LeftOut, without
from dledger_spark.log.mark import Mark
from dledger_spark.log.queued_entries import QueuedEntries
from dledger_spark.records.acceptance import Acceptance


class Origin(Protocol):
    """Names a log. Spark pickles it for its tasks."""

    def open(self) -> Any:
        """Open the log, a `ReadableLog`, in this process."""


class ReadableLog(Protocol):
    """One group's log at one moment."""

    @property
    def origin(self) -> Origin:
        """Opens the log in another process."""

    @property
    def name(self) -> str:
        """Its name in errors."""

    @property
    def group(self) -> str | None:
        """Its group; None if it is unknown."""

    @property
    def first_index(self) -> int:
        """The first entry kept."""

    @property
    def committed(self) -> int | None:
        """The last entry that is known to be committed; None if it is unknown."""

    @property
    def unrecorded(self) -> int:
        """The number of entries behind `committed`, which may be committed by now."""

    @property
    def is_judged_whole(self) -> bool:
        """Whether the brokers' rule can be applied to all records from entry 0 on."""

    def resolve(self, first: str | int | None, last: str | int | None) -> range:
        """Return the entries that "from" and "to" name, both ends included.

        Args:
            first: an index; None for the first entry kept.
            last: an index; "end" for all entries, committed or not; None for the commit index.

        Raises:
            OptionInvalid: not a number, or there is no such end.
            CommittedUnknown: no end is given, and the folder does not record one.
            RangeUnavailable: entries are no longer kept, or not committed.
        """

    def parts(self, entries: range, *, fail_on_data_loss: bool) -> list[range]:
        """Return the existing parts of a resolved range.

        Raises:
            DataLost: a part is missing, and `fail_on_data_loss` is true.
        """

    def unreadable(self, entries: range) -> list[LeftOut]:
        """Return what of a resolved range cannot be read, in order, and why."""

    def share_out(self, entries: range, piece_bytes: int, min_pieces: int) -> list[range]:
        """Divide a range into adjacent pieces with about equally many bytes of the log.

        Args:
            entries: the range to divide.
            piece_bytes: about the most bytes of a piece, unless that makes over MAX_PIECES.
            min_pieces: a hint; it never makes pieces smaller than MIN_PIECE_BYTES.
        """

    def stop_within(self, entries: range, max_bytes: int) -> int:
        """Return where to stop to read about `max_bytes` of a range; at least one entry."""

    def mark(self, index: int) -> Mark | None:
        """Return the mark of an entry, if it is kept, or of the one before the log's first."""

    def batches(
        self, entries: range, *, batch_bytes: int, checksums: bool, bodies: bool = True
    ) -> Iterator[pa.RecordBatch]:
        """Yield the table of entries of a range that `parts` returned.

        Without `bodies` it may lack the column "body", and the sums of bodies are not checked.
        """

    def queued(self, entries: range) -> Iterator[QueuedEntries]:
        """Yield what consume queues have of a range that `parts` returned, from its beginning
        on.
        """


def sound_batches(
    log: ReadableLog,
    entries: range,
    *,
    batch_bytes: int,
    checksums: bool,
    fail_on_data_loss: bool,
    bodies: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Yield the table of entries of a range that `ReadableLog.parts` returned.

    For `bodies` see `ReadableLog.batches`. Without `fail_on_data_loss` it warns of damaged entries
    and leaves them out. Then a batch does not begin behind the last one.

    Raises:
        LogDamaged: an entry is damaged, and `fail_on_data_loss` is true.
    """
    at = entries.start
    read = partial(log.batches, batch_bytes=batch_bytes, checksums=checksums, bodies=bodies)
    try:
        for batch in read(entries):
            at += len(batch)
            yield batch
    except LogDamaged:
        if fail_on_data_loss:
            raise
    else:
        return
    rest = range(at, entries.stop)
    left_out = log.unreadable(rest)
    warn_of_left_out(log, left_out)
    for part in without(rest, left_out):
        yield from read(part)


class Readable(NamedTuple):
    """The parts of a range that are read, and what is left out between them."""

    parts: list[range]
    left_out: list[LeftOut]


def readable_parts(log: ReadableLog, entries: range, *, fail_on_data_loss: bool) -> Readable:
    """Return what is read of a resolved range.

    With `fail_on_data_loss` a damaged entry is an error when it is read; else all of the range is
    read here once, to leave damaged entries out.

    Raises:
        DataLost: a part is missing, and `fail_on_data_loss` is true.
    """
    if fail_on_data_loss:
        return Readable(log.parts(entries, fail_on_data_loss=True), [])
    left_out = log.unreadable(entries)
    return Readable(without(entries, left_out), left_out)


def acceptance_from(log: ReadableLog, first: int) -> Acceptance:
    """Return the state that judges records from an entry on.

    Topics are unknown there, unless the log has the topics of all records from its first entry on,
    and this is it.
    """
    return Acceptance(is_whole=first == 0 and log.is_judged_whole)


def warn_of_unrecorded(logs: Iterable[ReadableLog]) -> None:
    """Warn once for each log that holds entries behind those recorded as committed.

    `logs` are read to their ends. Every call warns: Python shows the same text only once in a
    process, which reads many times. Spark plans a query in a Python process of its own, so the
    warning is a line on standard error, and the filters of `warnings` in the user's process do not
    reach it; those of PYTHONWARNINGS do.
    """
    for log in logs:
        if log.committed is not None and (count := log.unrecorded):
            # The filter comes after all others, so that the user's count.
            warnings.filterwarnings("always", category=UnrecordedEntries, append=True)
            # The warning names the line that called the reader.
            warnings.warn(UnrecordedEntries(log.name, log.committed, count), stacklevel=3)


def warn_of_left_out(log: ReadableLog, left_out: Iterable[LeftOut]) -> None:
    """Warn of each range that a query leaves out; for the filters see `warn_of_unrecorded`."""
    for each in left_out:
        warnings.filterwarnings("always", category=EntriesLeftOut, append=True)
        warnings.warn(EntriesLeftOut(log.name, *each), stacklevel=3)
