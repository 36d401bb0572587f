"""What a machine tells: it never raises, and nothing is kept that cannot be sent."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from dledger import changes as changes_file
from dledger.changes import MAX_ENTRY_CHANGES, Changes, changes_of

ROOM = 1 << 30


def kept(room_bytes: int = ROOM) -> Changes:
    changes = Changes()
    changes.begin(room_bytes)
    return changes


def rows(changes: Changes) -> list[Any]:
    return [msgpack.unpackb(change.row) for change in changes.take()[0]]


def test_nothing_is_kept_without_a_node() -> None:
    changes = Changes()
    for index in range(100):
        changes.set(index, ("a",), 1)
    assert changes.take() == ([], None)


def test_a_value_is_taken_as_it_is_when_it_is_told() -> None:
    changes, value = kept(), [1]
    changes.set(0, ("a",), value)
    value.append(2)
    assert rows(changes) == [[0, ["a"], [1]]]


def test_a_part_of_a_machine_tells_below_its_own_path() -> None:
    changes = kept()
    below = changes.under("prices").under(5)
    below.set(1, ("tea",), 3)
    below.delete(1, ())
    assert rows(changes) == [[1, ["prices", 5, "tea"], 3], [1, ["prices", 5]]]


@pytest.mark.parametrize(
    ("index", "path", "value"),
    [
        (1, ("a",), object()),
        (1, ("a",), 2**70),
        (1, ("a",), "\ud800"),
        (1, ("\ud800",), 1),
        (1, (2**70,), 1),
        (1, (1.5,), 1),
        (1, (True,), 1),
        (1, (None,), 1),
        (1, "text", 1),
        (1, b"bytes", 1),
        (1, 7, 1),
        (1, ("a",) * 17, 1),
        (1, ("a" * 9_000,), 1),
        ("1", ("a",), 1),
        (None, ("a",), 1),
        (True, ("a",), 1),
        (2**70, ("a",), 1),
    ],
)
def test_what_cannot_be_sent_is_a_gap_and_no_error(index: Any, path: Any, value: Any) -> None:
    changes = kept()
    changes.set(0, ("before",), 1)
    changes.set(index, path, value)
    told, lost = changes.take()
    assert told == []
    assert lost is not None
    assert lost.index == (index if type(index) is int else -1)
    assert 0 < len(lost.problem) < 200


def test_more_changes_than_an_answer_holds_are_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = kept()
    for number in range(MAX_ENTRY_CHANGES):
        changes.set(1, (number,), 1)
    told, lost = changes.take()
    assert (len(told), lost) == (MAX_ENTRY_CHANGES, None)
    for number in range(MAX_ENTRY_CHANGES + 10):
        changes.set(2, (number,), 1)
    changes.set(3, ("next",), 1)
    told, lost = changes.take()
    assert [change.index for change in told] == [3]
    assert lost is not None
    assert lost.index == 2
    monkeypatch.setattr(changes_file, "MAX_ENTRY_BYTES", 100)
    for number in range(10):
        changes.set(4, (number,), "x" * 20)
    told, lost = changes.take()
    assert told == []
    assert lost is not None
    assert lost.index == 4


def test_a_run_of_entries_keeps_no_more_than_there_is_room_for() -> None:
    changes = kept(room_bytes=5_000)
    for index in range(1_005):
        changes.set(index, ("a",), "x" * 100)
    told, lost = changes.take()
    assert lost is not None
    assert [change.index for change in told] == list(range(lost.index + 1, 1_005))
    assert 0 < len(told) < 10


def test_a_machine_tells_only_by_an_attribute_of_this_class() -> None:
    class Machine:
        changes: object = {}

    machine = Machine()
    assert changes_of(machine) is None
    machine.changes = mine = Changes()
    assert changes_of(machine) is mine
    assert changes_of(object()) is None
