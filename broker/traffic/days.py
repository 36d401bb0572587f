"""When the days began, in local time."""

from collections.abc import Callable
from typing import NamedTuple

from broker.messages.quarter_counts import QUARTER_MS

_DAY_MS = 24 * 3600 * 1000

_HALF_A_DAY_HOURS = 12

# A day has 25 hours when the clocks are set back.
_QUARTERS_OF_A_DAY = 25 * 4


class Mornings(NamedTuple):
    """When yesterday and today began, in milliseconds since 1970."""

    yesterday_ms: int
    today_ms: int


def mornings(now_ms: int, hour_of: Callable[[int], int]) -> Mornings:
    """The begins of yesterday and today.

    A day begins where the hour of the day falls by more than half a day, which is at a quarter of
    an hour in every time zone. It falls by one where clocks are set back within an hour, as from
    3:45 to 2:45. Where they are set forward at midnight, a day begins with one o'clock.

    Args:
        now_ms: milliseconds since 1970.
        hour_of: the local hour of the day at such a time.
    """
    today_ms = _began(now_ms, hour_of)
    return Mornings(_began(today_ms - 1, hour_of), today_ms)


def _began(at_ms: int, hour_of: Callable[[int], int]) -> int:
    begin_ms = at_ms - at_ms % QUARTER_MS
    for _ in range(_QUARTERS_OF_A_DAY + 1):
        if hour_of(begin_ms - 1) - hour_of(begin_ms) > _HALF_A_DAY_HOURS:
            return begin_ms
        begin_ms -= QUARTER_MS
    return at_ms - at_ms % _DAY_MS  # a clock that no zone has
