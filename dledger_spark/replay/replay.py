"""Replays logs into two folders of Parquet files, so that it can be stopped and started again.

The driver divides the range. Each task reads its piece and writes its files itself: sending rows
through Java would cost more than everything else. Existing files are not written again. Committed
entries never change, so an interrupted replay gives the same rows as any other.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa

from dledger_spark.log.entry_batches import BATCH_BYTES
from dledger_spark.log.left_out import LeftOut
from dledger_spark.log.mark import UNKNOWN, mark_of
from dledger_spark.log.readable_log import (
    Origin,
    ReadableLog,
    acceptance_from,
    readable_parts,
)
from dledger_spark.records.acceptance import COLUMNS, Acceptance, Run, accepted_messages
from dledger_spark.records.message_columns import message_batch
from dledger_spark.replay.output_history import check_history
from dledger_spark.replay.table_folder import (
    FileNotes,
    Published,
    RangeFiles,
    file_notes,
    file_path,
    missing,
    published_of,
)
from dledger_spark.schema import ENTRIES, MESSAGE_SCHEMA, MESSAGES, TABLES

# The part of the log that becomes one file of each table, a usual size for readers of Parquet.
FILE_BYTES: Final = 128 * 1024 * 1024

# Often enough for a progress bar, and cheap.
PROGRESS_S: Final = 0.5

_RESULT: Final = pa.schema([("number", pa.int64()), ("messages", pa.int64())])
_RESULT_COLUMNS: Final = "number long, messages long"


class Judged(NamedTuple):
    """A range whose records have been judged.

    Attributes:
        refused: its records that the brokers have refused.
        after: the state behind it, see `Acceptance.encode`; empty if records are not judged.
    """

    refused: list[Run]
    after: bytes


class Piece(NamedTuple):
    """The work of one task: read a range of a log, and write it for some tables."""

    entries: range
    tables: tuple[str, ...]
    origin: Origin
    group: str | None
    judged: Judged = Judged([], b"")


class Plan(NamedTuple):
    """The work of a replay.

    Attributes:
        pieces: the tasks.
        entries: the number of wanted entries that the output will have.
        lost: ranges that are left out, because they are in no file any more, or damaged.
    """

    pieces: list[Piece]
    entries: int
    lost: list[LeftOut]


def plan_replay(
    log: ReadableLog,
    entries: range,
    out: str,
    file_bytes: int,
    *,
    goes_on: bool = True,
    fail_on_data_loss: bool = True,
) -> Plan:
    """Plan the tasks for the files that are still missing.

    About `file_bytes` of the log become one file of each table. `goes_on`: the replay continues
    where an earlier one ended; else the caller named a first entry, and a gap before it is
    intended.

    Raises:
        OutputInvalid: the output was made from another log, or may have been.
        DataLost: entries of the range, or between the output and the log's first one, are lost.
    """
    gaps = check_history(log, out, goes_on=goes_on, fail_on_data_loss=fail_on_data_loss)
    parts, left_out = readable_parts(log, entries, fail_on_data_loss=fail_on_data_loss)
    wanted: dict[tuple[int, int], list[str]] = {}
    for table in TABLES:
        files = published_of(out, table, log.group)
        for part in parts:
            for gap in missing(files, part):
                for piece in log.share_out(gap, file_bytes, 1):
                    wanted.setdefault((piece.start, piece.stop), []).append(table)
    pieces = [
        Piece(range(*ends), tuple(tables), log.origin, log.group)
        for ends, tables in sorted(wanted.items())
    ]
    pieces = _judged(log, pieces, published_of(out, MESSAGES, log.group))
    lost = [LeftOut(gap.first, gap.last, gap.problem) for gap in gaps]
    return Plan(pieces, sum(map(len, parts)), [*lost, *left_out])


def _judged(log: ReadableLog, pieces: list[Piece], files: list[Published]) -> list[Piece]:
    """Add to each piece its refused records.

    That needs all earlier entries, so the driver does it once for all tasks before they begin. It
    starts from the state in the file of messages before a piece, if there is one.
    """
    if log.group is None:
        return pieces  # a log of Java's: its topics are not in it
    before = {file.entries.stop: file for file in files}
    state, stop = Acceptance(is_whole=False), -1
    judged = []
    for piece in pieces:
        if MESSAGES not in piece.tables:
            judged.append(piece)
            continue
        if piece.entries.start != stop:
            file = before.get(piece.entries.start)
            note = file_notes(file).acceptance if file else b""
            begin = piece.entries.start
            state = Acceptance.decode(note) if note else acceptance_from(log, begin)
        stop = piece.entries.stop
        refused: list[Run] = []
        for batch in log.batches(piece.entries, batch_bytes=BATCH_BYTES, checksums=False):
            refused += state.judge(batch, message_batch(batch, COLUMNS))
        judged.append(piece._replace(judged=Judged(refused, state.encode())))
    return judged


def run_replay(
    session: Any,
    out: str,
    run: str,
    pieces: list[Piece],
    on_progress: Callable[[int], None],
) -> dict[str | None, tuple[int, int]]:
    """Run the tasks; return the numbers of entries and messages that were read, by group.

    On a cluster, all machines share the folder `out`. `run` is the replay's name, from
    `table_folder.replay_run`. `on_progress` gets the number of entries done now and then.
    """
    if not pieces:
        return {}
    tasks = session.range(0, len(pieces), 1, len(pieces))
    results = tasks.mapInArrow(partial(_write_pieces, out, run, pieces), _RESULT_COLUMNS)
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(results.collect)
        try:
            while not wait([job], PROGRESS_S).done:
                on_progress(sum(len(p.entries) for p in pieces if is_published(out, p)))
        except BaseException:
            session.sparkContext.cancelAllJobs()
            raise
    found: dict[str | None, tuple[int, int]] = {}
    for row in job.result():
        piece = pieces[row["number"]]
        entries, messages = found.get(piece.group, (0, 0))
        found[piece.group] = entries + len(piece.entries), messages + row["messages"]
    on_progress(sum(entries for entries, _ in found.values()))
    return found


def is_published(out: str, piece: Piece) -> bool:
    return all(
        os.path.exists(file_path(out, table, piece.entries, piece.group)) for table in piece.tables
    )


def _write_pieces(
    out: str, run: str, pieces: list[Piece], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run one task: `batches` hold the numbers of its pieces."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            piece = pieces[number]
            messages = write_piece(piece.origin.open(), out, run, piece)
            columns = [pa.array([number], pa.int64()), pa.array([messages], pa.int64())]
            yield pa.RecordBatch.from_arrays(columns, schema=_RESULT)


def write_piece(log: ReadableLog, out: str, run: str, piece: Piece) -> int:
    """Read a range and publish its files; return the number of messages."""
    messages = 0
    with RangeFiles(out, run, piece.entries, piece.tables, piece.group) as files:
        notes = FileNotes(log.group, UNKNOWN)
        for batch in log.batches(piece.entries, batch_bytes=BATCH_BYTES, checksums=True):
            if ENTRIES in piece.tables:
                files.write(ENTRIES, batch)
            if MESSAGES in piece.tables:
                found = accepted_messages(batch, piece.judged.refused, MESSAGE_SCHEMA.names)
                messages += len(found)
                files.write(MESSAGES, found)
            notes = FileNotes(log.group, mark_of(batch), piece.judged.after)
        files.publish(notes)
    return messages
