"""Clients that go on in the place of others that were killed."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from jepsen_like.chaos.brokers.begun import begun_of
from jepsen_like.chaos.brokers.notes import Notes
from jepsen_like.chaos.clients.recorder import Recorder
from jepsen_like.check_files import Plan, check_file
from jepsen_like.history.operation import EventType, Operation
from jepsen_like.history.reading import read_history
from jepsen_like.history.writer import HistoryWriter

STEP = 7
INVOKE, OK, FAIL, INFO = EventType.INVOKE, EventType.OK, EventType.FAIL, EventType.INFO


def killed_history(path: Path, *rest: str) -> None:
    """Consumer 0, and producers 2 to 4: one is between two calls, two are in the middle of one."""
    with HistoryWriter(path, model="queue") as writer:
        for process, type, function, value in (
            (2, INVOKE, "send", 1),
            (2, OK, "send", 1),
            (0, INVOKE, "receive", None),
            (0, OK, "receive", [1]),
            (3, INVOKE, "send", 2),
            (4, INVOKE, "send", 3),
            (4, INFO, "send", None),
            (4 + STEP, INVOKE, "send", 4),
            (0, INVOKE, "receive", None),
        ):
            writer.event(process, writer_time(writer), type, function, None, value)
    with path.open("a") as file:
        file.write("".join(rest))


def writer_time(writer: HistoryWriter) -> int:
    return len(writer.operations)


def test_a_history_goes_on_behind_a_line_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    killed_history(path, '{"process":2,"time')
    with HistoryWriter.going_on(path, model="other") as writer:
        assert len(writer.operations) == 6
        writer.event(2, 50, INVOKE, "send", None, 9)
        writer.event(2, 51, OK, "send", None, 9)
    history = read_history(path)
    assert history.header.model == "queue"
    assert [one.value for one in history.operations if one.function == "send"] == [1, 2, 3, 4, 9]


@pytest.mark.parametrize("left", ["", '{"history_for', None])
def test_a_history_without_a_whole_line_is_begun_anew(left: str | None, tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    if left is not None:
        path.write_text(left)
    with HistoryWriter.going_on(path, model="queue") as writer:
        assert not writer.operations
    assert read_history(path).header.model == "queue"


def test_producers_go_on_as_others_and_consumers_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    killed_history(path)
    begun = begun_of(read_history(path).operations, STEP)
    assert begun.processes == {2: 2 + STEP, 3: 3 + STEP, 4: 4 + 2 * STEP}
    assert begun.due == begun.received == {(None, 1)}
    assert [one.process for one in begun.open] == [3, 4 + STEP, 0]


def test_what_was_left_open_is_ended_so_that_the_history_can_be_checked(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    killed_history(path)
    with HistoryWriter.going_on(path) as writer:
        begun = begun_of(writer.operations, STEP)
        clock = itertools.count(100)
        notes = Notes(Recorder(writer, lambda: next(clock)), STEP)
        notes.go_on(begun)
        assert notes.all_received
        notes.receive(0, None, [2])
        notes.drain(0, None)
    operations = read_history(path).operations
    outcomes = {one.value: one.outcome for one in operations if one.function == "send"}
    assert outcomes == {1: OK, 2: INFO, 3: INFO, 4: INFO}
    assert [one.outcome for one in operations if one.function == "receive"] == [OK, FAIL, OK]
    assert check_file(path, Plan("queue")).verdict == "valid"


def test_a_committed_transaction_is_due_and_a_committed_offset_is_not() -> None:
    made = [
        Operation(2, "prepare", None, 7, 1, 1, None, OK, None, 2, 2),
        Operation(2, "commit", None, 7, 3, 3, None, OK, None, 4, 4),
        Operation(3, "commit", 1, 8, 5, 5, None, OK, None, 6, 6),
    ]
    assert begun_of(made, STEP).due == {(None, 7)}
