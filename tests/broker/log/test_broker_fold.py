from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import EntryTooNew
from broker.features import empty_state
from broker.formats.commands import RaiseFormat
from broker.groups.commands import DeleteGroup, PutGroup
from broker.groups.config import ConsumerGroup
from broker.groups.state import GROUPS
from broker.locks.commands import LockQueues
from broker.locks.state import LOCKS
from broker.log.entry import FORMAT_VERSION, RUNS_VERSION, encode_log_command
from broker.log.fold import fold
from broker.log.folded import Arrivals, EntryRefused, Folded
from broker.messages.record_facts import UNIT, read_record_facts, units_of
from broker.messages.record_run import read_run
from broker.messages.state import MESSAGES
from broker.offsets.commands import CommitOffsets, CommittedOffset
from broker.offsets.state import OFFSETS
from broker.topics.commands import DeleteTopic, PutTopic
from broker.topics.state import TOPICS
from dledger.entry import HEADER_BYTES, Entry, Magic
from remoting.bodies.topic_config import TopicConfig
from remoting.message.properties import encode_properties
from remoting.message.record import MessageRecord, decode_record, encode_record
from remoting.message.tags import tags_code
from tests.examples import examples

TOPIC_NAMES = ("A", "B")


class Log:
    """Entries as a leader would append them: each record knows its place and its offset."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.state = empty_state()
        self._pos = 0

    @property
    def end(self) -> int:
        """The position behind the last entry."""
        return self._pos

    def append(self, body: bytes) -> Entry:
        entry = Entry(len(self.entries), 1, self._pos, Magic.NORMAL, body)
        self._pos += HEADER_BYTES + len(body)
        self.entries.append(entry)
        return entry

    def append_record(
        self, topic: str, queue_id: int, offset: int, tag: str = "", attached: bytes = b""
    ) -> Entry:
        record = MessageRecord(
            topic,
            b"body",
            encode_properties({"KEYS": "TAGS", "TAGS": tag}) if tag else b"",
            queue_id=queue_id,
            queue_offset=offset,
            physical_offset=self._pos + HEADER_BYTES,
            store_timestamp=1000 + len(self.entries),
        )
        return self.append(encode_record(record) + attached)

    def record_at(self, topic: str, queue_id: int, offset: int, before: int) -> bytes:
        """A record behind so many bytes of the next entry."""
        return encode_record(
            MessageRecord(
                topic,
                b"body",
                encode_properties({"TAGS": f"{topic}{offset}"}),
                queue_id=queue_id,
                queue_offset=offset,
                physical_offset=self._pos + HEADER_BYTES + before,
                store_timestamp=1000 + len(self.entries),
            )
        )

    def append_records(self, *places: tuple[str, int, int]) -> Entry:
        """Several records in one entry."""
        body = b""
        for topic, queue_id, offset in places:
            body += self.record_at(topic, queue_id, offset, len(body))
        return self.append(body)


actions = st.lists(
    st.one_of(
        st.tuples(st.just("record"), st.sampled_from(TOPIC_NAMES), st.integers(0, 1)),
        st.tuples(st.just("records"), st.sampled_from(TOPIC_NAMES), st.integers(1, 3)),
        st.tuples(st.just("format"), st.just(""), st.just(0)),
        st.tuples(st.just("wrong offset"), st.sampled_from(TOPIC_NAMES), st.integers(0, 1)),
        st.tuples(st.just("put"), st.sampled_from(TOPIC_NAMES), st.integers(1, 3)),
        st.tuples(st.just("delete"), st.sampled_from(TOPIC_NAMES), st.just(0)),
        st.tuples(st.just("offset"), st.sampled_from(TOPIC_NAMES), st.integers(0, 9)),
        st.tuples(st.just("group"), st.sampled_from(("g", "h")), st.integers(0, 1)),
        st.tuples(st.just("foreign"), st.just(""), st.integers(0, 255)),
    ),
    max_size=40,
)


def build(script: Sequence[tuple[str, str, int]]) -> Log:
    log = Log()
    ends: dict[tuple[str, int], int] = {}
    begins: dict[str, int] = {}  # of topics that exist, or are made again
    existing: set[str] = set()
    for at, (what, name, number) in enumerate(script):
        if what == "record":
            offset = ends.get((name, number), begins.get(name, 0))
            log.append_record(name, number, offset, "T" * (at % 3))
            ends[name, number] = offset + 1
        elif what == "records":
            places = []
            for count in range(1 + number):
                key = (name, count % 2)
                places.append((*key, ends.get(key, begins.get(name, 0))))
                ends[key] = places[-1][2] + 1
            log.append_records(*places)
        elif what == "format":
            log.append(encode_log_command(RaiseFormat(RUNS_VERSION)))
        elif what == "wrong offset":
            log.append_record(name, number, 1000 + at)
        elif what == "put":
            limit = (None, 5)[at % 2]
            put = PutTopic(TopicConfig(name, number, number), at, max_topics=limit)
            log.append(encode_log_command(put))
            existing.add(name)
        elif what == "delete":
            keeps_ends = at % 3 > 0
            delete = DeleteTopic(name, at, bool(at % 2) or keeps_ends, keeps_ends)
            log.append(encode_log_command(delete))
            of_topic = [end for key, end in ends.items() if key[0] == name]
            if name in existing:
                existing.remove(name)
                begins[name] = max([begins.get(name, 0), *of_topic]) if keeps_ends else 0
            ends = {key: end for key, end in ends.items() if key[0] != name}
        elif what == "offset":
            offset_of = CommittedOffset("g", name, 0, number)
            as_of = (None, log.end, log.end - 200)[at % 3]
            log.append(encode_log_command(CommitOffsets([offset_of], 1, as_of)))
        elif what == "group":
            command = DeleteGroup(name, True) if number else PutGroup(ConsumerGroup(name))
            log.append(encode_log_command(command))
        else:
            log.append(bytes((number,)) * 9)
    return log


def units_in(arrivals: Arrivals) -> list[bytes]:
    units = units_of(arrivals)
    return [units[at : at + UNIT.size] for at in range(0, len(units), UNIT.size)]


def queues_after(folds: Sequence[Folded]) -> dict[tuple[str, int], dict[int, bytes]]:
    """What the consume queues hold after these runs, by offset."""
    queues: dict[tuple[str, int], dict[int, bytes]] = {}
    for folded in folds:
        for topic in folded.deleted_topics:
            queues = {key: units for key, units in queues.items() if key[0] != topic}
        for key, arrived in folded.arrivals.items():
            units = queues.setdefault(key, {})
            assert arrived.first_offset == 1 + max(units, default=arrived.first_offset - 1)
            units.update(enumerate(units_in(arrived), arrived.first_offset))
    return queues


@given(actions, st.data())
@settings(max_examples=examples(150))
def test_equal_logs_give_equal_states_however_they_are_cut_into_runs(
    script: list[tuple[str, str, int]], data: st.DataObject
) -> None:
    log = build(script)
    whole = empty_state()
    all_at_once = fold(whole, log.entries)
    cut = empty_state()
    folds: list[Folded] = []
    at = 0
    while at < len(log.entries):
        size = data.draw(st.integers(1, 7))
        folds.append(fold(cut, log.entries[at : at + size]))
        at += size
    assert cut == whole
    assert [result for one in folds for result in one.results] == all_at_once.results
    assert queues_after(folds) == queues_after([all_at_once])
    for (topic, queue_id), units in queues_after(folds).items():
        assert whole[MESSAGES].queue_end(topic, queue_id) == 1 + max(units)


def with_runs(log: Log) -> None:
    log.append(encode_log_command(RaiseFormat(RUNS_VERSION)))


def with_topic(log: Log, topic: str = "A") -> None:
    log.append(encode_log_command(PutTopic(TopicConfig(topic, 2, 2), 5)))


def test_a_message_is_indexed_by_place_size_and_tag() -> None:
    log, state = Log(), empty_state()
    with_topic(log)
    entry = log.append_record("A", 1, 0, "TagA")
    folded = fold(state, log.entries)
    assert folded.results == [None, None]
    unit = UNIT.pack(entry.body_pos, len(entry.body), tags_code("TagA"))
    assert units_in(folded.arrivals["A", 1]) == [unit]
    assert folded.arrivals["A", 1].codes == [tags_code("TagA")]
    assert state[MESSAGES].queue_end("A", 1) == 1


def test_each_message_of_an_entry_is_indexed_where_it_lies() -> None:
    log, state = Log(), empty_state()
    with_topic(log)
    with_topic(log, "B")
    with_runs(log)
    log.append_record("A", 1, 0)
    entry = log.append_records(("A", 1, 1), ("B", 0, 0), ("A", 1, 2))
    folded = fold(state, log.entries)
    assert folded.results == [None] * 5
    found = {key: units_in(arrived)[-2:] for key, arrived in folded.arrivals.items()}
    records = []
    for units in found.values():
        for unit in units:
            place, size, code = UNIT.unpack(unit)
            at = place - entry.body_pos
            records.append((at, decode_record(entry.body[at : at + size])[0].queue_offset, code))
    assert sorted(records) == [
        (0, 1, tags_code("A1")),
        (len(entry.body) // 3, 0, tags_code("B0")),
        (2 * len(entry.body) // 3, 2, tags_code("A2")),
    ]
    assert folded.arrivals["A", 1].records()[1:] == [
        entry.body[: len(entry.body) // 3],
        entry.body[2 * len(entry.body) // 3 :],
    ]
    assert (state[MESSAGES].messages, state[MESSAGES].queue_end("A", 1)) == (4, 3)


@pytest.mark.parametrize(
    ("places", "why"),
    [
        ([("A", 0, 0), ("A", 0, 2)], "out of its place"),
        ([("A", 0, 0), ("A", 1, 1)], "where 0 is next"),
        ([("A", 0, 1), ("A", 0, 2)], "where 0 is next"),
        ([("A", 0, 0), ("B", 0, 0)], "does not exist"),
    ],
)
def test_of_an_entry_with_a_message_out_of_its_place_none_is_taken(
    places: list[tuple[str, int, int]], why: str
) -> None:
    log, state = Log(), empty_state()
    with_topic(log)
    with_runs(log)
    log.append_records(*places)
    log.append_records(("A", 0, 0), ("A", 1, 0))
    folded = fold(state, log.entries)
    refused = folded.results[2]
    assert isinstance(refused, EntryRefused)
    assert why in refused.reason
    assert folded.results[3] is None
    assert (state[MESSAGES].messages, state.refused_entries) == (2, 1)


@pytest.mark.parametrize("behind", [b"", b"DLB", bytes(100), b"\0\0\0\x0cDLB\4...."])
def test_an_entry_of_records_with_something_else_behind_them_is_passed_over(behind: bytes) -> None:
    log, state = Log(), empty_state()
    with_topic(log)
    with_runs(log)
    first = log.record_at("A", 0, 0, 0)
    log.append(first + log.record_at("A", 0, 1, len(first)) + behind)
    folded = fold(state, log.entries)
    assert (folded.results[2] is None) is (behind == b"")
    assert state[MESSAGES].messages == 2 * (behind == b"")


def test_a_record_that_says_another_place_is_passed_over_with_its_neighbours() -> None:
    log, state = Log(), empty_state()
    with_topic(log)
    with_runs(log)
    first = log.record_at("A", 0, 0, 0)
    log.append(first + log.record_at("A", 0, 1, len(first) + 1))
    assert isinstance(fold(state, log.entries).results[2], EntryRefused)
    assert state[MESSAGES].messages == 0


@pytest.mark.parametrize("first", [0, -1])
def test_an_entry_with_a_record_of_no_queue_is_passed_over(first: int) -> None:
    log = Log()
    begin = log.record_at("A", first, 0, 0)
    assert read_run(begin + log.record_at("A", -1, 1, len(begin)), log.end + HEADER_BYTES) == (
        "records that cannot be read"
    )


def test_topics_that_begin_alike_are_told_apart_in_one_entry() -> None:
    log, state = Log(), empty_state()
    for topic in ("A", "AB"):
        with_topic(log, topic)
    with_runs(log)
    log.append_records(("A", 0, 0), ("AB", 0, 0), ("A", 0, 1), ("A", 0, 2), ("AB", 0, 1))
    folded = fold(state, log.entries)
    assert folded.results == [None] * 4
    assert {key[0]: len(one.records()) for key, one in folded.arrivals.items()} == {"A": 3, "AB": 2}


def test_a_log_of_an_earlier_format_has_no_entry_of_several_records() -> None:
    log, state = Log(), empty_state()
    with_topic(log)
    log.append_records(("A", 0, 0), ("A", 0, 1))
    with_runs(log)
    log.append_records(("A", 0, 0), ("A", 0, 1))
    results = fold(state, log.entries).results
    assert [isinstance(one, EntryRefused) for one in results] == [False, True, False, False]


@given(st.integers(0, 3), st.binary(max_size=60), st.integers(0, 300))
def test_any_bytes_behind_a_record_are_taken_or_passed_over(
    count: int, garbage: bytes, cut: int
) -> None:
    log, state = Log(), empty_state()
    with_topic(log)
    with_runs(log)
    bodies = [b""]
    for offset in range(1 + count):
        bodies.append(bodies[-1] + log.record_at("A", 0, offset, len(bodies[-1])))
    whole = bodies[-1][: max(0, len(bodies[-1]) - cut)] + garbage
    log.append(whole)
    refused = fold(state, log.entries).results[-1]
    taken = state[MESSAGES].messages
    assert (refused is None) is (taken > 0)
    if whole in bodies:
        assert taken == bodies.index(whole)


def test_the_word_tags_in_another_property_is_not_the_tag() -> None:
    body = encode_record(
        MessageRecord("A", b"", encode_properties({"MYTAGS": "no", "X": "TAGS", "TAGS": "yes"}))
    )
    facts = read_record_facts(body)
    assert facts is not None
    assert facts.tags_code == tags_code("yes")
    without = read_record_facts(encode_record(MessageRecord("A", b"TAGS\x01x\x02")))
    assert without is not None
    assert without.tags_code == 0


@given(st.binary(max_size=200))
def test_any_bytes_are_read_as_facts_or_refused(garbage: bytes) -> None:
    record = encode_record(MessageRecord("A", b"x"))
    read_record_facts(garbage)
    read_record_facts(record[:4] + record[4:8] + garbage)
    assert read_record_facts(record[:-1]) is None


def test_a_record_at_another_offset_than_the_next_one_is_passed_over() -> None:
    log, state = Log(), empty_state()
    with_topic(log)
    log.append_record("A", 0, 0)
    log.append_record("A", 0, 0)
    log.append_record("A", 0, 1)
    folded = fold(state, log.entries)
    assert [isinstance(one, EntryRefused) for one in folded.results] == [False, False, True, False]
    assert state[MESSAGES].queue_end("A", 0) == 2
    assert state.refused_entries == 1


def test_a_record_that_lies_elsewhere_than_it_says_is_passed_over() -> None:
    log, state = Log(), empty_state()
    with_topic(log)
    log.append(encode_record(MessageRecord("A", b"x", physical_offset=7)))
    assert isinstance(fold(state, log.entries).results[1], EntryRefused)


def test_a_record_of_a_topic_that_does_not_exist_is_passed_over() -> None:
    log, state = Log(), empty_state()
    log.append_record("nowhere", 0, 0)
    assert isinstance(fold(state, log.entries).results[0], EntryRefused)
    assert state[MESSAGES].queue_ends == {}


def test_a_topic_made_again_begins_at_zero_and_has_no_old_offsets() -> None:
    log, state = Log(), empty_state()
    with_topic(log)
    log.append_record("A", 0, 0)
    log.append(encode_log_command(CommitOffsets([CommittedOffset("g", "A", 0, 1)], 1)))
    log.append(encode_log_command(DeleteTopic("A", 9)))
    with_topic(log)
    log.append_record("A", 0, 0)
    folded = fold(state, log.entries)
    assert folded.deleted_topics == ["A"]
    assert len(folded.arrivals["A", 0].places) == 1
    assert state[OFFSETS].tables == {}
    assert state[TOPICS].topic_changes == 3


def test_a_topic_made_only_if_absent_does_not_change_the_one_that_is_there() -> None:
    log, state = Log(), empty_state()
    with_topic(log)
    log.append(encode_log_command(PutTopic(TopicConfig("A", 9, 9), 6, only_if_absent=True)))
    fold(state, log.entries)
    assert state[TOPICS].configs["A"].read_queue_count == 2
    assert state[TOPICS].topic_changes == 1


def test_the_last_offset_counts_even_if_it_is_smaller() -> None:
    log, state = Log(), empty_state()
    for offset in (7, 3):
        log.append(encode_log_command(CommitOffsets([CommittedOffset("g", "A", 0, offset)], 1)))
    fold(state, log.entries)
    assert state[OFFSETS].committed("g", "A", 0) == 3
    assert state[OFFSETS].committed("g", "A", 1) is None
    assert state[OFFSETS].committed("g", "B", 0) is None


def test_offsets_are_folded_alike_with_their_time_and_without() -> None:
    for at_ms in (None, 1_700_000_000_123):
        log, state = Log(), empty_state()
        log.append(encode_log_command(CommitOffsets([CommittedOffset("g", "A", 0, 7)], at_ms)))
        assert fold(state, log.entries).results == [None]
        assert state[OFFSETS].committed("g", "A", 0) == 7


def test_a_command_of_a_newer_broker_stops_the_fold() -> None:
    log, state = Log(), empty_state()
    log.append(b"\0\0\0\x09DLB" + bytes([FORMAT_VERSION + 1]) + b"\x90")
    with pytest.raises(EntryTooNew):
        fold(state, log.entries)


def test_an_offset_of_a_topic_that_was_deleted_and_created_again_is_passed_over() -> None:
    log, state = Log(), empty_state()
    put = encode_log_command(PutTopic(TopicConfig("A", 2, 2), 5, max_topics=9))
    created = log.append(put)
    old = log.append_record("A", 0, 0)
    log.append(encode_log_command(DeleteTopic("A", 9, with_locks=True)))
    again = log.append(put)
    one = [CommittedOffset("g", "A", 0, 1)]
    log.append(encode_log_command(CommitOffsets(one, 1, as_of=old.pos)))
    assert fold(state, log.entries).results == [None] * 5
    assert state[OFFSETS].tables == {}
    assert state[TOPICS].created_at == {"A": again.pos}
    assert not state[TOPICS].existed("A", created.pos + 1)
    log.append(encode_log_command(CommitOffsets(one, 1, as_of=again.pos + 1)))
    fold(state, log.entries[-1:])
    assert state[OFFSETS].committed("g", "A", 0) == 1


def test_an_offset_of_no_topic_is_passed_over() -> None:
    log, state = Log(), empty_state()
    log.append(encode_log_command(CommitOffsets([CommittedOffset("g", "A", 0, 7)], 1, as_of=0)))
    assert fold(state, log.entries).results == [None]
    assert state[OFFSETS].tables == {}


def test_locks_go_with_their_topic_and_with_their_group() -> None:
    log, state = Log(), empty_state()
    with_topic(log)
    for group in ("g", "h"):
        log.append(encode_log_command(PutGroup(ConsumerGroup(group))))
        log.append(encode_log_command(LockQueues(group, "one", True, 5, [("A", 0), ("B", 0)])))
    log.append(encode_log_command(DeleteTopic("A", 9, with_locks=True)))
    fold(state, log.entries)
    assert state[LOCKS].owners.keys() == {("g", "B", 0), ("h", "B", 0)}
    log.append(encode_log_command(DeleteGroup("g", False, with_locks=True)))
    fold(state, log.entries[-1:])
    assert state[LOCKS].owners.keys() == {("h", "B", 0)}


def test_no_more_topics_and_groups_are_created_than_their_entries_allow() -> None:
    log, state = Log(), empty_state()
    limit = len(state[TOPICS].configs) + 2
    for name in "ABCA":
        log.append(encode_log_command(PutTopic(TopicConfig(name, 3, 3), 5, max_topics=limit)))
    for name in "ghig":
        log.append(encode_log_command(PutGroup(ConsumerGroup(name), max_groups=2)))
    results = fold(state, log.entries).results
    assert [isinstance(result, EntryRefused) for result in results] == [
        False,
        False,
        True,
        False,
    ] * 2
    assert state[TOPICS].configs.keys() >= {"A", "B"}
    assert state[GROUPS].configs.keys() == {"g", "h"}
    assert len(state[TOPICS].configs) == limit
