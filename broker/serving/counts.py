"""Counts by user."""

from collections.abc import Iterable


class Counts:
    """Counts something by user. None stands for clients that are not counted."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def of(self, user: str | None) -> int:
        return 0 if user is None else self._counts.get(user, 0)

    def all(self) -> Iterable[tuple[str, int]]:
        return self._counts.items()

    def add(self, user: str | None, more: int = 1) -> int:
        """Count one more, or several, and return how many there are."""
        if user is None:
            return 0
        self._counts[user] = count = self._counts.get(user, 0) + more
        return count

    def remove(self, user: str | None, fewer: int = 1) -> None:
        if user is not None:
            left = self._counts[user] - fewer
            if left:
                self._counts[user] = left
            else:
                del self._counts[user]
