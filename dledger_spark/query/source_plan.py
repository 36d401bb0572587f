"""The entries that a query of the data source reads, and their division among tasks."""

import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from dledger_spark.errors import (
    CommittedUnknown,
    DataLost,
    OptionInvalid,
    RangeUnavailable,
    TopicUnknown,
)
from dledger_spark.inflated_bodies import BODY_PROBLEM, COLUMNS, inflated
from dledger_spark.log.entry_batches import BATCH_BYTES
from dledger_spark.log.log_range import END, begin_kept
from dledger_spark.log.queued_entries import QueuedEntries
from dledger_spark.log.readable_log import Origin, ReadableLog, sound_batches
from dledger_spark.query.queued_messages import KNOWN_COLUMNS, messages_of, queued_messages
from dledger_spark.query.record_judge import RecordJudge
from dledger_spark.query.session_cores import session_cores
from dledger_spark.query.source_options import (
    EARLIEST,
    LATEST,
    Place,
    SourceOptions,
    TopicChoice,
)
from dledger_spark.records.acceptance import Run
from dledger_spark.records.message_columns import message_batch
from dledger_spark.schema import OF_MESSAGES, needs_bodies

# A search reads at some thirty places, and needs only the first message of each.
_SEARCH_BATCH_BYTES: Final = 64 * 1024
_ONE_GROUP: Final = (
    "an index is one group's, and there are several: use startingOffsets or endingOffsets with "
    'JSON such as {"broker-a": 5}'
)

_NOT_SO_LATE: Final = (
    "no message of {name} was stored then or later: name an earlier time, or "
    "startingOffsetsByTimestampStrategy=latest to begin behind the last one"
)


@dataclass
class EntryRange(InputPartition):
    """The entries of one log that a task reads, both ends included, and the records it skips."""

    origin: Origin
    first: int
    last: int
    refused: list[Run]


def batch_entries(
    logs: Sequence[ReadableLog], options: SourceOptions
) -> Iterator[tuple[ReadableLog, range]]:
    """Yield each log, and the entries of it that a batch query reads.

    Raises:
        DledgerSparkError: an option does not fit the logs; see `ReadableLog.resolve`.
    """
    check_place(logs, options.starting)
    check_place(logs, options.ending)
    if len(logs) > 1:
        _refuse_index("from", options.first)
        _refuse_index("to", options.last)
    for log in logs:
        first: str | int | None = options.first
        if options.starting is not None:
            first = beginning_of(log, options.starting, options.fail_on_data_loss)
        first = begin_kept(log.first_index, first, fail_on_data_loss=options.fail_on_data_loss)
        if options.ending is None:
            entries = log.resolve(first, options.last)
        elif stop := _index_of(log, options.ending, LATEST):
            entries = log.resolve(first, stop - 1)
        else:
            entries = range(0)
        yield log, entries


def beginning_of(log: ReadableLog, place: Place | None, fail_on_data_loss: bool) -> int:
    """Return where a query begins: an index from `first_index` to behind the last."""
    if place is None:
        return log.first_index
    return _index_of(log, place, EARLIEST, kept_only=not fail_on_data_loss)


def next_of(log: ReadableLog) -> int:
    """Return the entry behind the last committed one.

    Raises:
        CommittedUnknown: a folder of Java's does not record it.
    """
    if log.committed is None:
        raise CommittedUnknown(log.name)
    return log.committed + 1


def check_place(logs: Sequence[ReadableLog], place: Place | None) -> None:
    """Raises OptionInvalid: the place does not fit the groups."""
    if place is None:
        return
    groups = [log.group for log in logs]
    for group in sorted(place.groups):
        if group not in groups:
            known = ", ".join(repr(one) for one in groups)
            raise OptionInvalid(place.option, group, f"the groups are {known}")
    if len(logs) > 1 and place.everywhere is not None and place.everywhere >= 0:
        raise OptionInvalid(place.option, str(place.everywhere), _ONE_GROUP)


