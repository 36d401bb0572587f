"""The stream of the data source "dledger": batches of entries, each from the end of the last one.

Only committed entries are read, and they never change. So a batch that is read again after a crash
has the same rows.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from time import monotonic, sleep
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from dledger_spark.errors import DataLost, LogBehind, LogFolderInvalid, LogReplaced
from dledger_spark.log.mark import NO_TERM, UNKNOWN, differ
from dledger_spark.log.readable_log import ReadableLog, warn_of_unrecorded
from dledger_spark.query.named_logs import open_all
from dledger_spark.query.record_judge import RecordJudge
from dledger_spark.query.source_options import SourceOptions
from dledger_spark.query.source_plan import (
    beginning_of,
    check_place,
    next_of,
    plan,
    read_piece,
    require_topics,
)
from dledger_spark.query.stream_offset import VERSION, GroupOffset, decode_offset, encode_offset
from dledger_spark.query.told_errors import told, told_rows

_REMEDY: Final = "begin with a new checkpoint"
# Spark asks again 10 ms after an answer that there is nothing new. Reading the state of all nodes
# costs more than that, and they record what is committed four times a second. A batch takes longer,
# so a stream that has something to read never waits for this.
IDLE_S: Final = 0.3


class DledgerStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the batches of a stream in the driver, and reads them in the tasks.

    Spark keeps one reader for the plans of a query, and makes others for the tasks.
    """

    def __init__(self, options: SourceOptions, columns: list[str]) -> None:
        self._options = options
        self._columns = columns
        self._judge = RecordJudge(fail_on_data_loss=options.fail_on_data_loss)
        self._target: dict[str, int] | None = None  # where availableNow ends
        self._latest: dict[str, int] = {}  # the last known ends of the logs
        self._read: dict[str, int] = {}  # where the last batch ended
        self._triggered_s = -math.inf  # when the last batch was planned

    @told
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark names it
        """Return where a stream without a checkpoint begins."""
        logs = open_all(self._options)
        check_place(logs, self._options.starting)
        return encode_offset(
            {
                _group_of(log): _offset_at(
                    log,
                    beginning_of(log, self._options.starting, self._options.fail_on_data_loss),
                )
                for log in logs
            }
        )

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark names it
        """Return the limit of the options; `latestOffset` respects both if there are two."""
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    @told
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  # Spark names it
        """Return where the next batch ends.

        A new group is read from its first entry. The stream waits for a group whose nodes here have
        fewer entries than it has read.

        Raises:
            LogReplaced: a log is not the one that the stream has read.
            DataLost: a group's log is gone, or no longer has the entries that come next.
        """
        begins = decode_offset(start)
        logs = {_group_of(log): log for log in open_all(self._options)}
        self._check_gone(begins, logs)
        self._latest = {group: next_of(log) for group, log in logs.items()}
        ends = dict(begins)
        available: dict[str, range] = {}
        for group, log in logs.items():
            begin = begins.get(group)
            if begin is not None:
                check_same(log, begin)
            first = log.first_index if begin is None else begin.next
            stop = self._latest[group]
            if self._target is not None:
                stop = min(stop, self._target.get(group, first))
            if first < stop:
                # Spark stores an offset before it asks for the batch. One that no batch can reach
                # would stop the stream for good, also with the right folder.
                self._check_kept(log, first, stop)
                available[group] = range(first, stop)
        if self._target is None and (not available or self._waits(available)):
            available = {}
            sleep(IDLE_S)
        for group, stop in self._limited(available, logs, limit).items():
            ends[group] = _offset_at(logs[group], stop)
        self._read = {group: at.next for group, at in ends.items()}
        return encode_offset(ends)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark names it
        """Return the ends of the logs at the last batch, for the progress of the query.

        Spark gives sources in Python no place for metrics, so those of Kafka's source are here.
        """
        behind = [max(0, at - self._read.get(group, at)) for group, at in self._latest.items()] or [
            0
        ]
        return {
            "v": VERSION,
            "groups": {group: {"next": at} for group, at in self._latest.items()},
            "metrics": {
                "avgOffsetsBehindLatest": sum(behind) / len(behind),
                "maxOffsetsBehindLatest": max(behind),
                "minOffsetsBehindLatest": min(behind),
            },
        }

    @told
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark names it
        """Let the stream end with what is committed now; other streams read on by themselves."""
        logs = open_all(self._options)
        self._target = {_group_of(log): next_of(log) for log in logs}
        warn_of_unrecorded(logs)

    @told
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return ranges of about equal size of one batch.

        Raises:
            LogReplaced: a log is not the one that the stream has read.
            LogBehind: the nodes here do not have all entries of the batch.
            DataLost: entries are gone, and failOnDataLoss is on.
        """
        begins, ends = decode_offset(start), decode_offset(end)
        logs = {_group_of(log): log for log in open_all(self._options)}
        self._check_gone(ends, logs)
        pieces = [
            piece
            for group, stop in ends.items()
            if group in logs
            for piece in self._pieces(logs[group], begins.get(group), stop)
        ]
        require_topics(self._judge, self._options, list(logs.values()))
        return pieces

    @told_rows
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_piece(partition, self._options, self._columns, self._options.topics)

    def _pieces(
        self, log: ReadableLog, begin: GroupOffset | None, end: GroupOffset
    ) -> Iterator[InputPartition]:
        first = log.first_index if begin is None else begin.next
        if first >= end.next:
            return
        if begin is not None:
            check_same(log, begin)
        check_same(log, end)
        if end.next > next_of(log) and log.mark(end.next - 1) != end.before:
            raise LogBehind(log.name, end.next - 1, next_of(log) - 1)
        self._check_kept(log, first, end.next)
        first = max(first, log.first_index)
        entries = range(first, max(first, end.next))
        yield from plan(log, entries, min(log.first_index, first), self._options, self._judge)

    def _waits(self, available: Mapping[str, range]) -> bool:
        """Return whether a batch waits for minOffsetsPerTrigger; the first one never does."""
        least = self._options.min_rows
        now_s = monotonic()
        if least is None:
            return False
        rows = sum(map(len, available.values()))
        if rows < least and now_s - self._triggered_s <= self._options.max_delay_s:
            return True
        self._triggered_s = now_s
        return False

    def _check_kept(self, log: ReadableLog, first: int, stop: int) -> None:
        """Raises DataLost: a log lacks the first entries of a range, and options do not allow
        that.
        """
        if first < log.first_index and self._options.fail_on_data_loss:
            raise _removed(log, first, min(log.first_index, stop) - 1)

    def _check_gone(self, offset: dict[str, GroupOffset], logs: dict[str, ReadableLog]) -> None:
        for group, at in offset.items():
            if group not in logs and self._options.fail_on_data_loss:
                problem = f"{self._options.path} no longer holds a log of group {group!r}"
                raise DataLost(problem, at.next, at.next, "put a node of it there")

    def _limited(
        self, available: dict[str, range], logs: dict[str, ReadableLog], limit: ReadLimit
    ) -> dict[str, int]:
        """Return where to stop in each log, so that all together are within the limits."""
        max_rows, max_bytes = None, None
        if not isinstance(limit, ReadAllAvailable):
            max_rows, max_bytes = self._options.max_rows, self._options.max_bytes
        if isinstance(limit, ReadMaxRows):
            max_rows = limit.max_rows
        elif isinstance(limit, ReadMaxBytes):
            max_bytes = limit.max_bytes
        if max_rows is not None:
            available = _share(available, max_rows)
        if max_bytes is None:
            return {group: entries.stop for group, entries in available.items()}
        total = sum(map(len, available.values()))
        return {
            group: logs[group].stop_within(entries, max(1, max_bytes * len(entries) // total))
            for group, entries in available.items()
        }


def check_same(log: ReadableLog, at: GroupOffset) -> None:
    """Check that the entry before an offset is the one that the stream has read.

    An entry that is no longer kept cannot be compared; but terms never fall, so a log that begins
    behind it, in a smaller term, is another one. Nor can one be compared that this node does not
    know to be committed: it may still have another one there, which it will replace.

    Raises:
        LogReplaced: it is another one.
    """
    if at.next > next_of(log):
        return
    found = log.mark(at.next - 1)
    if found is not None and differ(found, at.before):
        raise LogReplaced(log.name, at.next - 1, tuple(at.before), tuple(found))
    if found is None and at.next < log.first_index:
        later = log.mark(log.first_index - 1)
        if later is not None and NO_TERM < later.term < at.before.term:
            raise LogReplaced(log.name, at.next - 1, tuple(at.before), tuple(later))


def _offset_at(log: ReadableLog, index: int) -> GroupOffset:
    return GroupOffset(index, log.mark(index - 1) or UNKNOWN)


def _share(available: dict[str, range], max_rows: int) -> dict[str, range]:
    """Return the first `max_rows` of all ranges, in proportion to their lengths."""
    total = sum(map(len, available.values()))
    if total <= max_rows:
        return available
    shares = {group: len(entries) * max_rows // total for group, entries in available.items()}
    left = max_rows - sum(shares.values())
    for group in sorted(shares, key=lambda group: len(available[group]), reverse=True)[:left]:
        shares[group] += 1
    return {group: available[group][:rows] for group, rows in shares.items() if rows}


def _group_of(log: ReadableLog) -> str:
    if log.group is None:
        problem = "is a folder of Java's, which does not say how far it is committed: read a batch"
        raise LogFolderInvalid(log.name, problem)
    return log.group


def _removed(log: ReadableLog, first: int, last: int) -> DataLost:
    problem = (
        f"the stream goes on at entry {first}, and {log.name} now begins with {log.first_index}"
    )
    return DataLost(problem, first, last, _REMEDY)
