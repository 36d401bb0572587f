"""Formats quantities with their units, and moments in UTC (milliseconds since 1970) for people."""

from typing import Final

SECOND_MS: Final = 1000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS
# 400 years of the Gregorian calendar, and the days from 0000-03-01 to 1970-01-01.
_ERA_DAYS: Final = 146_097
_DAYS_TO_1970: Final = 719_468
_PARTS: Final = ((DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "min"), (SECOND_MS, "s"))
_SIZES: Final = ("KiB", "MiB", "GiB", "TiB")
_THOUSANDS: Final = ("", "k", "M", "G")


def count(number: float) -> str:
    """Format a number: 1,234,567."""
    return f"{number:,.0f}"


def short(number: float) -> str:
    """Format a number for an axis: 1.2k."""
    at = 0
    while abs(number) >= 1000 and at + 1 < len(_THOUSANDS):
        number /= 1000
        at += 1
    return f"{number:.4g}{_THOUSANDS[at]}"


def size(number_of_bytes: float) -> str:
    """Format a number of bytes: 1.5 MiB."""
    if number_of_bytes < 1024:
        return f"{number_of_bytes:.0f} B"
    at = 0
    number_of_bytes /= 1024
    while number_of_bytes >= 1024 and at + 1 < len(_SIZES):
        number_of_bytes /= 1024
        at += 1
    return f"{number_of_bytes:.{1 if number_of_bytes < 100 else 0}f} {_SIZES[at]}"


def rate(number_a_second: float) -> str:
    """Format a rate: 12.5/s."""
    return f"{number_a_second:,.0f}/s" if number_a_second >= 100 else f"{number_a_second:.3g}/s"


def share(part: float, whole: float) -> str:
    """Format a part of a whole in percent: 12.5 %."""
    return "-" if not whole else f"{100 * part / whole:.1f} %"


def duration(ms: float | None) -> str:
    """Format a duration: 12 ms, 1.25 s, 3 min 5 s; "-" for None."""
    if ms is None:
        return "-"
    if ms < 0:
        return "-" + duration(-ms)
    if ms < SECOND_MS:
        return f"{ms:.3g} ms"
    if ms < MINUTE_MS:
        return f"{ms / SECOND_MS:.3g} s"
    left = round(ms / SECOND_MS) * SECOND_MS
    words = []
    for unit, name in _PARTS:
        if left >= unit:
            words.append(f"{left // unit} {name}")
            left %= unit
        elif words:
            break
        if len(words) == 2:
            break
    return " ".join(words)


def cut(text: str, letters: int) -> str:
    """Cut a text to a number of letters: its beginning and its end."""
    if len(text) <= letters:
        return text
    tail = (letters - 1) // 3
    return f"{text[: letters - 1 - tail]}…{text[len(text) - tail :]}"


def day(ms: int) -> str:
    """Format the date: 2026-11-25."""
    # Years begin in March here, so that the leap day is the last one of a year.
    era, of_era = divmod(ms // DAY_MS + _DAYS_TO_1970, _ERA_DAYS)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    date = of_year - (153 * month + 2) // 5 + 1
    is_next = month >= 10
    return f"{era * 400 + year + is_next:04d}-{month - 9 if is_next else month + 3:02d}-{date:02d}"


def clock(ms: int, *, with_seconds: bool = True) -> str:
    """Format the time of the day: 22:04:05, or 22:04."""
    minute = f"{ms % DAY_MS // HOUR_MS:02d}:{ms % HOUR_MS // MINUTE_MS:02d}"
    return f"{minute}:{ms % MINUTE_MS // SECOND_MS:02d}" if with_seconds else minute


def moment(ms: int | None) -> str:
    """Format date and time: 2026-11-25 22:04:05; "-" for None."""
    return "-" if ms is None else f"{day(ms)} {clock(ms)}"
