"""Decides which message records the brokers have accepted, and which they have refused. Pure.

A broker's members refuse a record that cannot be decoded, that does not hold its own position,
whose topic does not exist, or whose queue offset is not the next one of its queue; the leader
reports that to the sender (see "What the log holds" in docs/broker.md). The usual cause is a topic
that is deleted while messages are in flight. Such a record does not count as a message.

A record may also be refused with the command that follows it, when two leaders deliver the same
delayed message. A leader proposes no delivery before it has seen those of its predecessor, so this
is not judged here.

The rule needs the history: the topics that exist and the ends of their queues. A reader that begins
with the log's first entry has it. For a reader of a log without its beginning, a topic is unknown
until it is deleted; its records count until then.

Logs of Java's brokers are not judged: their topics are not in the log.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from broker.errors import CommandMalformed, EntryTooNew
from broker.features import REGISTRY
from broker.formats.commands import RaiseFormat
from broker.log.entry import PREFIX_BYTES, RUNS_VERSION
from broker.messages.ended_topics import MAX_ENDED_TOPICS
from broker.topics.commands import DeleteTopic, PutTopic
from broker.topics.names import FIRST_TOPICS
from dledger_spark.entries.entry_columns import HEADER_BYTES, bounds, number_at
from dledger_spark.records.body_pieces import are_commands, record_pieces
from dledger_spark.records.message_columns import message_batch
from remoting.message.record import BORN_HOST_V6_FLAG, MESSAGE_MAGIC, STORE_HOST_V6_FLAG

# The columns of the table of messages that `judge` needs.
COLUMNS: Final = ("index", "topic", "queue", "offset", "physical_offset", "system_flag")
_V6: Final = BORN_HOST_V6_FLAG | STORE_HOST_V6_FLAG

_KINDS: Final = (PutTopic.kind, DeleteTopic.kind, RaiseFormat.kind)

Numbers = npt.NDArray[np.int64]
# First and last index of a run of refused records; all records between them are refused, too.
Run = tuple[int, int]


class _TopicChange(NamedTuple):
    """A command that creates or deletes a topic.

    Attributes:
        max_topics: if there are as many topics no other is created; None: no limit.
        keeps_ends: the queues of a topic that is made again begin where they ended.
    """

    index: int  # type: ignore[assignment]  # hides tuple.index
    topic: str
    exists: bool
    max_topics: int | None = None
    keeps_ends: bool = False


class _FormatRaised(NamedTuple):
    """A command behind which entries may hold several records."""

    index: int  # type: ignore[assignment]  # hides tuple.index


class QueueRun(NamedTuple):
    topic: str
    queue: int
    first_offset: int
    messages: int


class Acceptance:
    """The topics and queue ends at one place of the log, which decide on the records behind it.

    With `is_whole` all earlier entries of the log are known, and an unknown topic does not exist.
    """

    def __init__(self, *, is_whole: bool) -> None:
        self._is_whole = is_whole
        self._has_runs = not is_whole  # whether entries may hold several records
        # The next offset of each queue, by topic; None for a topic that certainly does not exist.
        self._ends: dict[str, dict[int, int] | None] = {}
        self._existing = set(FIRST_TOPICS)
        # The first offset of the queues of existing topics, if it is not 0.
        self._begins: dict[str, int] = {}
        # The first offset of the queues of deleted topics that are made again; None if unknown.
        self._ended: dict[str, int | None] = {}
        self._forgotten_end = 0

    def judge(self, entries: pa.RecordBatch, records: pa.RecordBatch) -> list[Run]:
        """Process the next entries; return the records that the brokers have refused.

        `entries` is a batch of the table of entries, and `records` are all records in it, with the
        columns `COLUMNS` of the table of messages or more.
        """
        index = records.column("index").to_numpy()
        refused = []
        start = 0
        for change in _topic_changes(entries):
            stop = int(np.searchsorted(index, change.index))
            refused.append(self._judge_records(records.slice(start, stop - start), entries))
            if isinstance(change, _FormatRaised):
                self._has_runs = True
            else:
                self._change(change)
            start = stop
        refused.append(self._judge_records(records.slice(start), entries))
        return _runs(index, np.unique(np.concatenate(refused)))

    @property
    def topics(self) -> frozenset[str] | None:
        """All topics so far, also deleted ones; None if earlier entries are missing."""
        return frozenset((*self._ends, *FIRST_TOPICS)) if self._is_whole else None

    def forget(self) -> None:
        """Go on behind missing entries: what they did to topics is unknown."""
        vars(self).update(vars(Acceptance(is_whole=False)))

    def encode(self) -> bytes:
        ends = {
            topic: None if queues is None else sorted([queue, end] for queue, end in queues.items())
            for topic, queues in self._ends.items()
        }
        content = [
            *(self._is_whole, ends, self._has_runs),
            *(self._begins, self._ended, self._forgotten_end),
        ]
        return json.dumps(content, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, content: bytes) -> Acceptance:
        """Decode the state from `encode`. Raises ValueError, TypeError."""
        is_whole, ends, *later = json.loads(content)
        state = cls(is_whole=bool(is_whole))
        # The states of an earlier version lack it, and its logs have no such entries yet.
        state._has_runs = bool(later[0]) if later else not is_whole
        state._ends = {
            topic: None if queues is None else {int(queue): int(end) for queue, end in queues}
            for topic, queues in ends.items()
        }
        for topic, queues in state._ends.items():
            (state._existing.discard if queues is None else state._existing.add)(topic)
        if len(later) > 1:
            _, state._begins, state._ended, state._forgotten_end = later
        return state

    def _change(self, change: _TopicChange) -> None:
        topic, limit = change.topic, change.max_topics
        if not change.exists:
            self._delete(topic, change.keeps_ends)
            return
        is_new = topic not in self._existing
        if is_new:
            # The number of topics is unknown without the log's beginning.
            if self._is_whole and limit is not None and len(self._existing) >= limit:
                return
            self._existing.add(topic)
        if self._ends.get(topic, None if self._is_whole else {}) is None:
            self._ends[topic] = {}
            if is_new:
                self._begin(topic)

    def _delete(self, topic: str, keeps_ends: bool) -> None:
        ends, begin = self._ends.get(topic), self._begins.pop(topic, 0)
        if keeps_ends and (topic in self._existing or not self._is_whole):
            if ends is None and topic not in self._ends and not self._is_whole:
                self._ended[topic] = None
            elif last := max([begin, *(ends or {}).values()]):
                self._ended[topic] = last
            if len(self._ended) > MAX_ENDED_TOPICS:
                forgotten = self._ended.pop(next(iter(self._ended)))
                self._forgotten_end = max(self._forgotten_end, forgotten or 0)
        self._ends[topic] = None
        self._existing.discard(topic)

    def _begin(self, topic: str) -> None:
        begin = self._ended.pop(topic, self._forgotten_end)
        if begin is None:
            del self._ends[topic]  # it is unknown again
        elif begin:
            self._begins[topic] = begin

    def _judge_records(self, records: pa.RecordBatch, entries: pa.RecordBatch) -> Numbers:
        if not len(records):
            return np.empty(0, np.int64)
        index, queues, offsets, places, flags = (
            records.column(name).to_numpy().astype(np.int64)
            for name in ("index", "queue", "offset", "physical_offset", "system_flag")
        )
        rows_of = index - entries.column("index")[0].as_py()
        positions = entries.column("pos").to_numpy()[rows_of] + HEADER_BYTES
        shared = np.bincount(rows_of)[rows_of] > 1
        if shared.any():
            positions = positions + _places_in_bodies(entries, rows_of)
        bodies = entries.column("body")
        begins, _ends = bounds(bodies)
        marks = number_at(bodies.buffers()[2], begins[rows_of] + 4)
        fits = (
            (self._has_runs | ~shared)
            & (places == positions)
            & (queues >= 0)
            & (flags & _V6 == 0)
            & (marks & 0xFFFFFFFF == MESSAGE_MAGIC)
        )
        coded = records.column("topic").dictionary_encode()
        topics = coded.indices.to_numpy().astype(np.int64)
        names = coded.dictionary.to_pylist()
        # Sort rows by queue; within a queue they keep the order of the log. numpy sorts short
        # numbers many times faster.
        keys = topics * (int(queues.max()) + 1) + queues
        short = keys.astype(np.int16)
        rows = np.argsort(short if (short == keys).all() else keys, kind="stable")
        rows = rows[fits[rows]]
        borders = np.flatnonzero(np.diff(keys[rows])) + 1
        of_queues = [
            (names[topics[rows[start]]], int(queues[rows[start]]), start, stop)
            for start, stop in pairwise((0, *borders.tolist(), len(rows)))
            if start < stop
        ]
        if fits.all() and self._take_all(of_queues, offsets[rows]):
            return np.empty(0, np.int64)
        if shared.any():
            # All records of an entry are refused together.
            in_order = zip(
                index.tolist(),
                [names[topic] for topic in topics.tolist()],
                queues.tolist(),
                offsets.tolist(),
                fits.tolist(),
                strict=True,
            )
            return self._judge_entries(in_order)
        refused = [np.flatnonzero(~fits)]
        refused += [
            self._judge_queue(topic, queue, rows[start:stop], offsets)
            for topic, queue, start, stop in of_queues
        ]
        found: Numbers = index[np.concatenate(refused)]
        return found

    def _judge_entries(self, records: Iterable[tuple[int, str, int, int, bool]]) -> Numbers:
        """Return the indexes of the refused entries, each accepted as a whole or not at all.

        `records`: index, topic, queue, offset, and whether the record itself is acceptable.
        """
        refused: list[int] = []
        for index, of_entry in groupby(records, itemgetter(0)):
            ends: dict[tuple[str, int], int] = {}
            for _, topic, queue, offset, fits in of_entry:
                end = ends.get((topic, queue))
                if end is None:
                    end = self._end(topic, queue, offset)
                if not fits or offset != end:
                    refused.append(index)
                    break
                ends[topic, queue] = end + 1
            else:
                for (topic, queue), end in ends.items():
                    known = self._ends.get(topic)
                    if known is not None:
                        known[queue] = end
        return np.array(refused, np.int64)

    def _end(self, topic: str, queue: int, offset: int) -> int | None:
        """Return the next offset of a queue, `offset` if it is unknown; None if there is no
        topic.
        """
        ends = self._ends.get(topic)
        if ends is not None:
            return ends.get(queue, self._begins.get(topic, 0))
        return offset if topic not in self._ends and not self._is_whole else None

    def _take_all(self, of_queues: Sequence[tuple[str, int, int, int]], offsets: Numbers) -> bool:
        """Accept the records of all queues if each continues its queue.

        `of_queues`: topic, queue, and where its records begin and end in `offsets`, which are
        sorted by queue.
        """
        goes_on = np.diff(offsets) == 1
        if not all(goes_on[start : stop - 1].all() for _, _, start, stop in of_queues):
            return False
        return self.take(
            [
                QueueRun(topic, queue, int(offsets[start]), stop - start)
                for topic, queue, start, stop in of_queues
            ]
        )

    def take(self, runs: Sequence[QueueRun]) -> bool:
        """Accept the next records of the log if each run continues its queue; return whether it
        did.

        No record may be unacceptable in itself, and each queue may have one run. If one run does
        not fit, the state does not change.
        """
        for topic, queue, first, _messages in runs:
            if self._end(topic, queue, first) != first:
                return False
        for topic, queue, first, messages in runs:
            known = self._ends.get(topic)
            if known is not None:
                known[queue] = first + messages
        return True

    def _judge_queue(self, topic: str, queue: int, rows: Numbers, offsets: Numbers) -> Numbers:
        ends = self._ends.get(topic)
        if ends is None:
            is_unknown = topic not in self._ends and not self._is_whole
            return rows[:0] if is_unknown else rows
        first = ends.get(queue, self._begins.get(topic, 0))
        refused = []
        for row, offset in zip(rows.tolist(), offsets[rows].tolist(), strict=True):
            if offset == first:
                first += 1
            else:
                refused.append(row)
        ends[queue] = first
        return np.array(refused, np.int64)


def _places_in_bodies(entries: pa.RecordBatch, rows_of: Numbers) -> Numbers:
    """Return the place of each record in the body of its entry, whose row is in `rows_of`."""
    bodies = entries.column("body")
    pieces = record_pieces(bodies)
    if pieces is None:
        return np.zeros(len(rows_of), np.int64)
    # All pieces of an entry with records are records.
    of_records = np.isin(pieces.rows, rows_of)
    begins, _ends = bounds(bodies)
    return (pieces.begins - begins[pieces.rows])[of_records]


def without(records: pa.RecordBatch, refused: Sequence[Run]) -> pa.RecordBatch:
    """Return a batch of the table of messages, with the column "index", without refused records."""
    if not refused or not len(records):
        return records
    index = records.column("index").to_numpy()
    firsts, lasts = np.array(refused, np.int64).T
    run = np.searchsorted(firsts, index, side="right") - 1
    kept = (run < 0) | (index > lasts[run])
    return records if kept.all() else records.filter(pa.array(kept))


def accepted_messages(
    entries: pa.RecordBatch, refused: Sequence[Run], names: Sequence[str]
) -> pa.RecordBatch:
    if not refused:
        return message_batch(entries, names)
    with_index = message_batch(entries, list(dict.fromkeys((*names, "index"))))
    return without(with_index, refused).select(names)


def _runs(candidates: Numbers, refused: Numbers) -> list[Run]:
    """Return the runs of refused candidates; a candidate that is not refused ends a run."""
    if not len(refused):
        return []
    places = np.searchsorted(np.unique(candidates), refused)
    borders = np.flatnonzero(np.diff(places) != 1)
    firsts = refused[np.append(0, borders + 1)]
    lasts = refused[np.append(borders, len(refused) - 1)]
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))


def changes_topics(entries: pa.RecordBatch) -> bool:
    """Return whether one of these entries decides on the records behind it."""
    return bool(_topic_changes(entries))


def _topic_changes(entries: pa.RecordBatch) -> list[_TopicChange | _FormatRaised]:
    """Return the commands that create or delete a topic or raise the format, in order."""
    bodies = entries.column("body")
    begins, ends = bounds(bodies)
    rows = np.flatnonzero(ends - begins >= PREFIX_BYTES)
    if not len(rows):
        return []
    data = bodies.buffers()[2]
    rows = rows[are_commands(data, begins[rows], ends[rows])]
    # Most commands are commits of offsets. A short array, and a number below 128, are a byte each.
    long = ends[rows] - begins[rows] >= PREFIX_BYTES + 2
    octets = np.frombuffer(data, np.uint8)
    at = np.where(long, begins[rows] + PREFIX_BYTES, 0)
    kinds = octets[at + 1]
    is_other = long & (octets[at] >> 4 == 9) & (kinds < 128) & ~np.isin(kinds, _KINDS)
    rows = rows[~is_other]
    changes: list[_TopicChange | _FormatRaised] = []
    for row in rows.tolist():
        change = _topic_change(entries.column("index")[row].as_py(), bodies[row].as_py())
        if change is not None:
            changes.append(change)
    return changes


def _topic_change(index: int, body: bytes) -> _TopicChange | _FormatRaised | None:
    """Return the change of a command; None for other and for malformed commands."""
    try:
        command = REGISTRY.decode(body)
    except (CommandMalformed, EntryTooNew):
        return None
    match command:
        case PutTopic():
            return _TopicChange(index, command.config.topic, True, command.max_topics)
        case DeleteTopic():
            return _TopicChange(index, command.topic, False, None, command.keeps_ends)
        case RaiseFormat() if command.version >= RUNS_VERSION:
            return _FormatRaised(index)
    return None
