"""The monotonic clock of one simulated machine: it began anywhere, and runs at its own rate."""

from __future__ import annotations

# Rounding may put a timer a hair before its deadline; it would be set again, for ever.
ROUNDING_S = 1e-9


class VirtualClock:
    __slots__ = ("_offset_s", "rate")

    def __init__(self, rate: float, offset_s: float) -> None:
        self.rate = rate
        self._offset_s = offset_s

    def reads(self, true_s: float) -> float:
        return self._offset_s + true_s * self.rate

    def shows_at(self, local_s: float) -> float:
        """Return the true time at which the clock has reached `local_s`."""
        return (local_s - self._offset_s) / self.rate + ROUNDING_S
