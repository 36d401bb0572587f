"""Cycles of dependencies: transactions that have no order, the worst class first.

The classes are those of Adya ("Weak consistency", 1999), as Elle names them: G0 of appends alone,
G1c with reads of what was appended, G-single with one read of an old state, G-nonadjacent with
several, no two of them in a row, G2 with two in a row. Snapshot isolation allows G2 alone: a
history has it if and only if each cycle has two reads of an old state in a row (Cerone and Gotsman,
"Analysing snapshot isolation", 2018, without the order of sessions). A suffix says that the order
of a process, or of real time, is needed as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from jepsen_like.checkers.list_append.dependencies import Dependencies, Kind

# Transactions of a tangle from which the shortest cycle is searched; more are seldom shorter.
STARTS_MAX = 200

# Returns the numbers after a number.
Follow = Callable[[int], list[int]]
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
    """Return the shortest cycle of each tangle of transactions, in its worst class.

    Also return whether the search was ended early.
    """
    found: list[Cycle] = []
    explained: set[int] = set()
    for suffix, extra in _SUFFIXES:
        if (suffix == "-process" and not sessions) or (suffix == "-realtime" and not real_time):
            continue
        everything = Kind.WW | Kind.WR | Kind.RW | extra
        whole = range(len(dependencies.transactions))
        for tangle in tangles(whole, _steps(dependencies, everything)):
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
    forward = Kind.WW | Kind.WR | extra
    for name, kinds in (("G0", Kind.WW | extra), ("G1c", forward)):
        path = _shortest(tangle, _steps(dependencies, kinds))
        if path is not None:
            return _cycle(dependencies, name + suffix, path, [kinds] * len(path))
    best: list[int] | None = None
    for first in sorted(tangle)[:STARTS_MAX]:
        for second, why in dependencies.edges[first].items():
            if why & Kind.RW and second in tangle:
                path = _path(tangle, _steps(dependencies, forward), second, first)
                if path is not None and (best is None or len(path) < len(best)):
                    best = path
    if best is not None:
        # From the read of an old state to the append it missed, and back.
        steps = [*[forward] * (len(best) - 1), Kind.RW]
        return _cycle(dependencies, "G-single" + suffix, best, steps)
    path = _shortest(
        {place for number in tangle for place in _places(number)}, _spaced(dependencies, forward)
    )
    if path is not None:
        steps = [Kind.RW if at % 2 else forward for at in [*path[1:], path[0]]]
        name = "G-single" if steps.count(Kind.RW) == 1 else "G-nonadjacent"
        return _cycle(dependencies, name + suffix, [at // 2 for at in path], steps)
    everything = forward | Kind.RW
    path = _shortest(tangle, _steps(dependencies, everything))
    if path is None:
        return None
    return _cycle(dependencies, "G2" + suffix, path, [everything] * len(path))


def _cycle(dependencies: Dependencies, name: str, path: list[int], steps: list[Kind]) -> Cycle:
    """Return a cycle with one kind for each step: of its possible kinds, the strongest."""
    found: list[Kind] = []
    for first, second, kinds in zip(path, [*path[1:], path[0]], steps, strict=True):
        there = dependencies.kinds(first, second) & kinds
        found.append(next(kind for kind in Kind if there & kind))
    first = path.index(min(path))
    return Cycle(name, path[first:] + path[:first], found[first:] + found[:first])


def _steps(dependencies: Dependencies, kinds: Kind) -> Follow:
    """Return the steps from a transaction to those that it comes before, by one of these kinds."""
    edges = dependencies.edges
    return lambda here: [other for other, why in edges[here].items() if why & kinds]


def _places(number: int) -> tuple[int, int]:
    """Return the two places of a transaction: reached by the read of an old state, or otherwise."""
    return 2 * number, 2 * number + 1


def _spaced(dependencies: Dependencies, forward: Kind) -> Follow:
    """Return the steps from place to place that never read an old state twice in a row."""

    def follow(place: int) -> list[int]:
        here, by_old_read = divmod(place, 2)
        found: list[int] = []
        for other, why in dependencies.edges[here].items():
            otherwise, old_read = _places(other)
            if why & forward:
                found.append(otherwise)
            if why & Kind.RW and not by_old_read:
                found.append(old_read)
        return found

    return follow


def _shortest(inside: set[int], follow: Follow) -> list[int] | None:
    best: list[int] | None = None
    for tangle in tangles(inside, follow):
        for start in sorted(tangle)[:STARTS_MAX]:
            for second in follow(start):
                if second in tangle:
                    path = _path(tangle, follow, second, start)
                    if path is not None and (best is None or len(path) < len(best)):
                        best = path
                        if len(best) == 2:
                            return best
    return best


def _path(inside: set[int], follow: Follow, start: int, goal: int) -> list[int] | None:
    """Return the shortest path from one number to another; None if there is none."""
    came_from: dict[int, int] = {start: start}
    waiting = deque([start])
    while waiting:
        here = waiting.popleft()
        if here == goal:
            path = [here]
            while path[-1] != start:
                path.append(came_from[path[-1]])
            return path[::-1]
        for following in follow(here):
            if following in inside and following not in came_from:
                came_from[following] = here
                waiting.append(following)
    return None


def tangles(numbers: Iterable[int], follow: Follow) -> list[set[int]]:
    """Return the strongly connected components of more than one number (Tarjan, 1972)."""
    inside = set(numbers)
    edges = {number: [other for other in follow(number) if other in inside] for number in inside}
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
