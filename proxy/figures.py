"""What a proxy counts."""

from collections import Counter
from typing import Final

# Clients may call any path.
_MAX_METHODS: Final = 32
OTHER: Final = "other"


class Figures:
    """Counts of one proxy since its start.

    Attributes:
        connections: that are open.
        calls: that are being answered now, by method; a receive that waits is one of them.
        ended: calls that have ended, by method.
    """

    def __init__(self) -> None:
        self.connections = 0
        self.calls: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()

    def begun(self, path: str) -> str:
        """Count a call; return its method, for `over`."""
        method = path.rpartition("/")[2]
        if method not in self.calls and len(self.calls) >= _MAX_METHODS:
            method = OTHER
        self.calls[method] += 1
        return method

    def over(self, method: str) -> None:
        self.calls[method] -= 1
        self.ended[method] += 1
