"""Scales map times and figures to places in a picture."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

# Steps that people count in.
_STEPS = (1, 2, 5, 10)
_LOG_STEPS = (1, 3)


@dataclass(frozen=True)
class Scale:
    """A straight scale: `low` lies at `begin`, `high` at `end`."""

    low: float
    high: float
    begin: float
    end: float

    def at(self, value: float) -> float:
        extent = self.high - self.low
        share = (value - self.low) / extent if extent > 0 else 0.0
        return self.begin + min(1.0, max(0.0, share)) * (self.end - self.begin)

    def ticks(self, number: int = 6) -> Sequence[float]:
        """Return at most `number` round values on the scale, and at least the lowest."""
        extent = self.high - self.low
        if extent <= 0:
            return [self.low]
        least = extent / max(1, number - 1)
        power = 10.0 ** math.floor(math.log10(least))
        step = next(one * power for one in _STEPS if one * power >= least * (1 - 1e-9))
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [index * step for index in range(first, last + 1)] or [self.low]


@dataclass(frozen=True)
class LogScale:
    """A logarithmic scale, for values of very different sizes; `low` is above 0.

    `marks` are the values that are named, if not the usual ones.
    """

    low: float
    high: float
    begin: float
    end: float
    marks: Sequence[float] = ()

    @staticmethod
    def between(
        marks: Sequence[float], least: float, most: float, begin: float, end: float
    ) -> LogScale:
        """Return the scale between the marks that enclose all values from `least` to `most`.

        `marks` are two or more, above 0, and increase.
        """
        first = min(max(0, bisect_right(marks, least) - 1), len(marks) - 2)
        last = max(min(len(marks) - 1, bisect_left(marks, most)), first + 1)
        return LogScale(marks[first], marks[last], begin, end, marks[first : last + 1])

    def at(self, value: float) -> float:
        straight = Scale(math.log(self.low), math.log(self.high), self.begin, self.end)
        return straight.at(math.log(max(self.low, value)))

    def ticks(self) -> Sequence[float]:
        """Return the marks; without any, powers of ten, and three times these, within the scale."""
        if self.marks:
            return self.marks
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        values = [step * 10.0**power for power in powers for step in _LOG_STEPS]
        return [value for value in values if self.low <= value <= self.high]
