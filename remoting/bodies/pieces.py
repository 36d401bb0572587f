"""Cuts long lists into pieces, for answers that are made in steps."""

from collections.abc import Collection, Generator, Iterator
from itertools import islice
from typing import Final, TypeVar

T = TypeVar("T")

# Rows of some microseconds each: less than a millisecond.
ROWS_A_STEP: Final = 64


def pieces(rows: Collection[T], at_once: int = ROWS_A_STEP) -> Iterator[list[T]]:
    """Yield the present rows in lists of `at_once`, even if the collection changes meanwhile.

    They are copied: 100 000 take a millisecond.
    """
    left = iter(list(rows))
    while piece := list(islice(left, at_once)):
        yield piece


def last_of(steps: Generator[None, None, T]) -> T:
    """Run all steps at once, and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            value: T = ended.value
            return value
