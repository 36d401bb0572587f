"""Cycles of dependencies: transactions that have no order, the worst class first.

The classes are those of Adya ("Weak consistency", 1999), as Elle names them: G0 of appends alone,
G1c with reads of what was appended, G-single with one read of an old state, G2 with several. A
suffix says that the order of a process, or of real time, is needed as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from jepsen_like.checkers.list_append.dependencies import Dependencies, Kind

# From so many transactions of a tangle the shortest cycle is looked for; more are seldom shorter.
STARTS_MAX = 200

Kinds = Kind
_SUFFIXES = (
    ("", Kind(0)),
    ("-process", Kind.PROCESS),
    ("-realtime", Kind.PROCESS | Kind.REALTIME),
)


class Cycle(NamedTuple):
    """Transactions each of which comes before the next, and the last before the first."""

    name: str
    numbers: list[int]
    kinds: list[Kind]


def find_cycles(
    dependencies: Dependencies, *, sessions: bool, real_time: bool, out_of_time: Callable[[], bool]
) -> tuple[list[Cycle], bool]:
    """The shortest cycle of each tangle of transactions, in its worst class.

    Returns the cycles, and whether the search was ended early.
    """
    found: list[Cycle] = []
    explained: set[int] = set()
    for suffix, extra in _SUFFIXES:
        if (suffix == "-process" and not sessions) or (suffix == "-realtime" and not real_time):
            continue
        everything = Kind.WW | Kind.WR | Kind.RW | extra
        whole = range(len(dependencies.transactions))
        for tangle in tangles(dependencies, whole, everything):
            if out_of_time():
                return found, True
            if explained & tangle:
                continue
            cycle = _worst(dependencies, tangle, suffix, extra)
            if cycle is not None:
                found.append(cycle)
                explained |= tangle
    return found, False


def _worst(dependencies: Dependencies, tangle: set[int], suffix: str, extra: Kind) -> Cycle | None:
    for name, kinds in (("G0", Kind.WW | extra), ("G1c", Kind.WW | Kind.WR | extra)):
        path = _shortest(dependencies, tangle, kinds)
        if path is not None:
            return _cycle(dependencies, name + suffix, path, kinds)
    kinds = Kind.WW | Kind.WR | extra
    best: list[int] | None = None
    starts = sorted(tangle)[:STARTS_MAX]
    for first in starts:
        for second, why in dependencies.edges[first].items():
            if why & Kind.RW and second in tangle:
                path = _path(dependencies, tangle, kinds, second, first)
                if path is not None and (best is None or len(path) < len(best)):
                    best = path
    if best is not None:
        # From the read of an old state to the append it missed, and back.
        return _cycle(dependencies, "G-single" + suffix, best, kinds, closing=Kind.RW)
    path = _shortest(dependencies, tangle, kinds | Kind.RW)
    return None if path is None else _cycle(dependencies, "G2" + suffix, path, kinds | Kind.RW)


def _cycle(
    dependencies: Dependencies,
    name: str,
    path: list[int],
    kinds: Kind,
    closing: Kind | None = None,
) -> Cycle:
    """A cycle with one kind a step: the one that says most."""
    found: list[Kind] = []
    for first, second in zip(path, [*path[1:], path[0]], strict=True):
        last = first == path[-1]
        there = dependencies.kinds(first, second) & (closing if last and closing else kinds)
        found.append(next(kind for kind in Kind if there & kind))
    first = path.index(min(path))
    return Cycle(name, path[first:] + path[:first], found[first:] + found[:first])


def _shortest(dependencies: Dependencies, inside: set[int], kinds: Kind) -> list[int] | None:
    best: list[int] | None = None
    for tangle in tangles(dependencies, sorted(inside), kinds):
        for start in sorted(tangle)[:STARTS_MAX]:
            for second, why in dependencies.edges[start].items():
                if why & kinds and second in tangle:
                    path = _path(dependencies, tangle, kinds, second, start)
                    if path is not None and (best is None or len(path) < len(best)):
                        best = path
                        if len(best) == 2:
                            return best
    return best


def _path(
    dependencies: Dependencies, inside: set[int], kinds: Kind, start: int, goal: int
) -> list[int] | None:
    """The shortest way from one transaction to another."""
    came_from: dict[int, int] = {start: start}
    waiting = deque([start])
    while waiting:
        here = waiting.popleft()
        if here == goal:
            path = [here]
            while path[-1] != start:
                path.append(came_from[path[-1]])
            return path[::-1]
        for following, why in dependencies.edges[here].items():
            if why & kinds and following in inside and following not in came_from:
                came_from[following] = here
                waiting.append(following)
    return None


def tangles(dependencies: Dependencies, numbers: Iterable[int], kinds: Kind) -> list[set[int]]:
    """Sets of transactions each of which comes before each other one (Tarjan, 1972)."""
    inside = set(numbers)
    edges = {
        number: [
            other
            for other, why in dependencies.edges[number].items()
            if why & kinds and other in inside
        ]
        for number in inside
    }
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    on_stack: set[int] = set()
    stack: list[int] = []
    found: list[set[int]] = []
    for root in sorted(inside):
        if root in index:
            continue
        work = [(root, iter(edges[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            here, rest = work[-1]
            following = next(rest, None)
            if following is None:
                work.pop()
                if work:
                    above = work[-1][0]
                    low[above] = min(low[above], low[here])
                if low[here] == index[here]:
                    tangle: set[int] = set()
                    while here not in tangle:
                        member = stack.pop()
                        on_stack.discard(member)
                        tangle.add(member)
                    if len(tangle) > 1:
                        found.append(tangle)
            elif following not in index:
                index[following] = low[following] = len(index)
                stack.append(following)
                on_stack.add(following)
                work.append((following, iter(edges[following])))
            elif following in on_stack:
                low[here] = min(low[here], index[following])
    return found
