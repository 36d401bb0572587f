"""Replays a log into two folders of Parquet files, so that it can be stopped and started again.

The driver divides the range. Each task reads its piece and writes its files itself: rows do not go
through the Java side, which would cost more than all the rest. Existing files are not written
again. Committed entries never change, so an interrupted replay gives the same rows as any other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa

from dledger_spark.acceptance import Acceptance
from dledger_spark.log_folder import LogFolder, open_log
from dledger_spark.log_range import left_out, readable, share_out
from dledger_spark.output_history import check_history
from dledger_spark.scan import Judged, accepted_messages, beginning, judge, read_range
from dledger_spark.schema import ENTRIES, MESSAGE_SCHEMA, MESSAGES, TABLES
from dledger_spark.table_folder import (
    FileNotes,
    Published,
    RangeFiles,
    file_notes,
    file_path,
    missing,
    published,
)

# This much of the log becomes one file of each table, a usual size for readers of Parquet.
FILE_BYTES: Final = 128 * 1024 * 1024

# Often enough for a progress bar, and cheap beside the work.
PROGRESS_SECONDS: Final = 0.5

_RESULT: Final = pa.schema([("first", pa.int64()), ("last", pa.int64()), ("messages", pa.int64())])
_RESULT_COLUMNS: Final = "first long, last long, messages long"


class Piece(NamedTuple):
    """The work of one task: read a range, and write it for some tables."""

    entries: range
    tables: tuple[str, ...]
    judged: Judged = Judged([], b"")


class Plan(NamedTuple):
    """The work of a replay.

    Attributes:
        pieces: the tasks.
        entries: number of the wanted entries that the output will have.
        lost: ranges that are left out, because no file holds them any more.
    """

    pieces: list[Piece]
    entries: int
    lost: list[range]


def plan_replay(
    log: LogFolder,
    entries: range,
    out: str,
    file_bytes: int,
    *,
    goes_on: bool = True,
    fail_on_data_loss: bool = True,
) -> Plan:
    """Plan the tasks for the files that are still missing.

    Args:
        log: the log.
        entries: the wanted range, from `log_range.resolve_range`.
        out: the output folder.
        file_bytes: about how much of the log becomes one file of each table.
        goes_on: whether the replay continues where an earlier one ended; otherwise the caller
            named a first entry, and a gap before it is intended.
        fail_on_data_loss: whether lost entries are an error.

    Raises:
        OutputInvalid: the output was made from another log, or may have been.
        DataLost: entries of the range, or between the output and the log's first one, are lost.
    """
    gaps = check_history(log, out, goes_on=goes_on, fail_on_data_loss=fail_on_data_loss)
    parts = readable(log, entries, fail_on_data_loss=fail_on_data_loss)
    wanted: dict[tuple[int, int], list[str]] = {}
    for table in TABLES:
        files = published(out, table)
        for part in parts:
            for gap in missing(files, part):
                for piece in share_out(log, gap, file_bytes):
                    wanted.setdefault((piece.start, piece.stop), []).append(table)
    pieces = [Piece(range(*ends), tuple(tables)) for ends, tables in sorted(wanted.items())]
    pieces = _judged(log, pieces, published(out, MESSAGES))
    lost = [range(gap.first, gap.last + 1) for gap in gaps]
    return Plan(pieces, sum(map(len, parts)), [*lost, *left_out(entries, parts)])


def _judged(log: LogFolder, pieces: list[Piece], files: list[Published]) -> list[Piece]:
    """Add to each piece the records that are refused in it.

    That needs all earlier entries, so the driver does it once for all tasks before they begin. It
    starts from the state in the file of messages before a piece, if there is one.
    """
    before = {file.entries.stop: file for file in files}

    def begin(entries: range) -> Acceptance | None:
        file = before.get(entries.start)
        note = file_notes(file).acceptance if file else b""
        return Acceptance.decode(note) if note else beginning(log, entries)

    with_messages = [piece for piece in pieces if MESSAGES in piece.tables]
    found = judge(log, [piece.entries for piece in with_messages], begin)
    return [
        piece._replace(judged=next(found)) if MESSAGES in piece.tables else piece
        for piece in pieces
    ]


def run_replay(
    session: Any,
    path: str,
    out: str,
    run: str,
    pieces: list[Piece],
    on_progress: Callable[[int], None],
) -> tuple[int, int]:
    """Run the tasks. Returns the number of entries read, and of messages among them.

    Args:
        session: a Spark session.
        path: the folder of the log.
        out: the output folder, absolute; on a cluster, a folder that all machines share.
        run: the replay's name, from `table_folder.replay_run`.
        pieces: from `plan_replay`.
        on_progress: called now and then with the number of entries done so far.
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
    """Whether all files of a piece exist."""
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
    """Read a range and publish its files. Returns the number of messages in it."""
    messages = 0
    with RangeFiles(out, run, piece.entries, piece.tables) as files:
        notes = FileNotes(log.group, -1, 0)
        for batch in read_range(log, piece.entries):
            if ENTRIES in piece.tables:
                files.write(ENTRIES, batch)
            if MESSAGES in piece.tables:
                found = accepted_messages(batch, piece.judged.refused, MESSAGE_SCHEMA.names)
                messages += len(found)
                files.write(MESSAGES, found)
            term, chain = (batch.column(name)[-1].as_py() for name in ("term", "chain_crc"))
            notes = FileNotes(log.group, term, chain, piece.judged.after)
        files.publish(notes)
    return messages
