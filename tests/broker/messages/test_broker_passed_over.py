"""Which entries the fold has passed over: the state keeps them as long as the log does."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.delay.commands import Deliver
from broker.features import REGISTRY, empty_state
from broker.formats.commands import RaiseFormat
from broker.log.entry import ATTACHED_VERSION, encode_log_command, is_record
from broker.log.fold import fold
from broker.log.folded import EntryRefused
from broker.log.state_snapshot import captured, restored
from broker.messages import passed_over
from broker.messages.passed_over import PassedOver
from broker.messages.record_facts import units_of
from broker.messages.state import MESSAGES
from broker.retention.commands import KeepLogFrom
from broker.store.consume_queue import UNIT_BYTES
from broker.topics.commands import DeleteTopic
from dledger import Entry
from tests.broker.log.test_broker_fold import Log, actions, build, with_runs, with_topic
from tests.broker.store.test_broker_queue_rebuild import (
    KeptLog,
    a_log,
    machine_in,
    made_again,
    mended,
    messages,
    rebuilt,
    snapshot_of,
)
from tests.examples import examples


def keep_from(log: Log, entry: Entry) -> None:
    log.append(encode_log_command(KeepLogFrom(entry.index, entry.pos, 9)))


# --- the fold -------------------------------------------------------------------------------------


def test_the_state_keeps_which_entries_with_records_were_passed_over() -> None:
    log, state = a_log(2), empty_state()
    with_runs(log)
    passed = [
        log.append_record("A", 0, 1),  # behind its queue
        log.append_record("A", 0, 7),  # ahead of it
        log.append_record("B", 0, 0),  # of no topic
        log.append_records(("A", 0, 2), ("B", 0, 0)),
        log.append(log.record_at("A", 0, 2, 8)),  # says another place
        log.append(log.record_at("A", 0, 2, 0)[:-3]),
    ]
    log.append(b"foreign!")
    log.append(encode_log_command(KeepLogFrom(99, 99, 9)))
    log.append_record("A", 0, 2)
    folded = fold(state, log.entries)
    assert state[MESSAGES].passed_over.indexes == [entry.index for entry in passed]
    assert folded.results[-1] is None
    assert state.refused_entries == len(passed) + 2  # what has no record cannot be taken for one


def test_a_message_is_passed_over_with_the_command_behind_it() -> None:
    log, state = a_log(1), empty_state()
    log.append(encode_log_command(RaiseFormat(ATTACHED_VERSION)))
    entry = log.append_record("A", 0, 1, attached=encode_log_command(Deliver(5)))
    fold(state, log.entries)
    assert state[MESSAGES].passed_over.indexes == [entry.index]


def test_retention_takes_what_lies_before_the_first_entry_that_is_kept() -> None:
    log, state = a_log(1), empty_state()
    passed = [log.append_record("A", 0, 9) for _ in range(4)]
    keep_from(log, passed[2])
    fold(state, log.entries)
    assert state[MESSAGES].passed_over.indexes == [passed[2].index, passed[3].index]


def test_beyond_the_limit_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passed_over, "MAX_PASSED_OVER_ENTRIES", 3)
    table = PassedOver()
    for index in (2, 5):
        table.add(index)
        assert table.known_from == 0
    for index in (7, 9, 11):
        table.add(index)
    assert (table.indexes, table.known_from) == ([7, 9, 11], 7)
    table.drop_before(8)  # what was forgotten lay before it as well
    assert (table.indexes, table.known_from) == ([9, 11], 0)


@given(actions, st.data())
@settings(max_examples=examples(100))
def test_the_table_has_the_refused_records_from_the_first_entry_that_is_kept_on(
    script: Sequence[tuple[str, str, int]], data: st.DataObject
) -> None:
    log, state = build(script), empty_state()
    log.append_record("C", 0, 0)
    kept = data.draw(st.sampled_from(log.entries))
    keep_from(log, kept)
    folded = fold(state, log.entries)
    refused = [
        entry.index
        for entry, result in zip(log.entries, folded.results, strict=True)
        if isinstance(result, EntryRefused) and is_record(entry.body)
    ]
    assert state[MESSAGES].passed_over.indexes == [at for at in refused if at >= kept.index]
    assert restored(captured(state), REGISTRY) == state


# --- queues that are made again from a log without its beginning ----------------------------------


def test_a_late_record_of_a_topic_that_was_made_again_with_one_message_more_is_no_message(
    tmp_path: Path,
) -> None:
    log = a_log(2)
    new = made_again(log, 3)
    late = log.append_record("A", 0, 2)  # of the topic as it was before
    assert rebuilt(tmp_path / "late", log, late.index) == (3, [])
    assert rebuilt(tmp_path / "last", log, new[2].index) == (2, [new[2].body_pos])


def test_a_record_with_the_offset_of_the_message_before_it_is_not_taken_for_it(
    tmp_path: Path,
) -> None:
    log = a_log(6)
    late = log.append_record("A", 0, 5)
    new = [log.append_record("A", 0, offset) for offset in (6, 7)]
    assert rebuilt(tmp_path, log, late.index) == (6, [entry.body_pos for entry in new])


def test_a_message_that_was_passed_over_with_those_of_other_topics_is_no_message(
    tmp_path: Path,
) -> None:
    log = a_log(3)
    with_topic(log, "B")
    with_runs(log)
    log.append_record("B", 0, 0)
    log.append(encode_log_command(DeleteTopic("B", 9)))
    # B was deleted while they were on their way: A/0 goes on at 3, with the message's next try.
    late = log.append_records(("A", 0, 3), ("B", 0, 1))
    again = log.append_record("A", 0, 3)
    assert rebuilt(tmp_path, log, late.index) == (3, [again.body_pos])
    assert rebuilt(tmp_path / "behind", log, again.index) == (3, [again.body_pos])


def test_a_record_whose_command_was_refused_is_no_message(tmp_path: Path) -> None:
    log = a_log(3)
    log.append(encode_log_command(RaiseFormat(ATTACHED_VERSION)))
    refused = log.append_record("A", 0, 3, attached=encode_log_command(Deliver(5)))
    new = log.append_record("A", 0, 3)
    assert rebuilt(tmp_path, log, refused.index) == (3, [new.body_pos])


def test_a_log_that_begins_before_the_first_entry_that_is_kept_is_read_from_that_one(
    tmp_path: Path,
) -> None:
    log = a_log(2)
    late = log.append_record("A", 0, 1)  # forgotten with the entries before the next one
    last = log.append_record("A", 0, 2)
    keep_from(log, last)
    machine = machine_in(tmp_path)
    machine.restore(iter(snapshot_of(log)))
    assert machine.state[MESSAGES].passed_over.indexes == []
    mended(machine, KeptLog(log, late.index))
    assert messages(machine, last.pos) == (2, [last.body_pos])
    machine.queues.close()


def test_records_before_those_that_are_known_are_told_to_be_uncertain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(passed_over, "MAX_PASSED_OVER_ENTRIES", 2)
    log = a_log(3)
    passed = [log.append_record("A", 0, 9) for _ in range(3)]
    with caplog.at_level(logging.WARNING):
        assert rebuilt(tmp_path / "known", log, passed[1].index) == (3, [])
    assert "taken for messages" not in caplog.text
    with caplog.at_level(logging.WARNING):
        assert rebuilt(tmp_path / "forgotten", log, passed[0].index) == (3, [])
    assert f"those before entry {passed[1].index} are not known" in caplog.text


@given(actions, st.integers(1, 40), st.one_of(st.none(), st.integers(0, 3)))
@settings(max_examples=examples(150))
def test_queues_that_are_made_again_from_any_end_of_a_log_have_its_messages_and_no_other(
    script: list[tuple[str, str, int]], dropped: int, still_there: int | None
) -> None:
    log = build(script)
    log.append_record("A", 0, 5)
    kept = log.entries[min(dropped, len(log.entries) - 1)]
    first = kept.index
    if still_there is not None and first > 0:  # else a snapshot was installed
        keep_from(log, kept)
        first = max(1, first - still_there)
    state = empty_state()
    arrivals = fold(state, log.entries).arrivals
    with TemporaryDirectory() as folder:
        machine = machine_in(Path(folder))
        machine.restore(captured(state))
        mended(machine, KeptLog(log, first))
        for key, arrived in arrivals.items():
            units, dropped = units_of(arrived), sum(place < kept.pos for place in arrived.places)
            begin = arrived.first_offset + dropped
            # What was made again of a message that the log does not have lies at 0.
            assert (key, machine.queues.begin(*key, 1)) == (key, begin)
            assert machine.queues.read(*key, begin, 99) == units[dropped * UNIT_BYTES :]
        machine.queues.close()
