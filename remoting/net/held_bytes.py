"""The bytes that all connections of a server hold together. Pure.

A connection holds the incomplete frame that it has read, requests that are being answered (its
owner says which), and the answers that its peer has not taken yet.
"""

from collections.abc import Callable
from typing import Final

# A sixteenth is freed at once, so that not each byte over the limit causes a search of connections.
_FREED_SHARE: Final = 16


class HeldBytes:
    """A count of bytes with a limit.

    Args:
        limit_bytes: what may be held.
        relieve: called above the limit, with the number of bytes to release.
    """

    def __init__(self, limit_bytes: int, relieve: Callable[[int], None]) -> None:
        self.limit_bytes = limit_bytes
        self.total_bytes = 0
        self._relieve = relieve
        self._is_relieving = False

    @property
    def is_tight(self) -> bool:
        """Whether more than half of the limit is held."""
        return self.total_bytes > self.limit_bytes // 2

    def add(self, count: int) -> None:
        """Hold `count` bytes more, or less when it is negative."""
        self.total_bytes += count
        if self.total_bytes > self.limit_bytes and not self._is_relieving:
            self._is_relieving = True
            try:
                rest = self.limit_bytes - self.limit_bytes // _FREED_SHARE
                self._relieve(self.total_bytes - rest)
            finally:
                self._is_relieving = False
