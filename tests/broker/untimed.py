"""What a client's connection does without an end of its turns."""

from collections import deque
from collections.abc import Iterator


class Untimed:
    """Part of a `broker.serving.origin.Origin`."""

    is_turn_over = False

    def go_on(self, steps: Iterator[object]) -> None:
        deque(steps, 0)


class AtOnce:
    """Takes steps when it is given them. Implements `broker.serving.parts.WorkInSteps`."""

    def later(self, _what: str, steps: Iterator[object]) -> None:
        deque(steps, 0)
