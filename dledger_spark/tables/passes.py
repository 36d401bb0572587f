"""The two passes that make facts of a log: ranges in, files and what to commit out.

The first goes through entries in order: it judges records and folds commands, and writes the facts
about commands. The second decodes any range with what the first knows of it, and writes the rows of
entries and messages. A plain loop runs both over each range at once, and reads it once; tasks of
Spark run the first for each group, and the second for each range, and keep what they have made of
each range until the driver has committed it (`kept_passes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from dledger_spark.errors import DataLost, LogDamaged
from dledger_spark.facts.fact_rows import FactRows
from dledger_spark.facts.fact_schemas import FACTS
from dledger_spark.facts.log_fold import ORDER_COLUMNS, Known, LogFold, decoded
from dledger_spark.log.entry_batches import BATCH_BYTES
from dledger_spark.log.left_out import LeftOut
from dledger_spark.log.readable_log import Origin, ReadableLog
from dledger_spark.records.message_columns import message_batch
from dledger_spark.schema import MESSAGE_SCHEMA
from dledger_spark.tables.fact_file import FactFile, FileWritten
from dledger_spark.tables.kept_passes import KeptPass, KeptRange, KeptRows, state_sum

# The tables of the second pass; all others are of the first.
OF_RANGES: Final = ("entries", "messages")
Files = dict[str, list[FileWritten]]
_DAMAGE: Final = (LogDamaged, DataLost)


class Target(NamedTuple):
    """Where the rows of a log go.

    Attributes:
        folders: of the tables.
        firsts: the entry from which each table needs rows; None: all.
        kept: the folder of what is kept of ranges.
    """

    folders: Mapping[str, str]
    firsts: Mapping[str, int | None]
    kept: str


class Damage(NamedTuple):
    """What a pass returns that has met a damaged entry, or one that is in no file.

    Attributes:
        entries: the range with the entry.
        reached: the entry behind those that were read.
        error: what was met.
    """

    entries: range
    reached: int
    error: LogDamaged | DataLost


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
    checksums: bool,
) -> Ordered | Damage:
    """Run the first pass over ranges of a log that follow one another, or entries left out.

    `state` is that of the fold behind the entry before; None if there is none. A range whose pass
    is kept is not read. Sums are checked here too: what is kept may be used with another copy of
    the log, in which damaged entries are sound. Raises DledgerSparkError, as reading the entries
    does, TablesInvalid and OutputFailed.
    """
    fold: LogFold | None = None
    found = []
    for one in ranges:
        kept = KeptRange(target.kept, one)
        before = state_sum(state, checksums=checksums)
        there = kept.ordered(log, before)
        if there is None:
            if fold is None and state is not None:
                fold = LogFold.resumed(log.group, state)
            fold = fold_at(log, fold, one.start)
            made = _order_range(log, fold, one, kept.keep_rows(before), checksums)
            if isinstance(made, Damage):
                return made
            there = made
        else:
            fold = None
        found.append((one, there.known))
        state = there.state
    assert state is not None
    files = TableFiles(target, [name for name in FACTS if name not in OF_RANGES])
    files.add(lost_rows(log.group, left_out))
    for one in ranges:
        for rows in KeptRange(target.kept, one).rows():
            files.add(rows)
    return Ordered(found, files.close(), state)


def _order_range(
    log: ReadableLog, fold: LogFold, entries: range, kept: KeptRows, checksums: bool
) -> KeptPass | Damage:
    try:
        known = known_of(log, fold, entries, kept.add, checksums=checksums)
    except _DAMAGE as error:
        kept.drop()
        return Damage(entries, fold.next_index, error)
    assert known is not None
    found = KeptPass(known, fold.state)
    kept.end(found, fold.end)
    return found


def known_of(
    log: ReadableLog,
    fold: LogFold,
    entries: range,
    take: Callable[[Mapping[str, pa.RecordBatch]], None] = lambda _rows: None,
    *,
    checksums: bool = False,
) -> Known | None:
    """Fold a range that begins with the next entry; return what is known of it, None if it is
    empty. `take` gets the facts about commands.
    """
    found: Known | None = None
    for batch in log.batches(entries, batch_bytes=BATCH_BYTES, checksums=checksums):
        rows, known = fold.order(batch, message_batch(batch, ORDER_COLUMNS))
        take(rows)
        found = known if found is None else found.with_next(known)
    return found


def decode_range(
    log: ReadableLog, entries: range, known: Known, target: Target, *, checksums: bool
) -> Files | Damage:
    """Run the second pass over a range, unless its files are kept.

    Raises DledgerSparkError, as reading the entries does, and TablesInvalid.
    """
    kept = KeptRange(target.kept, entries)
    asked = {
        "folders": {name: target.folders[name] for name in OF_RANGES},
        "firsts": {name: target.firsts[name] for name in OF_RANGES},
        "checksums": checksums,
    }
    there = kept.written(known, asked)
    if there is not None:
        return there
    files = TableFiles(target, OF_RANGES)
    reached = entries.start
    try:
        for batch in log.batches(entries, batch_bytes=BATCH_BYTES, checksums=checksums):
            files.add(decoded(batch, message_batch(batch, MESSAGE_SCHEMA.names), known))
            reached += len(batch)
    except _DAMAGE as error:
        return Damage(entries, reached, error)
    written = files.close()
    kept.keep_written(known, asked, written)
    return written


class OrderTask(NamedTuple):
    """The first pass over some ranges, for another process. For the fields see `order_ranges`."""

    origin: Origin
    state: bytes | None
    ranges: list[range]
    left_out: list[LeftOut]
    target: Target
    checksums: bool


class DecodeTask(NamedTuple):
    """The second pass over a range, for another process. For the fields see `decode_range`."""

    origin: Origin
    entries: range
    known: Known
    target: Target
    checksums: bool


class SearchTask(NamedTuple):
    """The search for what cannot be read of a range, for another process."""

    origin: Origin
    entries: range


def order(task: OrderTask) -> Ordered | Damage:
    return order_ranges(task.origin.open(), *task[1:])


def decode(task: DecodeTask) -> Files | Damage:
    log, checks = task.origin.open(), task.checksums
    return decode_range(log, task.entries, task.known, task.target, checksums=checks)


def search(task: SearchTask) -> list[LeftOut]:
    log: ReadableLog = task.origin.open()
    return log.unreadable(task.entries)


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
