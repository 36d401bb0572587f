"""What clients write into fields, read once, where it comes in: numbers, truth values and names.

A field is text, whether it stands in a header, in a JSON body, in the properties of a message or in
words of another text. Behind these readers it is a value of a type and of a known size, or it was
refused. Java reads numbers by `Integer.parseInt` and `Long.parseLong` and has nothing wider; the
readers here take what its clients write, and refuse what Java takes beside it ("+5" and the digits
of other scripts), as well as what Python takes (blanks, "_").
"""

import math
import re
from typing import Final

INT32_MIN: Final = -(1 << 31)
INT32_MAX: Final = (1 << 31) - 1
INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1

# The longest name: of a client (Java's are an address, a process id and a number), of a consumer
# group (RocketMQ's GROUP_MAX_LENGTH), and of anything that is kept or looked up. Topics have 127.
MAX_NAME_CHARACTERS: Final = 255

# The longest that a number of 64 bits is written. More digits take time that grows with the square
# of their number.
_MAX_NUMBER_CHARACTERS: Final = 20
_SURELY_INT64_CHARACTERS: Final = 18

# A number of Java has no more digits that count; longer texts are slow to read.
_MAX_DECIMAL_CHARACTERS: Final = 64

_NUMBER: Final = re.compile(r"-?[0-9]+", re.ASCII)


def read_int64(text: str) -> int | None:
    """The signed 64-bit number that a text is; None when it is none."""
    # Most numbers are digits alone: it takes half as long to see that as to match a pattern.
    if len(text) <= _SURELY_INT64_CHARACTERS and text.isdigit() and text.isascii():
        return int(text)
    if len(text) > _MAX_NUMBER_CHARACTERS or _NUMBER.fullmatch(text) is None:
        return None
    number = int(text)
    return number if INT64_MIN <= number <= INT64_MAX else None


def read_int32(text: str) -> int | None:
    """The signed 32-bit number that a text is; None when it is none."""
    number = read_int64(text)
    return number if number is not None and INT32_MIN <= number <= INT32_MAX else None


def read_natural(text: str) -> int | None:
    """The 64-bit number from 0 on that a text is; None when it is none."""
    number = read_int64(text)
    return number if number is not None and number >= 0 else None


def read_decimal(text: str) -> int | float | None:
    """The number that a text is, as Java's `Double.valueOf` reads it for a condition: with blanks
    around it, a sign, a fraction and an exponent; None when it is none. A whole number stays whole.
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
    """Whether a text is "true" in any case, as Java reads it, or "1", as the C++ client writes."""
    return text == "1" or text.lower() == "true"


def is_name(text: str) -> bool:
    """Whether a text may name a client, a group or a topic: short, and without control characters
    and those that change the direction of what is written around them.
    """
    return len(text) <= MAX_NAME_CHARACTERS and text.isprintable()


def saturated_int32(number: int) -> int:
    """A count as a record can hold it. It stays at the largest number instead of going round to
    the smallest, and one below 0, which older brokers have stored, is 0.
    """
    return min(max(number, 0), INT32_MAX)
