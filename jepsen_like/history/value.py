"""Keys and values of operations: they never change, and can be members of sets."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Hashable, Iterable
from typing import TypeAlias

# None, bool, int, float, str, tuples, frozen sets and `Map`s of the same.
Value: TypeAlias = Hashable

# Characters of a value in a message: about a line of a screen.
SHOWN_CHARACTERS_MAX = 120
LISTED_MAX = 8
# Deeper values are refused: no workload needs them, and each level costs a level of recursion.
NESTED_MAX = 32
# Sums of whole numbers up to here fit into a float, and can be printed.
DIGITS_MAX = 300


class Map(dict[Value, Value]):
    """A mapping that is part of a value. It has a hash, so it must not be changed."""

    __slots__ = ()

    def __hash__(self) -> int:  # type: ignore[override] # a dict has none, because it may change
        return hash(frozenset(self.items()))


def frozen(value: object, depth: int = NESTED_MAX) -> Value:
    """Return a value as JSON gives it, with tuples for lists and `Map`s for dictionaries.

    Raises ValueError if it is nested deeper than `NESTED_MAX`, or a number is too large.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is no number of JSON, or too large to be kept")
    if isinstance(value, int) and abs(value) >= 10**DIGITS_MAX:
        raise ValueError(f"a number of more than {DIGITS_MAX} digits")
    if isinstance(value, (str, int, float)) or value is None:
        return value
    if depth == 0:
        raise ValueError(f"a value is nested deeper than {NESTED_MAX} levels")
    if isinstance(value, dict):
        return Map({name: frozen(inner, depth - 1) for name, inner in value.items()})
    if isinstance(value, (set, frozenset)):
        return frozenset(frozen(inner, depth - 1) for inner in value)
    if isinstance(value, (list, tuple)):
        return tuple([frozen(inner, depth - 1) for inner in value])
    raise ValueError(f"a value of type {type(value).__name__} has no place in a history")


def thawed(value: object) -> object:
    """Return a value as `json.dumps` takes it; sets become lists, in the order of `shown`."""
    if isinstance(value, dict):
        return {str(name): thawed(inner) for name, inner in value.items()}
    if isinstance(value, (set, frozenset)):
        return [thawed(inner) for inner in sorted(value, key=_rank)]
    if isinstance(value, (list, tuple)):
        return [thawed(inner) for inner in value]
    return value


def _rank(value: object) -> tuple[str, object]:
    """Return a sort key: numbers sort by size, other values by `shown`."""
    if isinstance(value, (int, float)):
        return "", value
    return type(value).__name__, shown(value)


def ordered(values: Iterable[Value]) -> list[Value]:
    """Return values in an order that is the same in every run."""
    return sorted(values, key=_rank)


def shown(value: object, characters_max: int = SHOWN_CHARACTERS_MAX) -> str:
    """Return a value as JSON, shortened in the middle if it is long."""
    text = json.dumps(thawed(value), ensure_ascii=True)
    if len(text) <= characters_max:
        return text
    half = (characters_max - 5) // 2
    return f"{text[:half]} ... {text[-half:]}"


def repeated(values: Iterable[Value]) -> list[Value]:
    """Return the values that occur more than once."""
    return [value for value, number in Counter(values).items() if number > 1]


def listed(values: Iterable[Value]) -> str:
    """Return some values, with commas; those after the first `LISTED_MAX` are only counted."""
    there = ordered(values)
    words = [shown(value, 40) for value in there[:LISTED_MAX]]
    if len(there) > LISTED_MAX:
        words.append(f"and {len(there) - LISTED_MAX} more")
    return ", ".join(words)
