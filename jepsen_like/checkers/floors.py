"""The largest number that was certainly reached when an operation began."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from jepsen_like.history.operation import Operation


class Floor(NamedTuple):
    """An operation, and the one with the largest number among those that ended before it began."""

    operation: Operation
    before: Operation | None
    number: float


def floors(
    operations: Iterable[Operation], number_of: Callable[[Operation], float | None]
) -> Iterator[Floor]:
    """Yield what was certain when each operation was called, in the order of calls.

    `number_of` returns what an operation that was ok shows; None if it shows nothing.
    """
    whole = list(operations)
    ended = sorted((one for one in whole if one.ok), key=lambda one: one.certain_from)
    at = 0
    before: Operation | None = None
    number = float("-inf")
    for operation in whole:
        while at < len(ended) and ended[at].certain_from < operation.invoked_line:
            found = number_of(ended[at])
            if found is not None and found > number:
                before, number = ended[at], found
            at += 1
        yield Floor(operation, before, number)
