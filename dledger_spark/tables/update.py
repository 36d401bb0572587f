"""Adds the new entries of a log to the tables of facts, each exactly once.

It folds the entries in the log's order and commits the rows of some at a time. Committed entries
never change, and the fold is a function of the entries, so after a run was killed at any moment the
next one goes on from the end of each table.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple

import pyarrow as pa

from dledger_spark.errors import DataLost, DledgerSparkError, TablesInvalid, TablesOfAnotherLog
from dledger_spark.facts.fact_schemas import FACTS, LAST
from dledger_spark.facts.log_fold import LogFold
from dledger_spark.log.entry_batches import BATCH_BYTES
from dledger_spark.log.left_out import LeftOut, split_at, without
from dledger_spark.log.mark import UNKNOWN, Mark, differ
from dledger_spark.log.readable_log import ReadableLog
from dledger_spark.tables.catalog import catalog_table, mark_in
from dledger_spark.tables.delta_files import SMALL_FILES_MAX, remedy_of
from dledger_spark.tables.fact_table import FactTable, app_of
from dledger_spark.tables.passes import fold_at, lost_rows
from dledger_spark.tables.table_home import TableHome

# The rows of about this much of the log are committed together. That takes twice as much memory,
# because the next ones are folded while these are written.
PIECE_BYTES: Final = 64 * 1024 * 1024


class Updated(NamedTuple):
    """The result of an update with one log.

    Attributes:
        entries: the entries whose rows were not complete before.
        rows: the number of rows added, by table.
        left_out: those of the entries that cannot be read.
    """

    group: str | None
    entries: range
    rows: dict[str, int]
    left_out: tuple[LeftOut, ...] = ()

    @property
    def read(self) -> int:
        """The number of entries without those that cannot be read."""
        return len(self.entries) - sum(each.last - each.first + 1 for each in self.left_out)


def next_index(home: TableHome, group: str | None) -> int | None:
    """Return the entry behind those that all tables have; None if they have none of this log.

    A commit writes the table of entries last, so its end counts for all. Other tables need no
    commit for entries that give them no rows.
    """
    return FactTable(home.fact_path(LAST), FACTS[LAST]).next_index(app_of(group))


def update_tables(
    home: TableHome,
    log: ReadableLog,
    stop: int | None = None,
    *,
    checksums: bool = True,
    fail_on_data_loss: bool = True,
    piece_bytes: int = PIECE_BYTES,
    on_progress: Callable[[int], None] = lambda _done: None,
) -> Updated:
    """Add the new entries, up to the commit index.

    Args:
        home: the tables' folder, `held` by the caller.
        log: the log.
        stop: the entry before which to stop; by default behind the commit index.
        checksums: whether to check the sums of each entry.
        fail_on_data_loss: whether missing and damaged entries are an error; else they are rows of
            `lost_entries`, once an entry behind them is in the tables.
        piece_bytes: the bytes of the log that are committed at a time.
        on_progress: called with the number of entries folded so far.

    Raises:
        DledgerSparkError: the log cannot be read, is not the log of the tables, or the tables
            cannot be written. Committed rows are right, and the next update goes on.
    """
    rows = dict.fromkeys(FACTS, 0)
    tables = fact_tables(home)
    app = app_of(log.group)
    wanted, parts, left_out, fold = lacking(
        home, log, tables, stop, fail_on_data_loss=fail_on_data_loss
    )
    if not wanted:
        return Updated(log.group, wanted, rows)
    with ThreadPoolExecutor(1) as pool:
        writing: Future[dict[str, int]] | None = None
        for number, piece in enumerate(
            _pieces(log, parts, left_out, fold, checksums, piece_bytes, on_progress)
        ):
            _add(rows, writing)
            writing = pool.submit(_commit, home, log.group, tables, app, piece)
            if number % SMALL_FILES_MAX == SMALL_FILES_MAX - 1:
                pool.submit(compact_all, tables).result()
        _add(rows, writing)
    compact_all(tables)
    home.drop_states_before(log.group, parts[-1].stop if parts else 0)
    return Updated(log.group, wanted, rows, tuple(left_out))


def fact_tables(home: TableHome) -> dict[str, FactTable]:
    home.check_held()
    return {
        name: FactTable(home.fact_path(name), schema, home.kept_hours)
        for name, schema in FACTS.items()
    }


class Lacking(NamedTuple):
    """What tables lack of a log.

    Attributes:
        wanted: the entries.
        parts: those of them that are read.
        left_out: those that cannot be read.
        fold: behind the entries that the tables have; None if they have none.
    """

    wanted: range
    parts: list[range]
    left_out: list[LeftOut]
    fold: LogFold | None


def lacking(
    home: TableHome,
    log: ReadableLog,
    tables: Mapping[str, FactTable],
    stop: int | None,
    *,
    fail_on_data_loss: bool,
    finds_damage: bool = True,
) -> Lacking:
    """Return what the tables lack. For the arguments and errors see `update_tables`.

    Without `fail_on_data_loss` the entries are read here once to find damaged ones, unless the
    caller, who does not set `finds_damage`, meets them later.
    """
    there = next_index(home, log.group)
    fold = None if there is None else fold_behind(home, log, there)
    if fold is not None:
        _add_later_tables(tables, app_of(log.group), fold)
    fails = fail_on_data_loss
    return lacking_behind(log, fold, stop, fail_on_data_loss=fails, finds_damage=finds_damage)


def lacking_behind(
    log: ReadableLog,
    fold: LogFold | None,
    stop: int | None = None,
    *,
    fail_on_data_loss: bool,
    finds_damage: bool = True,
) -> Lacking:
    """Return what tables lack that end where a fold does. Raises what `update_tables` does."""
    committed = -1 if log.committed is None else log.committed
    stop = committed + 1 if stop is None else min(stop, committed + 1)
    first = log.first_index if fold is None else fold.next_index
    if first >= stop:
        return Lacking(range(first, first), [], [], fold)
    if first < log.first_index and fail_on_data_loss:
        problem = f"{log.name} now begins with entry {log.first_index}, and the tables end before"
        raise DataLost(problem, first, log.first_index - 1, "use a log that has them")
    wanted = range(max(first, log.first_index), stop)
    left_out: list[LeftOut] = []
    if not fail_on_data_loss:
        left_out = log.unreadable(wanted) if finds_damage else log.missing(wanted)
    parts = without(wanted, left_out)
    if fold is not None and first < log.first_index:
        problem = f"{log.name} now begins with entry {log.first_index}"
        left_out.insert(0, LeftOut(first, log.first_index - 1, problem))
    return Lacking(wanted, parts, left_out, fold)


def _add_later_tables(tables: Mapping[str, FactTable], app: str, fold: LogFold) -> None:
    """Add the tables that an earlier version did not have. Their rows begin with the next entry.

    Raises TablesInvalid: one is gone that was there.
    """
    lacking = {name: table for name, table in tables.items() if table.next_index(app) is None}
    for name, table in lacking.items():
        if name in fold.tables:
            problem = f"is gone with all its rows: {remedy_of(table.path)}"
            raise TablesInvalid(table.path, problem)
    for table in lacking.values():
        table.append(app, range(fold.next_index, fold.next_index), [])


class _Piece(NamedTuple):
    """The rows of some entries, and the state behind them."""

    entries: range
    batches: dict[str, list[pa.RecordBatch]]
    state: bytes


def _pieces(
    log: ReadableLog,
    parts: list[range],
    left_out: list[LeftOut],
    fold: LogFold | None,
    checksums: bool,
    piece_bytes: int,
    on_progress: Callable[[int], None],
) -> Iterator[_Piece]:
    done, untold = 0, left_out
    for part in parts:
        told, untold = split_at(untold, part.start)
        fold = fold_at(log, fold, part.start)
        batches = {table: [rows] for table, rows in lost_rows(log.group, told).items()}
        start, size = part.start, 0
        batch_bytes = min(BATCH_BYTES, piece_bytes)
        try:
            for batch in log.batches(part, batch_bytes=batch_bytes, checksums=checksums):
                for table, rows in fold.fold(batch).items():
                    batches.setdefault(table, []).append(rows)
                size += batch.nbytes
                done += len(batch)
                on_progress(done)
                if size >= piece_bytes or fold.next_index == part.stop:
                    yield _Piece(range(start, fold.next_index), batches, fold.state)
                    batches, start, size = {}, fold.next_index, 0
        except DledgerSparkError:
            if start < fold.next_index:  # entries before one that cannot be read are right
                yield _Piece(range(start, fold.next_index), batches, fold.state)
            raise


def _commit(
    home: TableHome, group: str | None, tables: dict[str, FactTable], app: str, piece: _Piece
) -> dict[str, int]:
    """Write the rows of a piece; those of the table of entries last."""
    home.save_state(group, piece.entries.stop, piece.state)
    added = {}
    for name in (*(name for name in tables if name != LAST), LAST):
        batches = piece.batches.get(name, [])
        if batches or tables[name].next_index(app) is None:
            added[name] = tables[name].append(app, piece.entries, batches)
    return added


def compact_all(tables: Mapping[str, FactTable]) -> None:
    for table in tables.values():
        table.compact()


def _add(rows: dict[str, int], writing: Future[dict[str, int]] | None) -> None:
    if writing is not None:
        for name, added in writing.result().items():
            rows[name] += added


def fold_behind(home: TableHome, log: ReadableLog, there: int) -> LogFold:
    """Return the fold that goes on at an entry where tables end.

    Raises:
        TablesInvalid: its state is gone, or the tables are another log's.
    """
    state = home.state(log.group, there)
    if state is None:
        raise TablesInvalid(
            home.path, f"the state behind entry {there - 1} is gone: use a new folder"
        )
    try:
        fold = LogFold.resumed(log.group, state)
    except ValueError as error:
        problem = f"the state behind entry {there - 1} is unreadable ({error}): use a new folder"
        raise TablesInvalid(home.path, problem) from None
    _check_same(home, log, fold)
    return fold


def _check_same(home: TableHome, log: ReadableLog, fold: LogFold) -> None:
    """Refuse a log whose last entry that the tables have is another one there."""
    last, end = fold.next_index - 1, fold.end
    committed = -1 if log.committed is None else log.committed
    if last > committed:
        # A copy of the log that is behind the tables, or another log that has grown less far.
        last = committed
        there = mark_in(catalog_table(LAST, home.fact_path(LAST)), log.group, last)
        end = there or UNKNOWN
    check_mark(home, log, last, end)


def check_mark(home: TableHome, log: ReadableLog, index: int, there: Mark) -> None:
    """Refuse a log with another entry at an index than the tables have. Raises TablesInvalid."""
    found = log.mark(index)
    if found is not None and differ(found, there):
        problem = f"was made from another log: entry {index} of {log.name} is another one"
        raise TablesOfAnotherLog(home.path, problem)
