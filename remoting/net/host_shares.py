"""Room that hosts of clients share: one host cannot take all of it. Pure."""

from collections import Counter
from typing import Final

# A host may have so many times what is left: one alone four fifths of all, as all clients have the
# same address behind some load balancers. It is a bound for what cannot be taken away again.
_TIMES_WHAT_IS_LEFT: Final = 4


class HostShares:
    """Counts the room that each host has taken: in places, or in bytes.

    Args:
        most: of all hosts.

    Attributes:
        taken: by all hosts.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.taken = 0
        self._of_host: Counter[str] = Counter()

    @property
    def left(self) -> int:
        return self._most - self.taken

    def of(self, host: str) -> int:
        return self._of_host[host]

    def has_room(self, host: str, count: int = 1) -> bool:
        """Return whether a host may take so much more."""
        return count <= self.left and self.of(host) + count <= _TIMES_WHAT_IS_LEFT * self.left

    def take(self, host: str, count: int = 1) -> None:
        self.taken += count
        self._of_host[host] += count

    def give_back(self, host: str, count: int = 1) -> None:
        self.taken -= count
        self._of_host[host] -= count
        if not self._of_host[host]:
            del self._of_host[host]
