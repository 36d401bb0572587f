"""Replays a log into two folders of Parquet files, so that it can be stopped and started again.

The driver shares the range out, every task reads its piece and writes its files itself (rows do
not go through the Java side, which would cost more than all the rest), and what is already there
is not written again. Committed entries never change, so an interrupted replay and one that was
not give the same rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa

from dledger_spark.errors import OutputInvalid
from dledger_spark.log_folder import LogFolder, open_log
from dledger_spark.log_range import end_of_log, share_out
from dledger_spark.message_columns import message_batch
from dledger_spark.scan import read_range
from dledger_spark.schema import ENTRIES, MESSAGES, TABLES
from dledger_spark.table_folder import (
    LastEntry,
    Published,
    RangeFiles,
    file_path,
    last_entry,
    missing,
    published,
)

# As much log as becomes one file of each table: readers like files of this size.
FILE_BYTES: Final = 128 * 1024 * 1024

# Often enough for a progress bar, and nothing beside the work.
PROGRESS_SECONDS: Final = 0.5

_RESULT: Final = pa.schema([("first", pa.int64()), ("last", pa.int64()), ("messages", pa.int64())])
_RESULT_COLUMNS: Final = "first long, last long, messages long"


class Piece(NamedTuple):
    """What one task does: read a range, and write it for some tables."""

    entries: range
    tables: tuple[str, ...]


def plan_replay(log: LogFolder, entries: range, out: str, file_bytes: int) -> list[Piece]:
    """What is still to be done.

    Raises:
        OutputInvalid: the output was made from another log.
    """
    wanted: dict[tuple[int, int], list[str]] = {}
    for table in TABLES:
        files = published(out, table)
        _check_history(log, files)
        for gap in missing(files, entries):
            for piece in share_out(log, gap, file_bytes):
                wanted.setdefault((piece.start, piece.stop), []).append(table)
    return [Piece(range(*ends), tuple(tables)) for ends, tables in sorted(wanted.items())]


def run_replay(
    session: Any,
    path: str,
    out: str,
    run: str,
    pieces: list[Piece],
    on_progress: Callable[[int], None],
) -> tuple[int, int]:
    """Do the pieces; the numbers of entries read and of messages among them.

    Args:
        session: a Spark session.
        path: the folder of the log.
        out: the output folder, absolute; on a cluster, a folder that all machines share.
        run: the replay's name, from `table_folder.replay_run`.
        pieces: from `plan_replay`.
        on_progress: is told, now and then, how many entries are done so far.
    """
    if not pieces:
        return 0, 0
    tasks = session.range(0, len(pieces), 1, len(pieces))
    results = tasks.mapInArrow(partial(_write_pieces, path, out, run, pieces), _RESULT_COLUMNS)
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(results.collect)
        try:
            while not wait([job], PROGRESS_SECONDS).done:
                on_progress(sum(len(p.entries) for p in pieces if is_published(out, p)))
        except BaseException:
            session.sparkContext.cancelAllJobs()
            raise
    read = sum(row["last"] - row["first"] + 1 for row in job.result())
    on_progress(read)
    return read, sum(row["messages"] for row in job.result())


def is_published(out: str, piece: Piece) -> bool:
    """Whether all files of a piece are there."""
    return all(os.path.exists(file_path(out, table, piece.entries)) for table in piece.tables)


def _write_pieces(
    path: str, out: str, run: str, pieces: list[Piece], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """One task: `batches` hold the numbers of its pieces."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            piece = pieces[number]
            messages = write_piece(open_log(path), out, run, piece)
            ends = piece.entries
            yield pa.RecordBatch.from_arrays(
                [pa.array([ends.start]), pa.array([ends.stop - 1]), pa.array([messages])],
                schema=_RESULT,
            )


def write_piece(log: LogFolder, out: str, run: str, piece: Piece) -> int:
    """Read a range and publish its files; the number of messages in it."""
    messages = 0
    with RangeFiles(out, run, piece.entries, piece.tables) as files:
        last = LastEntry(-1, -1, 0)
        for batch in read_range(log, piece.entries):
            found = message_batch(batch)
            messages += len(found)
            if ENTRIES in piece.tables:
                files.write(ENTRIES, batch)
            if MESSAGES in piece.tables:
                files.write(MESSAGES, found)
            last = _last_of(batch)
        files.publish(last)
    return messages


def _last_of(batch: pa.RecordBatch) -> LastEntry:
    index, term, chain = (batch.column(name)[-1].as_py() for name in ("index", "term", "chain_crc"))
    return LastEntry(index, term, chain)


def _check_history(log: LogFolder, files: list[Published]) -> None:
    """What was written must be this log's: the newest entry that both hold tells.

    Equal chain sums mean equal history up to there; a log of Java's has only the term to compare.
    """
    last = end_of_log(log)
    for file in reversed(files):
        index = file.entries.stop - 1
        if index < log.first_index:
            return  # retention removed what could be compared
        if index <= last:
            if _last_of(next(read_range(log, range(index, index + 1)))) != last_entry(file):
                problem = f"was made from another log: entry {index} of {log.path} is another one"
                raise OutputInvalid(file.path, f"{problem}; use a new folder")
            return
