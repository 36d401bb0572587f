"""Times as people type them."""

import re
from datetime import datetime
from typing import Final

_AGO: Final = re.compile(r"(\d{1,9})(s|m|h|d)", re.ASCII)
_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

# From this number of digits on, a number is a time in milliseconds: since September 2001.
_MILLISECOND_DIGITS: Final = 13

FORMS: Final = "2026-03-01T12:30 (local time), 2026-03-01T12:30+00:00, 90m (ago; s, m, h, d) or ms"


def read_time(text: str, now_milliseconds: int) -> int:
    """A time in milliseconds since 1970. Raises ValueError with the forms it may have."""
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return max(0, now_milliseconds - int(ago[1]) * _UNIT_MS[ago[2]])
    if text.isdecimal() and len(text) == _MILLISECOND_DIGITS:
        return int(text)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{text!r:.60} is no time: give {FORMS}") from None


def written_time(milliseconds: int) -> str:
    """A time for people, in local time; a dash for none."""
    if milliseconds <= 0:
        return "-"
    return datetime.fromtimestamp(milliseconds / 1000).isoformat(" ", "seconds")
