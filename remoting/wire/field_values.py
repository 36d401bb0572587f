"""Parses field values of clients once, at the door: numbers, truth values and names.

A field is text, in a header, in a JSON body, in the properties of a message or in another text.
These readers return a value of a type and of a bounded size, or refuse it. Java reads numbers by
`Integer.parseInt` and `Long.parseLong` and has nothing wider; the readers here accept what its
clients write, and refuse other forms that Java accepts ("+5" and the digits of other scripts) or
Python accepts (blanks, "_").
"""

import math
import re
from typing import Final

INT32_MIN: Final = -(1 << 31)
INT32_MAX: Final = (1 << 31) - 1
INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1

# The longest name: of a client (Java's are an address, a process id and a number), of a consumer
# group (RocketMQ's GROUP_MAX_LENGTH), and of any other key. Topics have 127.
MAX_NAME_CHARACTERS: Final = 255

# The longest form of a number of 64 bits. The time for more digits grows with the square of their
# number.
_MAX_NUMBER_CHARACTERS: Final = 20
_SURELY_INT64_CHARACTERS: Final = 18

# More digits do not change a number of Java; longer texts are slow to read.
_MAX_DECIMAL_CHARACTERS: Final = 64

_NUMBER: Final = re.compile(r"-?[0-9]+", re.ASCII)


def read_int64(text: str) -> int | None:
    """Parse a signed 64-bit number; return None for other texts."""
    # Most numbers are only digits: checking that takes half the time of matching a pattern.
    if len(text) <= _SURELY_INT64_CHARACTERS and text.isdigit() and text.isascii():
        return int(text)
    if len(text) > _MAX_NUMBER_CHARACTERS or _NUMBER.fullmatch(text) is None:
        return None
    number = int(text)
    return number if INT64_MIN <= number <= INT64_MAX else None


def read_int32(text: str) -> int | None:
    """Parse a signed 32-bit number; return None for other texts."""
    number = read_int64(text)
    return number if number is not None and INT32_MIN <= number <= INT32_MAX else None


def read_natural(text: str) -> int | None:
    """Parse a 64-bit number from 0 on; return None for other texts."""
    number = read_int64(text)
    return number if number is not None and number >= 0 else None


def read_decimal(text: str) -> int | float | None:
    """Parse a number like Java's `Double.valueOf`, for a condition; return None for other texts.

    It may have blanks around it, a sign, a fraction and an exponent. A whole number stays whole.
    """
    if not text.isascii() or len(text) > _MAX_DECIMAL_CHARACTERS or "_" in text:
        return None
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def read_boolean(text: str) -> bool:
    """Return whether a text is "true" in any case, as in Java, or "1", as the C++ client writes."""
    return text == "1" or text.lower() == "true"


def is_name(text: str) -> bool:
    """Return whether a text may name a client, a group or a topic.

    It must be short, without control characters and without characters that change the direction
    of the text around them.
    """
    return len(text) <= MAX_NAME_CHARACTERS and text.isprintable()


def saturated_int32(number: int) -> int:
    """Return a count for a record. It stays at the largest number instead of overflowing, and a
    negative one, which older brokers have stored, is 0.
    """
    return min(max(number, 0), INT32_MAX)
