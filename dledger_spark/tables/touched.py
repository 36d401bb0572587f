"""The places of a derived table that new facts change, as ranges of one of its columns. Pure.

A place is a whole number: a time in milliseconds, a position in the log, or an index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

# Ranges of a group with the smallest gaps between them are joined, so that conditions stay short.
MAX_RANGES: Final = 16
# Every place is less.
ENDLESS: Final = 1 << 62
# How a place is written in a condition.
Literal = Callable[[int], str]


class Touched(NamedTuple):
    """Places by group.

    Attributes:
        ranges: sorted ranges of each group.
        without: the groups that have rows without a place.
    """

    ranges: Mapping[str | None, Sequence[range]]
    without: frozenset[str | None]

    def __bool__(self) -> bool:
        return bool(self.ranges or self.without)

    def groups(self) -> Iterator[tuple[str | None, Sequence[range], bool]]:
        """Yield each group, its ranges, and whether it has rows without a place."""
        for group in {**self.ranges, **dict.fromkeys(self.without)}:
            yield group, self.ranges.get(group, ()), group in self.without


def touched(places: Iterable[tuple[str | None, int | None]], unit: int) -> Touched:
    """Return the ranges, of whole units, that hold these places of groups."""
    units: dict[str | None, set[int]] = {}
    without = set()
    for group, place in places:
        if place is None:
            without.add(group)
        else:
            units.setdefault(group, set()).add(place // unit)
    ranges = {group: _ranges(sorted(found), unit) for group, found in units.items()}
    return Touched(ranges, frozenset(without))


def _ranges(units: list[int], unit: int) -> list[range]:
    gaps = sorted((after - before for before, after in pairwise(units)), reverse=True)
    largest_joined = max(1, gaps[MAX_RANGES - 1] if len(gaps) >= MAX_RANGES else 1)
    found = [[units[0], units[0]]]
    for one in units[1:]:
        if one - found[-1][1] > largest_joined:
            found.append([one, one])
        else:
            found[-1][1] = one
    return [range(first * unit, (last + 1) * unit) for first, last in found]


def from_first(where: Touched) -> Touched:
    """Return all places of each group from its first one on."""
    ranges = {group: [range(found[0].start, ENDLESS)] for group, found in where.ranges.items()}
    return Touched(ranges, frozenset())


def before_all(where: Touched) -> Touched:
    """Return all places of each group before its first one."""
    ranges = {group: [range(-ENDLESS, found[0].start)] for group, found in where.ranges.items()}
    return Touched(ranges, frozenset())


def text_of(group: str | None) -> str:
    """Return the name of a group in SQL."""
    return "cast(null as varchar(255))" if group is None else quoted(group)


def quoted(text: str) -> str:
    """Return a text in SQL."""
    return "'" + text.replace("'", "''") + "'"


def is_group(group: str | None, column: str = "raft_group") -> str:
    """Return the condition of SQL that a row is of a group."""
    if group is None:
        return f"{column} is null"
    return f"{column} = {quoted(group)}"


def time_of(place: int) -> str:
    """Return a time in SQL of DuckDB and Spark."""
    return f"timestamp_millis({place})"


def delta_time_of(place: int) -> str:
    """Return a time in conditions of Delta's library."""
    return f"arrow_cast({place * 1000}, 'Timestamp(Microsecond, Some(\"UTC\"))')"


def inside(
    column: str, where: Touched, literal: Literal = str, group_column: str = "raft_group"
) -> str:
    """Return the condition of SQL that a row is at one of some places."""
    conditions = (
        f"({is_group(group, group_column)} and ({_inside(column, ranges, is_without, literal)}))"
        for group, ranges, is_without in where.groups()
    )
    return " or ".join(conditions) or "false"


def rows_in(table: str, column: str, where: Touched, literal: Literal = str) -> str:
    """Return the SQL of the rows of a table at some places.

    It is a query for each group, because engines skip parts of files by simple conditions only.
    """
    queries = (
        f"select * from {table} where {is_group(group)} "
        f"and ({_inside(column, ranges, is_without, literal)})"
        for group, ranges, is_without in where.groups()
    )
    return " union all ".join(queries) or f"select * from {table} where false"


def _inside(column: str, ranges: Sequence[range], is_without: bool, literal: Literal) -> str:
    conditions = [_in_range(column, one, literal) for one in ranges]
    if is_without:
        conditions.append(f"{column} is null")
    found = " or ".join(f"({one})" for one in conditions)
    if len(ranges) > 1 and not is_without:
        whole = range(ranges[0].start, ranges[-1].stop)
        found = f"{_inside(column, [whole], False, literal)} and ({found})"
    return found


def _in_range(column: str, places: range, literal: Literal) -> str:
    low = "" if places.start == -ENDLESS else f"{column} >= {literal(places.start)}"
    high = "" if places.stop == ENDLESS else f"{column} < {literal(places.stop)}"
    return " and ".join(filter(None, (low, high)))
