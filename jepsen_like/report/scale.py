"""Scales: from times and figures to places in a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# Steps that people count in.
_STEPS = (1, 2, 5)
_LOG_STEPS = (1, 3)


@dataclass(frozen=True)
class Scale:
    """A straight scale: `low` lies at `begin`, `high` at `end`."""

    low: float
    high: float
    begin: float
    end: float

    def at(self, value: float) -> float:
        """Where a value lies; values beyond the scale lie at its ends."""
        extent = self.high - self.low
        share = (value - self.low) / extent if extent > 0 else 0.0
        return self.begin + min(1.0, max(0.0, share)) * (self.end - self.begin)

    def ticks(self, number: int) -> Sequence[float]:
        """At most `number` round values on the scale, and at least the lowest."""
        extent = self.high - self.low
        if extent <= 0:
            return [self.low]
        step = _round_step(extent / max(1, number - 1))
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [index * step for index in range(first, last + 1)] or [self.low]


@dataclass(frozen=True)
class LogScale:
    """A logarithmic scale; `low` is above 0."""

    low: float
    high: float
    begin: float
    end: float

    def at(self, value: float) -> float:
        """Where a value lies; values beyond the scale lie at its ends."""
        straight = Scale(math.log(self.low), math.log(self.high), self.begin, self.end)
        return straight.at(math.log(max(self.low, value)))

    def ticks(self) -> Sequence[float]:
        """Powers of ten, and three times these, within the scale."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        values = [step * 10.0**power for power in powers for step in _LOG_STEPS]
        return [value for value in values if self.low <= value <= self.high]


def _round_step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next(
        step * power for step in (*_STEPS, 10 * _STEPS[0]) if step * power >= least * (1 - 1e-9)
    )
