"""Bounds how often a peer may do something. Pure."""


class Allowance:
    """Grants a burst at once, and then a number each second.

    Args:
        burst: how many at once.
        per_s: how many are added each second.
        now: seconds of a monotonic clock.
    """

    __slots__ = ("_burst", "_left", "_per_s", "_since")

    def __init__(self, burst: int, per_s: float, now: float) -> None:
        self._burst = burst
        self._left: float = burst
        self._per_s = per_s
        self._since = now

    def take(self, now: float) -> bool:
        """Take one; return False if none is left."""
        if self._left < 1:
            self._left = min(self._burst, self._left + (now - self._since) * self._per_s)
            self._since = now
            if self._left < 1:
                return False
        elif self._left == self._burst:
            self._since = now
        self._left -= 1
        return True
