"""A run of committed entries is applied in parts that do not hold the loop for long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace

from dledger.entry import HEADER_BYTES, Entry, Magic
from dledger.entry_run import EntryRun
from dledger.node.applier import PART_BYTES, PART_ENTRIES, TURN_S, Applier


class Fixture:
    """An applier of a log of entries of the given sizes; `apply_s` pass with each part."""

    def __init__(self, sizes: Sequence[int], apply_s: float = 0.0) -> None:
        self.sizes = sizes
        self.apply_s = apply_s
        self.now = 0.0
        self.parts: list[list[int]] = []
        self.answered: list[int] = []
        self.on_answered: Callable[[], None] = lambda: None
        state = SimpleNamespace(applied=-1)
        self.replica = SimpleNamespace(
            state=state,
            appliable=len(sizes) - 1,
            view=SimpleNamespace(before_begin=-1),
            applied_to=lambda index: setattr(state, "applied", index),
        )
        self.applier = Applier(
            self.replica,  # type: ignore[arg-type]
            self,
            self,
            self,  # type: ignore[arg-type]
            SimpleNamespace(snapshot=None),  # type: ignore[arg-type]
            lambda: None,
            lambda: None,
            lambda: self.now,
        )

    def take(self, first: int, last: int) -> EntryRun:
        positions = [sum(self.sizes[:at]) + HEADER_BYTES * at for at in range(first, last + 1)]
        bodies = [bytes(self.sizes[at]) for at in range(first, last + 1)]
        return EntryRun(first, 1, int(Magic.NORMAL), positions, bodies)

    def apply(self, entries: Sequence[Entry]) -> Sequence[None]:
        self.parts.append([entry.index for entry in entries])
        self.now += self.apply_s
        return [None] * len(entries)

    def applied(self, run: EntryRun, _results: Sequence[object]) -> None:
        self.answered += range(run.first, run.last + 1)
        self.on_answered()


def lengths(fixture: Fixture) -> list[int]:
    return [len(part) for part in fixture.parts]


def test_the_machine_is_given_a_bounded_number_of_entries_at_once() -> None:
    one = Fixture([1] * (2 * PART_ENTRIES + 3))
    assert one.applier.apply_some()
    assert lengths(one) == [PART_ENTRIES, PART_ENTRIES, 3]
    assert one.answered == list(range(2 * PART_ENTRIES + 3))
    assert not one.applier.apply_some()


def test_the_machine_is_given_a_bounded_number_of_bytes_at_once() -> None:
    one = Fixture([PART_BYTES // 2] * 4 + [3 * PART_BYTES] * 2 + [1])
    one.applier.apply_some()
    assert lengths(one) == [2, 2, 1, 1, 1]


def test_a_turn_ends_when_its_time_is_over_and_the_next_one_goes_on() -> None:
    one = Fixture([1] * (3 * PART_ENTRIES), apply_s=TURN_S)
    for turn in range(1, 4):
        assert one.applier.apply_some()
        assert one.answered == list(range(turn * PART_ENTRIES))
    assert not one.applier.apply_some()


def test_no_entry_is_applied_twice_when_an_answer_has_further_ones_applied() -> None:
    one = Fixture([1] * (3 * PART_ENTRIES))

    def answered() -> None:
        if len(one.parts) == 1:
            one.applier.begin()

    one.on_answered = answered
    while one.applier.apply_some():
        pass
    assert [index for part in one.parts for index in part] == list(range(3 * PART_ENTRIES))
