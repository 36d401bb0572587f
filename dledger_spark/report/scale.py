"""Scales: from figures to places in a picture."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class Scale(Protocol):
    """Where values lie between the foot and the top of a chart."""

    def at(self, value: float) -> float:
        """Where a value lies; values beyond the scale lie at its ends."""
        ...

    def ticks(self) -> list[float]:
        """Round values, to be named beside the chart."""
        ...


@dataclass(frozen=True)
class StraightScale:
    """0 lies at `foot`, `high` at `top`; `high` is above 0."""

    high: float
    foot: float
    top: float

    def at(self, value: float) -> float:
        """Where a value lies; values beyond the scale lie at its ends."""
        return self.foot + min(1.0, max(0.0, value / self.high)) * (self.top - self.foot)

    def ticks(self) -> list[float]:
        """At most six round values, 0 among them."""
        least = self.high / 5
        power = 10.0 ** math.floor(math.log10(least))
        step = next(one * power for one in (1, 2, 5, 10) if one * power >= least * (1 - 1e-9))
        return [at * step for at in range(math.floor(self.high / step * (1 + 1e-9)) + 1)]


@dataclass(frozen=True)
class MarkedScale:
    """Logarithmic, for values of very different sizes, between two of several marks.

    `marks` are two or more, above 0, and increase.
    """

    marks: Sequence[float]
    foot: float
    top: float

    @staticmethod
    def around(
        marks: Sequence[float], least: float, most: float, foot: float, top: float
    ) -> MarkedScale:
        """The scale of those marks that hold all values from `least` to `most` between them."""
        first = max(0, bisect_right(marks, least) - 1)
        last = min(len(marks) - 1, bisect_left(marks, most))
        first = min(first, len(marks) - 2)
        return MarkedScale(marks[first : max(last, first + 1) + 1], foot, top)

    def at(self, value: float) -> float:
        """Where a value lies; values beyond the scale lie at its ends."""
        low, high = self.marks[0], self.marks[-1]
        part = math.log(max(value, low) / low) / math.log(high / low)
        return self.foot + min(1.0, part) * (self.top - self.foot)

    def ticks(self) -> list[float]:
        """The marks."""
        return list(self.marks)