def is_open(log: ReadableLog, entries: range, options: SourceOptions) -> bool:
    """Return whether a query would read more of a log if more were recorded as committed.

    `entries` are those that it reads.
    """
    if options.last is not None or log.committed is None or entries.stop <= log.committed:
        return False
    ending = options.ending
    if ending is None or ending.time_in(log.group) is not None:
        return True
    return ending.of_group.get(log.group or "", ending.everywhere) in (None, LATEST)


def plan(
    log: ReadableLog, entries: range, begin: int, options: SourceOptions, judge: RecordJudge
) -> Iterator[EntryRange]:
    """Divide entries of one log among tasks.

    Judging records begins at `begin`, see `RecordJudge.refused`. Raises DledgerSparkError: entries
    are missing; see `ReadableLog.parts`.
    """
    least = options.min_partitions or session_cores()
    for part in log.parts(entries, fail_on_data_loss=options.fail_on_data_loss):
        for piece in log.share_out(part, options.partition_bytes, least):
            refused = judge.refused(log, piece, begin) if options.table in OF_MESSAGES else []
            yield EntryRange(log.origin, piece.start, piece.stop - 1, refused)


def require_topics(judge: RecordJudge, options: SourceOptions, logs: Sequence[ReadableLog]) -> None:
    """Check that the topics of "subscribe" exist or have existed, if that is known.

    It is known if `judge` has read each log from entry 0 to its end.

    Raises:
        TopicUnknown: there was never such a topic.
    """
    if options.topics is None:
        return
    known: set[str] = set()
    for log in logs:
        topics = judge.topics_before(log, next_of(log)) if log.committed is not None else None
        if topics is None:
            return
        known |= topics
    if unknown := sorted(options.topics - known):
        where = ", ".join(log.name for log in logs)
        raise TopicUnknown(unknown[0], where, ", ".join(sorted(known)))


