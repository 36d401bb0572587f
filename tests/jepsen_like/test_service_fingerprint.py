"""States of machines are compared by content: equal ones have one text, others do not."""

import logging
import threading
from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jepsen_like.fingerprint import (
    LEVELS_MAX,
    SHOWN_CHARACTERS_MAX,
    difference,
    digest,
    shortened,
    told,
)


class Colour(Enum):
    RED = 1
    BLUE = 2


@dataclass
class Account:
    owner: str
    amounts: list[int] = field(default_factory=list)


class Slotted:
    __slots__ = ("left", "right")

    def __init__(self, left: object) -> None:
        self.left = left


class Chain:
    def __init__(self, next_one: object) -> None:
        self.next_one = next_one


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"x", "y", "z"}, {"z", "y", "x"}),
        ([1, 2], (1, 2)),
        (deque([1]), [1]),
        (defaultdict(list, {"a": [1]}), {"a": [1]}),
        (Account("me", [1]), Account("me", [1])),
        (Slotted({1: "a"}), Slotted({1: "a"})),
        (bytearray(b"ab"), b"ab"),
        (threading.Lock(), threading.Lock()),
        ({"log": logging.getLogger("one")}, {"log": logging.getLogger("other")}),
        (lambda: 1, lambda: 2),
    ],
)
def test_equal_content_is_equal(one: object, other: object) -> None:
    assert told(one) == told(other)
    assert digest(one) == digest(other)
    assert difference(one, other) == ""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([1, 2], [2, 1]),
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {"a": 1, "b": 1}),
        ({1: "a"}, {"1": "a"}),
        (1, True),
        ("a", b"a"),
        (Colour.RED, Colour.BLUE),
        (OrderedDict(a=1, b=2), OrderedDict(b=2, a=1)),
        (Account("me", [1]), Account("me", [2])),
        (Slotted(1), Slotted(2)),
        (None, 0),
    ],
)
def test_other_content_is_another(one: object, other: object) -> None:
    assert told(one) != told(other)
    assert difference(one, other)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=8,
)


@given(VALUES, VALUES)
def test_the_texts_of_values_are_equal_exactly_if_they_are(one: object, other: object) -> None:
    exactly = repr_of(one) == repr_of(other)
    assert (told(one) == told(other)) == exactly


def repr_of(value: object) -> object:
    """A value in which 1 and True differ, and the order of a dictionary does not count."""
    if isinstance(value, dict):
        return "dict", sorted((name, repr(repr_of(inner))) for name, inner in value.items())
    if isinstance(value, list):
        return "list", [repr_of(inner) for inner in value]
    return repr(value)


def test_a_difference_says_where_it_is() -> None:
    one = {"accounts": [Account("me", [1, 2]), Account("you", [3])]}
    other = {"accounts": [Account("me", [1, 2]), Account("you", [4])]}
    assert difference(one, other) == "['accounts'][1].amounts[0] is 3, not 4"


def test_a_state_that_holds_itself_has_a_text() -> None:
    one, other = Chain(None), Chain(None)
    one.next_one, other.next_one = one, other
    assert told(one) == told(other)


def test_what_is_nested_too_deep_is_not_compared() -> None:
    one, other = Chain(1), Chain(2)
    for _ in range(10 * LEVELS_MAX):
        one, other = Chain(one), Chain(other)
    assert told(one) == told(other)


def test_a_long_text_is_cut() -> None:
    assert len(shortened("x" * 10_000)) <= SHOWN_CHARACTERS_MAX
