"""The folded state as bytes: what is restored is what was captured, at any place of any log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import SnapshotUnreadable
from broker.features import REGISTRY, empty_state
from broker.log.entry import encode_log_command
from broker.log.fold import fold
from broker.log.folded import EntryRefused
from broker.log.state_snapshot import captured, restored
from broker.messages import time_marks
from broker.messages.passed_over import PassedOver
from broker.messages.quarter_counts import QuarterCounts
from broker.messages.record_facts import units_of
from broker.messages.state import MESSAGES
from broker.messages.time_marks import MARK_EVERY_MS, TimeMarks
from broker.offsets.commands import CommitOffsets, CommittedOffset
from broker.retention.commands import KeepLogFrom
from broker.topics.commands import PutTopic
from dledger.entry import HEADER_BYTES, Entry
from remoting.bodies.topic_config import TopicConfig
from remoting.message.record import MessageRecord, encode_record
from tests.broker.log.test_broker_fold import Log, actions, build, with_topic
from tests.examples import examples

DATA = Path(__file__).parents[1] / "data"


@given(actions, st.data())
@settings(max_examples=examples(100))
def test_a_restored_state_goes_on_like_the_one_that_was_captured(
    script: Sequence[tuple[str, str, int]], data: st.DataObject
) -> None:
    log = build(script)
    cut = data.draw(st.integers(0, len(log.entries)))
    state = empty_state()
    fold(state, log.entries[:cut])
    chunks = captured(state)
    whole = empty_state()
    fold(whole, log.entries[:cut])
    # What is folded after the call does not get into the snapshot.
    rest = fold(state, log.entries[cut:])
    again = restored(chunks, REGISTRY)
    assert again == whole
    assert fold(again, log.entries[cut:]).results == rest.results
    assert again == state


def test_large_states_are_cut_into_chunks() -> None:
    log, state = Log(), empty_state()
    for number in range(1200):
        name = f"topic-{number}"
        log.append(encode_log_command(PutTopic(TopicConfig(name, attributes={"a": "b"}), number)))
        log.append(
            encode_log_command(CommitOffsets([CommittedOffset("g", name, 7, number)], number))
        )
    fold(state, log.entries)
    chunks = list(captured(state))
    assert len(chunks) > 5
    assert restored(chunks, REGISTRY) == state


@pytest.mark.parametrize(
    "chunk",
    [
        b"",
        b"\xc1",
        msgpack.packb(["numbers", [["kept_form", 1]]]),
        msgpack.packb(["topics", [["T"]]]),
        msgpack.packb(["groups", [{"name": 1}]]),
        msgpack.packb(["something", []]),
        msgpack.packb(7),
    ],
)
def test_a_chunk_of_another_shape_is_refused(chunk: bytes) -> None:
    with pytest.raises(SnapshotUnreadable):
        restored([chunk], REGISTRY)


# --- retention in the fold ------------------------------------------------------------------------


def keep(log: Log, index: int, position: int) -> Entry:
    return log.append(encode_log_command(KeepLogFrom(index, position, 9)))


def test_retention_is_folded_and_never_goes_back() -> None:
    log, state = Log(), empty_state()
    with_topic(log)
    entries = [log.append_record("A", 0, number) for number in range(5)]
    keep(log, entries[2].index, entries[2].pos)
    assert fold(state, log.entries).results[-1] is None
    assert (state[MESSAGES].kept_from, state[MESSAGES].kept_position) == (
        entries[2].index,
        entries[2].pos,
    )
    for index, position in (
        (entries[1].index, entries[1].pos),
        (entries[2].index, entries[2].pos),
        (entries[3].index, entries[1].pos),
        (entries[1].index, entries[3].pos),
        (1000, entries[3].pos),
        (entries[3].index, 1_000_000),
    ):
        (result,) = fold(state, [keep(log, index, position)]).results
        assert isinstance(result, EntryRefused)
    assert (state[MESSAGES].kept_from, state[MESSAGES].kept_position) == (
        entries[2].index,
        entries[2].pos,
    )
    assert restored(captured(state), REGISTRY) == state


def record_at(log: Log, time_ms: int, offset: int) -> Entry:
    record = MessageRecord(
        "A",
        b"x",
        queue_offset=offset,
        store_timestamp=time_ms,
        physical_offset=sum(HEADER_BYTES + len(entry.body) for entry in log.entries) + HEADER_BYTES,
    )
    return log.append(encode_record(record))


@given(st.lists(st.integers(0, 3 * MARK_EVERY_MS), min_size=1, max_size=60), st.data())
def test_what_is_told_to_be_old_enough_is_old_enough_and_little_else_is_kept(
    steps: list[int], data: st.DataObject
) -> None:
    log, state = Log(), empty_state()
    with_topic(log)
    times: dict[int, int] = {}
    now = 1
    for offset, step in enumerate(steps):
        now += step
        times[record_at(log, now, offset).index] = now
    fold(state, log.entries)
    asked = data.draw(st.integers(0, now + MARK_EVERY_MS))
    first = state[MESSAGES].time_marks.first_since(asked)
    assert all(time <= asked for index, time in times.items() if index < first)
    late = [time for index, time in times.items() if index >= first and time <= asked]
    assert not late or max(late) - min(late) <= MARK_EVERY_MS


def test_marks_are_thinned_out_where_they_are_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_marks, "MAX_MARKS", 8)
    marks = TimeMarks()
    for number in range(1000):
        marks.add(number * MARK_EVERY_MS, number, number * MARK_EVERY_MS)
        assert len(marks.indexes) <= 8
    assert marks.times_ms == [index * MARK_EVERY_MS for index in marks.indexes]
    assert (marks.indexes[0], marks.indexes[-1]) == (0, 999)
    marks.drop_before(990)
    assert marks.indexes[0] <= 990


def test_a_log_and_a_snapshot_of_an_earlier_program_mean_what_they_meant() -> None:
    # Written by the program before its state was cut into parts: every command in each version,
    # entries that are refused, and the snapshot of the state behind them.
    found = msgpack.unpackb((DATA / "folded-log.msgpack").read_bytes())
    log, state = Log(), empty_state()
    for body in found["bodies"]:
        log.append(body)
    folded = fold(state, log.entries)
    refused = [at for at, result in enumerate(folded.results) if result is not None]
    assert refused == found["refused"]
    assert folded.deleted_topics == found["deleted"]
    arrivals = [
        [topic, queue_id, one.first_offset, units_of(one)]
        for (topic, queue_id), one in folded.arrivals.items()
    ]
    assert arrivals == found["arrivals"]
    again = restored(found["chunks"], REGISTRY)
    # That program did not count messages by quarters of an hour.
    assert again[MESSAGES].quarter_counts == QuarterCounts()
    again[MESSAGES].quarter_counts = state[MESSAGES].quarter_counts
    # Nor did it keep which records it passed over.
    assert again[MESSAGES].passed_over == PassedOver()
    assert len(state[MESSAGES].passed_over.indexes) > 0
    again[MESSAGES].passed_over = state[MESSAGES].passed_over
    assert again == state
    rows, then = rows_of(captured(state)), rows_of(found["chunks"])
    # What came later is as in an empty log.
    first = {name for name, _value in rows_of(captured(empty_state()))["numbers"]}
    later = first - {name for name, _value in then["numbers"]}
    assert later == {
        *("access_changes", "delivered", "dropped", "format_version"),
        *("committed", "given_up", "rolled_back"),
        *("redriven_letters", "resets_made", "setting_changes", "settings_changed_ms"),
    }
    rows["numbers"] = [row for row in rows["numbers"] if row[0] not in later]
    del rows["quarters"], rows["passed over"]
    assert rows == then


def rows_of(chunks: Iterable[bytes]) -> dict[str, list[Any]]:
    """The rows of a snapshot by what they are. The order of numbers does not matter."""
    rows: dict[str, list[Any]] = {}
    for chunk in chunks:
        what, some = msgpack.unpackb(chunk, strict_map_key=False)
        rows.setdefault(what, []).extend(some)
    rows["numbers"].sort()
    return rows
