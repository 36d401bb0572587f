"""The messages in the log: where the queues end, and the ages of parts of the log."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from broker.log.state import Deletion, Rows, StatePart, mapping_rows
from broker.messages.ended_topics import EndedTopics
from broker.messages.passed_over import PassedOver
from broker.messages.quarter_counts import QuarterCounts
from broker.messages.time_marks import TimeMarks


@dataclass(slots=True)
class Messages:
    """Facts about the messages in the log.

    Attributes:
        queue_ends: by topic: queue id -> offset of its next message.
        begins: by topic: offset of the first message of each queue; absent if 0.
        ended: the deleted topics.
        messages: how many records were folded.
        store_timestamp_ms: of the newest message. Later messages are never older, so a binary
            search finds a time, whatever the clocks of successive leaders say.
        kept_from: index of the first entry that is kept; 0 if none was ever dropped.
        kept_position: where that entry begins. No message before it can be read.
    """

    queue_ends: dict[str, dict[int, int]] = field(default_factory=dict)
    begins: dict[str, int] = field(default_factory=dict)
    ended: EndedTopics = field(default_factory=EndedTopics)
    messages: int = 0
    store_timestamp_ms: int = 0
    time_marks: TimeMarks = field(default_factory=TimeMarks)
    quarter_counts: QuarterCounts = field(default_factory=QuarterCounts)
    kept_from: int = 0
    kept_position: int = 0
    passed_over: PassedOver = field(default_factory=PassedOver)

    def queue_end(self, topic: str, queue_id: int) -> int:
        ends = self.queue_ends.get(topic)
        end = None if ends is None else ends.get(queue_id)
        return self.begins.get(topic, 0) if end is None else end


def _topic_made(messages: Messages, topic: str) -> None:
    if begin := messages.ended.take(topic):
        messages.begins[topic] = begin


def _topic_deleted(messages: Messages, deletion: Deletion) -> None:
    ends = messages.queue_ends.pop(deletion.name, {})
    begin = messages.begins.pop(deletion.name, 0)
    if deletion.keeps_ends:
        messages.ended.add(deletion.name, max(begin, *ends.values(), 0))


def _captured_times(messages: Messages) -> Iterator[object]:
    marks = messages.time_marks
    return iter([list(marks.times_ms), list(marks.indexes), marks.next_ms])


def _take_times(messages: Messages, rows: list[Any]) -> None:
    times_ms, indexes, next_ms = rows
    messages.time_marks = TimeMarks(list(times_ms), list(indexes), int(next_ms))


def _captured_quarters(messages: Messages) -> Iterator[object]:
    counts = messages.quarter_counts
    return iter([list(counts.begins_ms), list(counts.counts), counts.next_ms])


def _take_quarters(messages: Messages, rows: list[Any]) -> None:
    begins_ms, counts, next_ms = rows
    messages.quarter_counts = QuarterCounts(list(begins_ms), list(counts), int(next_ms))


def _captured_ends(messages: Messages) -> Iterator[object]:
    rows: list[list[object]] = [[topic, ends.copy()] for topic, ends in messages.queue_ends.items()]
    return iter(rows)


def _take_ends(messages: Messages, rows: list[Any]) -> None:
    messages.queue_ends.update((topic, table) for topic, table in rows)


def _captured_ended(messages: Messages) -> Iterator[object]:
    ended = messages.ended
    rows: list[list[object]] = [list(row) for row in ended.ends.items()]
    if ended.forgotten_end:
        rows.append(["", ended.forgotten_end])  # no topic has this name
    return iter(rows)


def _take_ended(messages: Messages, rows: list[Any]) -> None:
    ended = messages.ended
    ended.ends.update((str(topic), int(end)) for topic, end in rows)
    ended.forgotten_end = ended.ends.pop("", ended.forgotten_end)


def _captured_passed_over(messages: Messages) -> Iterator[object]:
    return iter(messages.passed_over.indexes.copy())


def _take_passed_over(messages: Messages, rows: list[Any]) -> None:
    messages.passed_over.indexes += map(int, rows)


MESSAGES: Final = StatePart(
    "messages",
    Messages,
    numbers=("messages", "store_timestamp_ms", "kept_from", "kept_position"),
    rows=(
        Rows("times", _captured_times, _take_times),
        Rows("quarters", _captured_quarters, _take_quarters),
        Rows("ends", _captured_ends, _take_ends),
        mapping_rows("begins of topics", lambda messages: messages.begins, int),
        Rows("ended topics", _captured_ended, _take_ended),
        Rows("passed over", _captured_passed_over, _take_passed_over),
    ),
    topic_made=_topic_made,
    topic_deleted=_topic_deleted,
)
