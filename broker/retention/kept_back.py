"""Messages that features have use for, and that retention may not drop before they were moved."""

from collections.abc import Callable
from typing import Final

from broker.serving.parts import Shared


class KeptBack:
    """Asks features to move messages that they have use for.

    A feature says in its part of the state where its first one lies (`StatePart.needed_from`).
    """

    def __init__(self) -> None:
        self._moves: list[Callable[[int], None]] = []

    def add(self, move_before: Callable[[int], None]) -> None:
        """`move_before` begins to move a feature's messages that lie before a position."""
        self._moves.append(move_before)

    def move_before(self, position: int) -> None:
        """Have what is needed before a position of the log moved behind its end."""
        for move in self._moves:
            move(position)


KEPT_BACK: Final = Shared("messages kept back", lambda _parts: KeptBack())
