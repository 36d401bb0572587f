"""What a client's connection does without an end of its turns."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


class Untimed:
    """Part of a `broker.serving.origin.Origin`."""

    is_turn_over = False

    def go_on(self, steps: Iterator[object]) -> None:
        deque(steps, 0)


class AtOnce:
    """Takes all steps at once. Implements `broker.serving.work_in_steps.WorkInSteps`."""

    def later(self, _what: str, steps: Iterator[object]) -> None:
        deque(steps, 0)

    begin = later

    def each(self, _what: str, items: Iterable[T], do: Callable[[T], None]) -> None:
        deque(map(do, items), 0)
