"""The two passes that make facts of a log: ranges in, files and what to commit out.

The first goes through entries in order: it judges records and folds commands, and writes the facts
about commands. The second decodes any range with what the first knows of it, and writes the rows of
entries and messages. A plain loop runs both over each range at once, and reads it once; tasks of
Spark run the first for each group, and the second for each range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from dledger_spark.facts.fact_rows import FactRows
from dledger_spark.facts.fact_schemas import FACTS
from dledger_spark.facts.log_fold import ORDER_COLUMNS, Known, LogFold, decoded
from dledger_spark.log.entry_batches import BATCH_BYTES
from dledger_spark.log.left_out import LeftOut
from dledger_spark.log.readable_log import Origin, ReadableLog
from dledger_spark.records.message_columns import message_batch
from dledger_spark.schema import MESSAGE_SCHEMA
from dledger_spark.tables.fact_file import FactFile, FileWritten

# The tables of the second pass; all others are of the first.
OF_RANGES: Final = ("entries", "messages")
Files = dict[str, list[FileWritten]]


class Target(NamedTuple):
    """The folders of the tables, and the entry from which each needs rows; None: all."""

    folders: Mapping[str, str]
    firsts: Mapping[str, int | None]


class Ordered(NamedTuple):
    """What the first pass has found.

    Attributes:
        ranges: the ranges, and what is known of each.
        files: the files of the tables about commands.
        state: of the fold, behind the last range.
    """

    ranges: list[tuple[range, Known]]
    files: Files
    state: bytes


def fold_at(log: ReadableLog, fold: LogFold | None, index: int) -> LogFold:
    """Return the fold that goes on at an entry: `fold`, or a new one if entries before are lost."""
    if fold is None or fold.next_index != index:
        return LogFold(log.group, index, is_judged_whole=log.is_judged_whole)
    return fold


def lost_rows(group: str | None, left_out: Iterable[LeftOut]) -> dict[str, pa.RecordBatch]:
    """Return the facts about entries that are left out, by table."""
    rows = FactRows(group)
    for each in left_out:
        rows.add("lost_entries", *each)
    return rows.take()


def order_ranges(
    log: ReadableLog,
    state: bytes | None,
    ranges: Sequence[range],
    left_out: Iterable[LeftOut],
    target: Target,
) -> Ordered:
    """Run the first pass over ranges of a log that follow one another, or entries left out.

    `state` is that of the fold behind the entry before; None if there is none. Raises
    DledgerSparkError, as reading the entries does, except for sums, and TablesInvalid.
    """
    fold = None if state is None else LogFold.resumed(log.group, state)
    files = TableFiles(target, [name for name in FACTS if name not in OF_RANGES])
    files.add(lost_rows(log.group, left_out))
    found = []
    for one in ranges:
        fold = fold_at(log, fold, one.start)
        of_range = known_of(log, fold, one, files.add)
        if of_range is not None:
            found.append((one, of_range))
    assert fold is not None
    return Ordered(found, files.close(), fold.state)


def known_of(
    log: ReadableLog,
    fold: LogFold,
    entries: range,
    take: Callable[[Mapping[str, pa.RecordBatch]], None] = lambda _rows: None,
) -> Known | None:
    """Fold a range that begins with the next entry; return what is known of it, None if it is
    empty. `take` gets the facts about commands.
    """
    found: Known | None = None
    for batch in log.batches(entries, batch_bytes=BATCH_BYTES, checksums=False):
        rows, known = fold.order(batch, message_batch(batch, ORDER_COLUMNS))
        take(rows)
        found = known if found is None else found.with_next(known)
    return found


def decode_range(
    log: ReadableLog, entries: range, known: Known, target: Target, *, checksums: bool
) -> Files:
    """Run the second pass over a range. Raises DledgerSparkError, as reading the entries does."""
    files = TableFiles(target, OF_RANGES)
    for batch in log.batches(entries, batch_bytes=BATCH_BYTES, checksums=checksums):
        files.add(decoded(batch, message_batch(batch, MESSAGE_SCHEMA.names), known))
    return files.close()


class OrderTask(NamedTuple):
    """The first pass over some ranges, for another process. For the fields see `order_ranges`."""

    origin: Origin
    state: bytes | None
    ranges: list[range]
    left_out: list[LeftOut]
    target: Target


class DecodeTask(NamedTuple):
    """The second pass over a range, for another process. For the fields see `decode_range`."""

    origin: Origin
    entries: range
    known: Known
    target: Target
    checksums: bool


def order(task: OrderTask) -> Ordered:
    return order_ranges(task.origin.open(), *task[1:])


def decode(task: DecodeTask) -> Files:
    log, checks = task.origin.open(), task.checksums
    return decode_range(log, task.entries, task.known, task.target, checksums=checks)


class TableFiles:
    """A new file for each of some tables."""

    def __init__(self, target: Target, tables: Sequence[str]) -> None:
        self._files = {
            name: FactFile(target.folders[name], FACTS[name], target.firsts[name])
            for name in tables
        }

    def add(self, rows: Mapping[str, pa.RecordBatch]) -> None:
        for name, batch in rows.items():
            self._files[name].add(batch)

    def close(self) -> Files:
        closed = {name: file.close() for name, file in self._files.items()}
        return {name: [file] for name, file in closed.items() if file is not None}
