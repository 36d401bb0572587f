"""What a client's connection does without an end of its turns."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


class Untimed:
    """Part of a `broker.serving.origin.Origin`."""

    is_turn_over = False

    def go_on(self, steps: Iterator[object]) -> None:
        deque(steps, 0)


class Stepped:
    """Part of a client that takes an answer's steps one by one.

    Attributes:
        steps: how many there were.
        longest_s: processor time of the longest one.
    """

    steps = 0
    longest_s = 0.0

    def go_on(self, steps: Iterator[object]) -> None:
        is_over = False
        while not is_over:
            began = time.process_time()
            is_over = next(steps, self) is self
            self.longest_s = max(self.longest_s, time.process_time() - began)
            self.steps += 1


class AtOnce:
    """Takes all steps at once. Implements `broker.serving.work_in_steps.WorkInSteps`."""

    def later(self, _what: str, steps: Iterator[object]) -> None:
        deque(steps, 0)

    begin = later

    def each(self, _what: str, items: Iterable[T], do: Callable[[T], None]) -> None:
        deque(map(do, items), 0)
