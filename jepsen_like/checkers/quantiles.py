"""Quantiles of times."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


def seconds(time_ns: float) -> str:
    """Return a time in seconds, milliseconds or microseconds, for people."""
    if time_ns >= 1e9:
        return f"{time_ns / 1e9:.3g} s" if time_ns < 1e12 else f"{time_ns / 1e9:.0f} s"
    if time_ns >= 1e6:
        return f"{time_ns / 1e6:.3g} ms"
    return f"{time_ns / 1e3:.3g} us"


class Quantiles(NamedTuple):
    """The spread of times; all are 0 if there are no times."""

    number: int
    p50: int
    p95: int
    p99: int
    longest: int

    def told(self) -> str:
        return (
            f"50 % within {seconds(self.p50)}, 95 % {seconds(self.p95)}, "
            f"99 % {seconds(self.p99)}, the longest {seconds(self.longest)}"
        )


def quantiles(times_ns: Iterable[int]) -> Quantiles:
    """Return the smallest times that so many hundredths of all do not exceed."""
    order = sorted(times_ns)
    if not order:
        return Quantiles(0, 0, 0, 0, 0)
    last = len(order) - 1

    def at(hundredths: int) -> int:
        return order[min(last, max(0, -(-hundredths * len(order) // 100) - 1))]

    return Quantiles(len(order), at(50), at(95), at(99), order[last])
