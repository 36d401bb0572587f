"""Long lists, piece by piece: what an answer in steps does between two of them."""

from collections.abc import Collection, Generator, Iterator
from itertools import islice
from typing import Final, TypeVar

T = TypeVar("T")

# Rows of some microseconds each: less than a millisecond.
ROWS_A_STEP: Final = 64


def pieces(rows: Collection[T], at_once: int = ROWS_A_STEP) -> Iterator[list[T]]:
    """The rows as they are now, whatever is changed meanwhile, so many at once.

    They are copied: 100 000 take a millisecond.
    """
    left = iter(list(rows))
    while piece := list(islice(left, at_once)):
        yield piece


def last_of(steps: Generator[None, None, T]) -> T:
    """What steps return, taken at once."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            value: T = ended.value
            return value
