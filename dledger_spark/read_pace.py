"""How fast a task may read from members of a group. Pure."""

from __future__ import annotations


class ReadPace:
    """Spreads reads over time, so that they stay below a number of bytes a second on average.

    A read is paid for before the next one begins; time in which nothing was read is not saved up.

    Args:
        bytes_per_second: the limit.
    """

    def __init__(self, bytes_per_second: int) -> None:
        self._bytes_per_second = bytes_per_second
        self._free_at_s = 0.0

    def read(self, count: int, began_s: float) -> None:
        """Note that `count` bytes were read, by a read that began at this time of the clock."""
        self._free_at_s = max(self._free_at_s, began_s) + count / self._bytes_per_second

    def wait_s(self, now_s: float) -> float:
        """How long the next read has to wait."""
        return max(0.0, self._free_at_s - now_s)
