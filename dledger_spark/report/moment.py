"""Moments in UTC, counted in milliseconds since 1970, as people write them."""

from __future__ import annotations

from typing import Final

SECOND_MS: Final = 1000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS
# 400 years of the Gregorian calendar, and the days from 0000-03-01 to 1970-01-01.
_ERA_DAYS: Final = 146_097
_DAYS_TO_1970: Final = 719_468


def day(ms: int) -> str:
    """The date: 2026-11-25."""
    # Years begin in March here, so that the leap day is the last one of a year.
    era, of_era = divmod(ms // DAY_MS + _DAYS_TO_1970, _ERA_DAYS)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    date = of_year - (153 * month + 2) // 5 + 1
    is_next = month >= 10
    return f"{era * 400 + year + is_next:04d}-{month - 9 if is_next else month + 3:02d}-{date:02d}"


def clock(ms: int, *, seconds: bool = True) -> str:
    """The time of the day: 22:04:05, or 22:04."""
    minute = f"{ms % DAY_MS // HOUR_MS:02d}:{ms % HOUR_MS // MINUTE_MS:02d}"
    return f"{minute}:{ms % MINUTE_MS // SECOND_MS:02d}" if seconds else minute


def moment(ms: int | None) -> str:
    """Date and time: 2026-11-25 22:04:05. Nothing known is "-"."""
    return "-" if ms is None else f"{day(ms)} {clock(ms)}"
