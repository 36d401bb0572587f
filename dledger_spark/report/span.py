"""The time that a page shows, and its division into the steps of charts."""

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

# The most columns of a chart: about as many as a narrow screen has room for.
STEPS_MAX: Final = 120
_BETWEEN_TICKS: Final = (
    *(SECOND_MS * number for number in (1, 2, 5, 10, 15, 30)),
    *(MINUTE_MS * number for number in (1, 2, 5, 10, 15, 30)),
    *(HOUR_MS * number for number in (1, 2, 3, 6, 12)),
)
# SQL for the newest time of the logs, in milliseconds: what the report takes for now.
NOW: Final = """
    select epoch_ms(max(o.time)) from (
        select max(m.store_time) as time from messages m
        union all
        select max(c.time) from commands c
        union all
        select max(e.time) from pop_events e
    ) o
"""


class Tick(NamedTuple):
    ms: int
    text: str


@dataclass(frozen=True)
class Steps:
    """The span in `number` steps of equal length, numbered from 0; at most `STEPS_MAX`."""

    begin_ms: int
    step_ms: int
    number: int

    def of(self, column: str) -> str:
        """Return SQL for the step of a column of times, limited to the first and the last."""
        step = f"(epoch_ms({column}) - {self.begin_ms}) // {self.step_ms}"
        return f"greatest(0, least({self.number - 1}, {step}))"

    def begin(self, step: int) -> int:
        """Return where a step begins; for the number of steps, where the last one ends."""
        return self.begin_ms + step * self.step_ms


@dataclass(frozen=True)
class Span:
    """A time in milliseconds since 1970. `end_ms` is after `begin_ms`."""

    begin_ms: int
    end_ms: int

    def steps(self, least_ms: int) -> Steps:
        """Return steps of at least `least_ms`, if the span is as long."""
        whole = self.end_ms - self.begin_ms
        number = max(1, min(STEPS_MAX, whole // least_ms))
        return Steps(self.begin_ms, -(-whole // number), number)

    def ticks(self, most: int) -> list[Tick]:
        """Return at most `most` round moments, at least 3, with the date where a day begins."""
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
