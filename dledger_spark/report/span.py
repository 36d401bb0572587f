"""The time that a page shows, and the steps that charts cut it into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from dledger_spark.report.quantity import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    SECOND_MS,
    clock,
    day,
)

# No chart has more columns: these are about as many as a narrow screen has room for.
STEPS_MAX: Final = 120
_BETWEEN_TICKS: Final = (
    *(SECOND_MS * number for number in (1, 2, 5, 10, 15, 30)),
    *(MINUTE_MS * number for number in (1, 2, 5, 10, 15, 30)),
    *(HOUR_MS * number for number in (1, 2, 3, 6, 12)),
)


class Tick(NamedTuple):
    """A round moment, and what is written there."""

    ms: int
    text: str


@dataclass(frozen=True)
class Steps:
    """The span in steps of equal length, numbered from 0.

    Attributes:
        begin_ms: where the first begins.
        step_ms: how long each is.
        number: how many there are; 1 to `STEPS_MAX`.
    """

    begin_ms: int
    step_ms: int
    number: int

    def of(self, column: str) -> str:
        """SQL: the step that a column of times falls into, the first and the last at most."""
        step = f"(epoch_ms({column}) - {self.begin_ms}) // {self.step_ms}"
        return f"greatest(0, least({self.number - 1}, {step}))"

    def begin(self, step: int) -> int:
        """Where a step begins; where the last one ends, for the number of steps."""
        return self.begin_ms + step * self.step_ms


@dataclass(frozen=True)
class Span:
    """From when to when, in milliseconds since 1970. `end_ms` is after `begin_ms`."""

    begin_ms: int
    end_ms: int

    def steps(self, least_ms: int) -> Steps:
        """Steps of at least so long, if the span is."""
        whole = self.end_ms - self.begin_ms
        number = max(1, min(STEPS_MAX, whole // least_ms))
        return Steps(self.begin_ms, -(-whole // number), number)

    def ticks(self, most: int) -> list[Tick]:
        """At most so many round moments, and a date where a day begins. `most` is 3 or more."""
        whole = self.end_ms - self.begin_ms
        apart = next(
            (one for one in _BETWEEN_TICKS if whole // one < most),
            -(-whole // (DAY_MS * max(1, most - 1))) * DAY_MS,
        )
        first = -(-self.begin_ms // apart) * apart
        return [Tick(ms, _written(ms, apart)) for ms in range(first, self.end_ms + 1, apart)][:most]


def _written(ms: int, apart: int) -> str:
    if ms % DAY_MS == 0:
        return day(ms)[5:]
    return clock(ms, with_seconds=apart < MINUTE_MS)
