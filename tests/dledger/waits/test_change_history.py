"""The history of changes: against a plain list of all that was told, however it is cut."""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple
from unittest.mock import patch

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.changes import Change, Changes, Path
from dledger.waits import change_history
from dledger.waits.change_history import ChangeHistory, Waiting
from tests.examples import examples

KEEPS_ALL = 1 << 30


class Told(NamedTuple):
    path: Path
    gone: bool


class Group:
    """A machine that tells changes, a history of it, and all that was ever told."""

    def __init__(self, limit_bytes: int = KEEPS_ALL, begin: int = -1) -> None:
        self.changes = Changes()
        self.history = ChangeHistory(self.changes, limit_bytes, begin)
        self.all: list[tuple[int, Told]] = []
        self.next = begin + 1

    def apply(self, entries: list[list[Told]]) -> str | None:
        """Apply a run of entries, with what each of them changes."""
        for told in entries:
            for each in told:
                self.all.append((self.next, each))
                if each.gone:
                    self.changes.delete(self.next, each.path)
                else:
                    self.changes.set(self.next, each.path, self.next)
            self.next += 1
        return self.history.applied(self.next - 1)

    def wanted(self, path: Path, after: int, upto: int) -> list[object]:
        return [
            [index, list(told.path)] + ([] if told.gone else [index])
            for index, told in self.all
            if after < index <= upto and concerns(told, path)
        ]


def concerns(told: Told, path: Path) -> bool:
    """The rule in other words: one is a beginning of the other."""
    common = list(zip(told.path, path, strict=False))
    return all(a == b for a, b in common) and (len(told.path) >= len(path) or told.gone)


def decoded(rows: object) -> list[object]:
    return [msgpack.unpackb(row) for row in rows]  # type: ignore[attr-defined]


paths = st.lists(st.sampled_from(["a", "b", 1]), max_size=3).map(tuple)
told_changes = st.builds(Told, paths, st.booleans())
entries = st.lists(st.lists(told_changes, max_size=4), max_size=6)
runs = st.lists(entries, max_size=5)


@settings(max_examples=examples(300))
@given(
    runs=runs,
    path=paths,
    limit=st.sampled_from([0, 900, 3_000, KEEPS_ALL]),
    scan=st.integers(1, 7),
    max_bytes=st.integers(0, 60),
    data=st.data(),
)
def test_a_watch_gets_each_change_of_its_path_once_and_in_order_however_answers_are_cut(
    runs: list[list[list[Told]]],
    path: Path,
    limit: int,
    scan: int,
    max_bytes: int,
    data: st.DataObject,
) -> None:
    group = Group(limit)
    with patch.object(change_history, "SCAN_CHANGES", scan):
        for run in runs:
            group.apply(run)
            history = group.history
            assert history.begin <= history.end == group.next - 1
            after = began = data.draw(st.integers(history.begin, history.end + 2))
            got: list[object] = []
            for _ in range(200):
                rows, upto, is_all = history.select(after, path, max_bytes)
                assert upto >= after
                # Whole entries alone: what comes after this answer is all that is missing.
                assert decoded(rows) == group.wanted(path, after, upto)
                assert len(rows) <= 1 or sum(map(len, rows)) <= max_bytes or of_one(decoded(rows))
                got += decoded(rows)
                after = upto
                if is_all:
                    break
            assert after == max(history.end, began)
            assert got == group.wanted(path, began, history.end)


def of_one(rows: list[object]) -> bool:
    return len(list(groupby(row[0] for row in rows))) == 1  # type: ignore[index]


@given(runs=runs, limit=st.integers(0, 4_000))
def test_a_history_keeps_whole_entries_within_its_limit_and_knows_where_it_begins(
    runs: list[list[list[Told]]], limit: int
) -> None:
    group = Group(limit)
    for run in runs:
        group.apply(run)
        history = group.history
        rows = history.select(history.begin, (), KEEPS_ALL).rows
        assert decoded(rows) == group.wanted((), history.begin, history.end)
        assert sum(len(row) + 400 for row in rows) <= limit


@settings(max_examples=examples(200))
@given(runs=runs, path=paths)
def test_who_waits_is_woken_by_a_change_of_its_path_and_by_no_other(
    runs: list[list[list[Told]]], path: Path
) -> None:
    group = Group()
    woken: list[int] = []
    waiting = group.history.wait(path, lambda: woken.append(group.next))
    for run in runs:
        before = group.history.end
        group.apply(run)
        if group.wanted(path, before, group.history.end):
            assert len(woken) == 1
            assert waiting.upto == before
            woken.clear()
            waiting = group.history.wait(path, lambda: woken.append(group.next))
        assert not woken
    group.history.leave(waiting)
    group.apply([[Told(path, gone=False)]])
    assert not woken
    assert not group.history._waiting._at
    assert not group.history._waiting._under


