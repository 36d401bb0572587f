"""Places that hosts of clients share: one host cannot take all of them. Pure."""

from collections import Counter
from typing import Final

# A host may have so many times what is left: one alone four fifths of all, as all clients have the
# same address behind some load balancers. It is a bound for what cannot be taken away again.
_TIMES_WHAT_IS_LEFT: Final = 4


class HostShares:
    """Counts the places that each host has.

    Args:
        most: of all hosts.

    Attributes:
        taken: by all hosts.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.taken = 0
        self._of_host: Counter[str] = Counter()

    def of(self, host: str) -> int:
        return self._of_host[host]

    def has_room(self, host: str) -> bool:
        """Return whether a host may take one more place."""
        return self._of_host[host] < _TIMES_WHAT_IS_LEFT * (self._most - self.taken)

    def take(self, host: str) -> None:
        self.taken += 1
        self._of_host[host] += 1

    def give_back(self, host: str) -> None:
        self.taken -= 1
        self._of_host[host] -= 1
        if not self._of_host[host]:
            del self._of_host[host]
