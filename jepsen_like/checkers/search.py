"""Searches an order of the operations on one object: Wing and Gong's search with Lowe's memory.

At each point the operations that may come next are those that were called before any operation
that is not yet placed had ended. A configuration is what was placed and the state then; one that
was seen before is not searched again (Lowe, "Testing for linearizability", 2017).

Seven things keep the search short:

- Placed operations are remembered as the number of ends in a row that are placed, and one bit for
  each process whose operation is placed but has not ended by then.
- Operations that change nothing are placed as soon as they may be: later operations find the
  same state.
- Operations of unknown outcome are placed only where they change the state.
- Among those of equal arguments, the one that was called first is placed first.
- A configuration that spent more operations of unknown outcome than another on the same state is
  not searched: whatever may follow it may follow the other.
- An operation of unknown outcome is not placed right before one that overwrites what it did.
- If the next observation can no longer come true, a configuration is given up at once. If it can
  come true only after the state is overwritten, and no other operation can observe it before, all
  such states are one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from typing import NamedTuple

from jepsen_like.checkers.models.model import Model
from jepsen_like.checkers.overlaps import Candidate, Overlaps
from jepsen_like.checkers.report import Verdict
from jepsen_like.history.operation import Operation

# A tuple, numbers of a few words, and their share of a dictionary's table.
_CONFIGURATION_BYTES = 260

# The operations placed so far, the last one first.
Path = tuple["Path", Operation] | None


class Point(NamedTuple):
    """A configuration that is to be searched."""

    ended: int
    placed: int
    open_placed: int
    state: Hashable
    path: Path
    is_spent: bool = False  # whether the last one placed is of unknown outcome

    def order(self) -> list[Operation]:
        """Return the placed operations, the first one first."""
        order: list[Operation] = []
        path = self.path
        while path is not None:
            path, operation = path
            order.append(operation)
        return order[::-1]


class Search:
    """The search of one object, which can be continued.

    `goal` is how many of the ends an order must pass; all, unless given.
    """

    def __init__(self, model: Model, overlaps: Overlaps, goal: int | None = None) -> None:
        self.memory_bytes = 0
        self.doomed_at = -1  # the last end that an order was given up for
        self.furthest = 0  # how many ends some order passes
        self.arrived: Point | None = None  # where the goal was reached
        self._step = model.step
        self._toward: Callable[[Hashable, Operation], bool] | None = getattr(model, "toward", None)
        self._dead: Hashable | None = getattr(model, "dead", None)
        self._overwrites: Callable[[Operation], bool] | None = getattr(model, "overwrites", None)
        self._overlaps = overlaps
        self._running = overlaps.running
        self._goal = len(overlaps.running) if goal is None else goal
        # By placed operations and state: the unknown operations that were spent on it.
        self._seen: dict[tuple[int, int, Hashable], tuple[int, ...]] = {}
        self._states: dict[Hashable, Hashable] = {}
        self._points = [Point(0, 0, 0, model.initial, None)]
        impossible = overlaps.impossible_end
        if impossible is not None and impossible < self._goal:
            self.doomed_at = impossible
            self._points = []

    def run(self, steps: int) -> Verdict | None:
        """Search so many configurations; return None if the search has not ended.

        A search that arrived may go on: it then looks for another way to arrive.
        """
        points, seen = self._points, self._seen
        while points and steps > 0:
            steps -= 1
            point = self._observed(points.pop())
            if point.ended >= self._goal:
                self.arrived = point
                return Verdict.VALID
            outlook = self._outlook(point)
            if outlook is None:
                self.furthest = max(self.furthest, point.ended)
                continue
            point = outlook
            key = (point.ended, point.placed, point.state)
            better = seen.get(key)
            if better is None:
                seen[key] = (point.open_placed,)
            else:
                unspent = ~point.open_placed
                for spent in better:
                    if not spent & unspent:
                        break
                else:
                    seen[key] = (*better, point.open_placed)
                    better = None
                if better is not None:
                    continue
            self.memory_bytes += _CONFIGURATION_BYTES
            self.furthest = max(self.furthest, point.ended)
            self._branch(point)
        return None if points else Verdict.INVALID

    def forget(self) -> None:
        """Free the memory of a search that is not continued."""
        self._seen.clear()
        self._states.clear()
        self._points.clear()
        self.memory_bytes = 0

    def _observed(self, point: Point) -> Point:
        """Place every operation that only observes, as long as one may be placed."""
        ended, placed, open_placed, state, path, is_spent = point
        step, running, goal = self._step, self._running, self._goal
        again = True
        while again and ended < goal:
            again = False
            for candidate in running[ended]:
                if (
                    candidate.observes
                    and not placed & candidate.bit
                    and step(state, candidate.operation) is not None
                ):
                    path = (path, candidate.operation)
                    is_spent = False
                    before = ended
                    ended, placed = self._advanced(ended, placed | candidate.bit)
                    if ended != before:
                        again = True
                        break
        return Point(ended, placed, open_placed, state, path, is_spent)

    def _advanced(self, ended: int, placed: int) -> tuple[int, int]:
        """Pass the ends whose operations are placed."""
        running = self._running
        while ended < len(running):
            bit = running[ended][0].bit
            if not placed & bit:
                break
            placed &= ~bit
            ended += 1
        return ended, placed

    def _outlook(self, point: Point) -> Point | None:
        """Return the point, or None if the next observation cannot come true after it.

        If its state is overwritten before any operation can observe it, it is dead.
        """
        if self._toward is None:
            return point
        awaited = self._overlaps.awaited(point.ended, point.placed, self._goal)
        if awaited is None or self._toward(point.state, awaited.observer.operation):
            return point
        line = self._overlaps.end_line(point.ended)
        if not awaited.brought_by_open & ~point.open_placed:
            for one in awaited.brought_by:
                if not _is_placed(one, point, line):
                    break
            else:
                self.doomed_at = max(self.doomed_at, awaited.observer.end)
                return None
        if self._dead is None:
            return point
        for one in self._running[awaited.observer.end]:
            if (
                one.observes
                and not _is_placed(one, point, line)
                and self._toward(point.state, one.operation)
            ):
                return point
        return point._replace(state=self._dead)

    def _branch(self, point: Point) -> None:
        """Continue with each operation that may come next; the first to end is tried first."""
        ended, placed, open_placed, state, path, is_spent = point
        step, points, overlaps = self._step, self._points, self._overlaps
        overwrites = self._overwrites if is_spent else None
        for number in range(overlaps.open_called[ended] - 1, -1, -1):
            bit, before, operation = overlaps.open[number]
            if open_placed & bit or (before and not open_placed & before):
                continue
            if overwrites is not None and overwrites(operation):
                continue
            after = step(state, operation)
            if after is not None and after != state:
                spent, order = open_placed | bit, (path, operation)
                points.append(Point(ended, placed, spent, self._known(after), order, True))
        for candidate in reversed(overlaps.running[ended]):
            if placed & candidate.bit or candidate.observes:
                continue
            if overwrites is not None and overwrites(candidate.operation):
                continue
            after = step(state, candidate.operation)
            if after is not None:
                advanced, left = self._advanced(ended, placed | candidate.bit)
                next_path = (path, candidate.operation)
                points.append(Point(advanced, left, open_placed, self._known(after), next_path))
        self.doomed_at = max(self.doomed_at, ended)

    def _known(self, state: Hashable) -> Hashable:
        """Return one object for all states that are equal."""
        known = self._states.get(state)
        if known is None:
            self._states[state] = known = state
            self.memory_bytes += sys.getsizeof(state)
        return known


def _is_placed(one: Candidate, point: Point, line: int) -> bool:
    """Return whether an operation that ended is placed at a point, whose next end is in a line."""
    if one.end < point.ended:
        return True
    return bool(point.placed & one.bit) and one.operation.invoked_line < line
