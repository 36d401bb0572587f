"""How much there was at midnight, today and yesterday."""

from typing import Generic, TypeVar

T = TypeVar("T")


class Mornings(Generic[T]):
    """Sums as they were when the days began; before that, as they were at the start.

    Args:
        now: the sums at the start.

    Attributes:
        yesterday: when yesterday began.
        today: when today began.
    """

    def __init__(self, now: T) -> None:
        self.yesterday = self.today = now
        self._hour = 0

    def look(self, hour: int, now: T) -> None:
        """Look at the clock, several times an hour; `hour` is the local hour of the day."""
        if hour < self._hour:
            self.yesterday, self.today = self.today, now
        self._hour = hour