def test_a_thousand_who_wait_elsewhere_cost_a_change_nothing() -> None:
    group = Group()
    looked: list[Waiting] = []
    for number in range(1_000):
        looked.append(group.history.wait(("elsewhere", number), lambda: None))
    here = group.history._waiting

    class Counting(dict[Path, set[Waiting]]):
        asked = 0

        def get(self, *args: object) -> object:  # type: ignore[override]
            Counting.asked += 1
            return super().get(*args)  # type: ignore[call-overload]

    here._at, here._under = Counting(here._at), Counting(here._under)
    group.apply([[Told(("a", "b"), gone=True)] * 10])
    assert Counting.asked == 10 * 4


def test_a_restored_machine_begins_a_new_history_and_wakes_all() -> None:
    group, woken = Group(), list[str]()
    group.apply([[Told(("a",), gone=False)]] * 5)
    group.history.wait(("b",), lambda: woken.append("b"))
    group.changes.set(77, ("a",), "told by restore itself")
    group.history.restored(90, group.changes)
    assert woken == ["b"]
    assert (group.history.begin, group.history.end) == (90, 90)
    assert group.history.select(90, (), KEEPS_ALL) == ([], 90, True)
    group.changes.set(91, ("a",), 1)
    assert group.history.applied(91) is None
    assert decoded(group.history.select(90, (), KEEPS_ALL).rows) == [[91, ["a"], 1]]


def test_a_machine_that_made_other_changes_while_it_was_restored_is_heard_again() -> None:
    group = Group()
    group.history.restored(5, other := Changes())
    other.set(6, ("a",), 1)
    group.changes.set(6, ("b",), 1)
    group.history.applied(6)
    assert decoded(group.history.select(5, (), KEEPS_ALL).rows) == [[6, ["a"], 1]]


def test_what_a_machine_told_before_it_stopped_counts_for_nothing() -> None:
    group = Group()
    group.changes.set(0, ("a",), 1)
    group.history.restored(7, group.changes)
    assert group.history.applied(8) is None
    assert group.history.select(7, (), KEEPS_ALL).rows == []


@pytest.mark.parametrize("index", [2, 6, -1, 2**70])
def test_a_change_of_no_entry_of_the_run_begins_the_history_anew(index: int) -> None:
    group, woken = Group(), list[str]()
    group.apply([[Told(("a",), gone=False)]] * 3)
    group.history.wait(("z",), lambda: woken.append("z"))
    group.changes.set(3, ("a",), 1)
    group.changes.set(index, ("a",), 2)
    problem = group.history.applied(5)
    assert problem is not None
    assert str(index) in problem
    assert (group.history.begin, group.history.end, woken) == (5, 5, ["z"])


def test_changes_in_another_order_than_the_log_s_begin_the_history_anew() -> None:
    group = Group()
    group.changes.set(1, ("a",), 1)
    group.changes.set(0, ("a",), 2)
    assert group.history.applied(1) == "a change of entry 0 among those of entries 0 to 1"
    assert group.history.begin == 1


def test_a_gap_leaves_what_follows_it() -> None:
    group = Group()
    group.changes.set(0, ("a",), 1)
    group.changes.set(1, ("a",), object())
    group.changes.set(1, ("a",), 2)
    group.changes.set(2, ("a",), 3)
    problem = group.history.applied(3)
    assert problem is not None
    assert "not plain" in problem
    assert group.history.begin == 1
    assert decoded(group.history.select(1, (), KEEPS_ALL).rows) == [[2, ["a"], 3]]


def test_one_look_at_a_long_history_is_short() -> None:
    group = Group()
    for _ in range(30):
        group.apply([[Told(("a",), gone=False)]] * 1_000)
    steps, after, is_all = 0, -1, False
    while not is_all:
        rows, after, is_all = group.history.select(after, ("b",), KEEPS_ALL)
        assert not rows
        steps += 1
    assert steps == 30_000 / change_history.SCAN_CHANGES


def test_changes_are_named_tuples_of_this_shape() -> None:
    changes = Changes()
    changes.begin(KEEPS_ALL)
    changes.set(3, ("a", b"b", 1), [1])
    taken, lost = changes.take()
    assert taken == [Change(3, ("a", b"b", 1), msgpack.packb([3, ["a", b"b", 1], [1]]), False)]
    assert lost is None
