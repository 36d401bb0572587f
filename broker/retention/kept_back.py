"""Messages that features still need, and that are moved before retention drops them."""

from collections.abc import Callable
from typing import Final

from broker.serving.parts import Shared


class KeptBack:
    """Asks features to move the messages that they need.

    `StatePart.needed_from` of a feature tells its first one.
    """

    def __init__(self) -> None:
        self._moves: list[Callable[[int], None]] = []

    def add(self, move_before: Callable[[int], None]) -> None:
        """Add a function that begins to move a feature's messages before a log position."""
        self._moves.append(move_before)

    def move_before(self, position: int) -> None:
        """Have needed messages before a log position moved to the log's end."""
        for move in self._moves:
            move(position)


KEPT_BACK: Final = Shared("messages kept back", lambda _parts: KeptBack())