def read_piece(
    piece: InputPartition,
    options: SourceOptions,
    columns: Sequence[str],
    topics: frozenset[str] | None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task.

    `piece` is from `plan`. Other partitions, which Spark makes if there is none, have no rows.
    """
    if not isinstance(piece, EntryRange):
        return
    chosen = None
    if topics is not None or options.topic_pattern is not None:
        chosen = TopicChoice(topics, options.topic_pattern)
    _keep_modules()
    if options.decompress and not {"body", BODY_PROBLEM}.isdisjoint(columns):
        stored = [name for name in columns if name != BODY_PROBLEM]
        names = list(dict.fromkeys((*stored, *COLUMNS)))
        for batch in _stored(piece, options, names, chosen):
            for part in inflated(batch):
                yield part.select(columns)
    else:
        yield from _stored(piece, options, columns, chosen)


def _stored(
    piece: EntryRange,
    options: SourceOptions,
    columns: Sequence[str],
    topics: TopicChoice | None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task with bodies as they are stored."""
    log: ReadableLog = piece.origin.open()
    entries = range(piece.first, piece.last + 1)
    if options.table not in OF_MESSAGES:
        bodies = needs_bodies(options.table, columns, checksums=options.checksums)
        for batch in _read(log, entries, options, bodies=bodies):
            yield batch.select(columns)
        return
    at = entries.start
    if topics is not None or (not options.checksums and KNOWN_COLUMNS.issuperset(columns)):
        for stretch in log.queued(entries):
            yield from _of_stretch(log, stretch, piece.refused, options, columns, topics)
            at = stretch.entries.stop
    for batch in _read(log, range(at, entries.stop), options):
        yield messages_of(batch, piece.refused, columns, topics)


def _of_stretch(
    log: ReadableLog,
    stretch: QueuedEntries,
    refused: Sequence[Run],
    options: SourceOptions,
    columns: Sequence[str],
    topics: TopicChoice | None,
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a stretch, reading as little as its columns and topics need."""
    found = queued_messages(stretch, refused, columns, topics, checksums=options.checksums)
    if found is not None:
        yield from found
        return
    for batch in _read(log, stretch.entries, options):
        yield messages_of(batch, refused, columns, topics)


def _read(
    log: ReadableLog, entries: range, options: SourceOptions, *, bodies: bool = True
) -> Iterator[pa.RecordBatch]:
    return sound_batches(
        log,
        entries,
        batch_bytes=BATCH_BYTES,
        checksums=options.checksums,
        fail_on_data_loss=options.fail_on_data_loss,
        bodies=bodies,
    )


@cache
def _keep_modules() -> None:
    """Let garbage collections skip the modules that are loaded by now, once in each worker.

    Spark's workers collect all garbage after each task. Visiting the modules of pyspark, Arrow and
    numpy takes 50 ms, as long as reading 100,000 entries.
    """
    gc.freeze()


def _index_of(log: ReadableLog, place: Place, default: int, *, kept_only: bool = False) -> int:
    """Return the index of a place; with `kept_only`, entries that are not kept are skipped."""
    time_ms = place.time_in(log.group)
    if time_ms is not None:
        stop = next_of(log)
        kept = range(min(log.first_index, stop), stop)
        found = entry_at_time(log, kept, time_ms)
        if place.must_find and not _has_message(log, range(found, stop)):
            raise OptionInvalid(place.option, str(time_ms), _NOT_SO_LATE.format(name=log.name))
        return found
    index = place.of_group.get(log.group or "", place.everywhere)
    index = default if index is None else index
    if index == EARLIEST:
        return log.first_index
    if index == LATEST:
        return next_of(log)
    if kept_only and index < log.first_index:
        return log.first_index
    if index < log.first_index or index > next_of(log):
        problem = (
            f"{place.option} must be {log.first_index} (the first entry kept) to {next_of(log)} "
            "(behind the last committed one)"
        )
        if index < log.first_index:
            problem += ", or failOnDataLoss=false to begin with the first one kept"
        raise RangeUnavailable(log.name, index, index, problem)
    return index


def _refuse_index(option: str, value: str | None) -> None:
    if value and value.lower() != END:
        raise OptionInvalid(option, value, _ONE_GROUP)


def entry_at_time(log: ReadableLog, entries: range, time_ms: int) -> int:
    """Return the end of the entries whose messages were stored before `time_ms`.

    That is right behind the last such message, so entries that are no messages belong to the next
    one. Brokers never store a message with an earlier time than the one before; in a log where
    another program did, this is one of the places where the time is passed. Entries that are in no
    file are skipped. The result is an index of `entries`, or their stop.
    """
    parts = _existing_parts(log, entries)
    low, high = entries.start, entries.stop
    while low < high:
        middle = (low + high) // 2
        found = _first_message(log, parts, range(middle, high))
        if found is not None and found[1] < time_ms:
            low = found[0] + 1
        else:
            high = middle
    return low


def _has_message(log: ReadableLog, entries: range) -> bool:
    return _first_message(log, _existing_parts(log, entries), entries) is not None


def _existing_parts(log: ReadableLog, entries: range) -> list[range]:
    """Return the entries in files: only the search shows whether the others matter."""
    try:
        return log.parts(entries, fail_on_data_loss=True)
    except DataLost:
        return log.parts(entries, fail_on_data_loss=False)


def _first_message(log: ReadableLog, parts: list[range], entries: range) -> tuple[int, int] | None:
    """Return index and store time, in milliseconds, of the first message; None if there is none."""
    for part in parts:
        inside = range(max(part.start, entries.start), min(part.stop, entries.stop))
        for batch in log.batches(inside, batch_bytes=_SEARCH_BATCH_BYTES, checksums=False):
            messages = message_batch(batch, ("index", "store_time")).drop_null()
            if len(messages):
                index, time = messages.slice(0, 1).columns
                return index[0].as_py(), time.cast("int64")[0].as_py() // 1000
    return None
