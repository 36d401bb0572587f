"""What a proxy counts."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

# Clients may call any path: those that are no method of the service count together.
OTHER: Final = "other"


class Figures:
    """Counts of one proxy since its start.

    Args:
        paths: of the methods that are counted by name.

    Attributes:
        connections: that are open.
        calls: that are being answered now, by method; a receive that waits is one of them.
        ended: calls that have ended, by method.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._methods: Final = {path: path.rpartition("/")[2] for path in paths}
        self.connections = 0
        self.calls: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()

    def begun(self, path: str) -> str:
        """Count a call; return its method, for `over`."""
        method = self._methods.get(path, OTHER)
        self.calls[method] += 1
        return method

    def over(self, method: str) -> None:
        self.calls[method] -= 1
        self.ended[method] += 1
