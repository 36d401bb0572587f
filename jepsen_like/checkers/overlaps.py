"""The operations on one object that may come next, at each point of its history."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from jepsen_like.checkers.models.model import Model
from jepsen_like.history.operation import Operation


class Candidate(NamedTuple):
    """An operation that ended: `bit` is of its process, `end` its number in the order of ends."""

    bit: int
    end: int
    operation: Operation
    observes: bool


class Open(NamedTuple):
    """An operation of unknown outcome; `before` is the bit of an equal one called earlier, or 0."""

    bit: int
    before: int
    operation: Operation


class Awaited(NamedTuple):
    """An operation that observes, and the operations that may bring about its observation.

    Those that ended before the end number `since` are left out.
    """

    observer: Candidate
    since: int
    brought_by: list[Candidate]
    brought_by_open: int


class Overlaps:
    """The operations on one object, by what runs at once. None of them failed.

    `running[n]` are the operations called before the end number n and not ended before it, the
    first to end first; `open_called[n]` says how many of the unknown ones were called by then.
    """

    def __init__(self, model: Model, operations: Sequence[Operation]) -> None:
        self.running: list[list[Candidate]] = []
        self.open: list[Open] = []
        self.open_called: list[int] = []
        self._model = model
        self._observes: Callable[[Operation], bool] = getattr(
            model, "observes", lambda operation: False
        )
        self._sweep(operations)
        self._brings: Callable[[Operation, Operation], bool] | None = getattr(model, "brings", None)
        self._next_observers = self._find_observers()
        self._awaited: dict[int, Awaited] = {}
        self.impossible_end = self._find_impossible()

    def _sweep(self, operations: Sequence[Operation]) -> None:
        moments: list[tuple[int, bool, Operation]] = []
        for operation in operations:
            if operation.ok and operation.ended_line is not None:
                moments.append((operation.invoked_line, False, operation))
                moments.append((operation.ended_line, True, operation))
            elif not self._observes(operation):
                moments.append((operation.invoked_line, False, operation))
        moments.sort(key=lambda moment: moment[0])
        ended = [id(operation) for _, is_end, operation in moments if is_end]
        ends = {name: number for number, name in enumerate(ended)}
        bits: dict[int, int] = {}
        last_equal: dict[Hashable, int] = {}
        now: dict[int, Candidate] = {}
        for _, is_end, operation in moments:
            end = ends.get(id(operation))
            if is_end:
                self.running.append(sorted(now.values(), key=lambda one: one.end))
                self.open_called.append(len(self.open))
                del now[operation.process]
            elif end is not None:
                bit = bits.setdefault(operation.process, 1 << len(bits))
                now[operation.process] = Candidate(bit, end, operation, self._observes(operation))
            else:
                alike = self._alike(operation)
                bit = 1 << len(self.open)
                self.open.append(Open(bit, last_equal.get(alike, 0), operation))
                last_equal[alike] = bit

    def _alike(self, operation: Operation) -> Hashable:
        """Return a value that is equal for operations that do the same."""
        ignores = getattr(self._model, "ignores_processes", False)
        process = None if ignores else operation.process
        return operation.function, operation.value, process

    def _find_observers(self) -> list[int | None]:
        """Return for each end the first one, it or a later one, of an operation that observes."""
        found: list[int | None] = []
        following: int | None = None
        for end in range(len(self.running) - 1, -1, -1):
            if self.running[end][0].observes:
                following = end
            found.append(following)
        return found[::-1]

    def _find_impossible(self) -> int | None:
        """Return the first end of an operation whose observation no operation before its end
        brings.
        """
        brings = self._brings
        toward = getattr(self._model, "toward", None)
        if brings is None or toward is None:
            return None
        for end, candidates in enumerate(self.running):
            told = candidates[0].operation
            if not candidates[0].observes or toward(self._model.initial, told):
                continue
            # Most are brought by one of the last operations.
            before = (self.running[number][0] for number in range(end - 1, -1, -1))
            is_brought = (
                any(brings(one.operation, told) for one in candidates)
                or any(brings(one.operation, told) for one in before)
                or any(brings(one.operation, told) for one in self.open[: self.open_called[end]])
            )
            if not is_brought:
                return end
        return None

    def awaited(self, ended: int, placed: int, goal: int) -> Awaited | None:
        """Return the first observation that is not placed, if it ends before the end number `goal`.

        Args:
            ended: the ends that are passed.
            placed: the bits of the operations that are placed and have not ended by then.
            goal: where the search ends.
        """
        if self._brings is None:
            return None
        line = self.end_line(ended)
        end: int | None = ended
        while end is not None and end < goal and (end := self._next_observers[end]) is not None:
            if end >= goal:
                return None
            observer = self.running[end][0]
            if not (placed & observer.bit and observer.operation.invoked_line < line):
                return self._what_brings(observer, ended)
            end = end + 1 if end + 1 < len(self.running) else None
        return None

    def _what_brings(self, observer: Candidate, ended: int) -> Awaited:
        known = self._awaited.get(observer.end)
        if known is not None and known.since <= ended:
            return known
        brings, told = self._brings, observer.operation
        assert brings is not None
        before = [self.running[end][0] for end in range(ended, observer.end)]
        after = self.running[observer.end]
        brought_by = [one for one in [*before, *after] if brings(one.operation, told)]
        brought_by_open = 0
        for one in self.open[: self.open_called[observer.end]]:
            if brings(one.operation, told):
                brought_by_open |= one.bit
        found = Awaited(observer, ended, brought_by, brought_by_open)
        self._awaited[observer.end] = found
        return found

    def end_line(self, end: int) -> int:
        return self.running[end][0].operation.ended_line or 0
