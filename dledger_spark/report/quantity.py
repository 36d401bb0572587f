"""Figures with their units, as people read them."""

from __future__ import annotations

from typing import Final

_SECOND: Final = 1000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_PARTS: Final = ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min"), (_SECOND, "s"))
_SIZES: Final = ("KiB", "MiB", "GiB", "TiB")
_THOUSANDS: Final = ("", "k", "M", "G")


def count(number: float) -> str:
    """A number of things: 1,234,567."""
    return f"{number:,.0f}"


def short(number: float) -> str:
    """A number beside an axis: 1.2k."""
    at = 0
    while abs(number) >= 1000 and at + 1 < len(_THOUSANDS):
        number /= 1000
        at += 1
    return f"{number:.4g}{_THOUSANDS[at]}"


def size(number_of_bytes: float) -> str:
    """A number of bytes: 1.5 MiB."""
    if number_of_bytes < 1024:
        return f"{number_of_bytes:.0f} B"
    at = 0
    number_of_bytes /= 1024
    while number_of_bytes >= 1024 and at + 1 < len(_SIZES):
        number_of_bytes /= 1024
        at += 1
    return f"{number_of_bytes:.{1 if number_of_bytes < 100 else 0}f} {_SIZES[at]}"


def rate(number_a_second: float) -> str:
    """How often a second: 12.5/s."""
    return f"{number_a_second:,.0f}/s" if number_a_second >= 100 else f"{number_a_second:.3g}/s"


def share(part: float, whole: float) -> str:
    """A part of a whole in percent: 12.5 %."""
    return "-" if not whole else f"{100 * part / whole:.1f} %"


def duration(ms: float | None) -> str:
    """A time that passed: 12 ms, 1.25 s, 3 min 5 s. Nothing known is "-"."""
    if ms is None:
        return "-"
    if ms < 0:
        return "-" + duration(-ms)
    if ms < _SECOND:
        return f"{ms:.3g} ms"
    if ms < _MINUTE:
        return f"{ms / _SECOND:.3g} s"
    left = round(ms / _SECOND) * _SECOND
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
    """A text of at most so many letters; of a longer one, its begin and its end."""
    if len(text) <= letters:
        return text
    tail = (letters - 1) // 3
    return f"{text[: letters - 1 - tail]}…{text[len(text) - tail :]}"
