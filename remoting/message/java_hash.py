"""Java's hash of a text, which RocketMQ's files contain."""

import struct
from collections.abc import Sequence
from operator import mul
from typing import Final

_MASK: Final = 0xFFFFFFFF
_AT_ONCE: Final = 64
_WEIGHTS: Final = tuple(pow(31, _AT_ONCE - 1 - at, 1 << 32) for at in range(_AT_ONCE))


def java_hash(text: str, before: int = 0) -> int:
    """Return Java's `String.hashCode`: h = 31 h + unit over UTF-16 code units, signed and of 32
    bits.

    Args:
        text: the text, or its end.
        before: the hash of the text before it.
    """
    units: Sequence[int]
    if text.isascii():
        units = text.encode("ascii")
    else:
        encoded = text.encode("utf-16-be", "surrogatepass")
        units = struct.unpack(f">{len(encoded) // 2}H", encoded)
    value = before & _MASK
    for at in range(0, len(units), _AT_ONCE):
        run = units[at : at + _AT_ONCE]
        weights = _WEIGHTS[_AT_ONCE - len(run) :]
        value = (value * 31 * weights[0] + sum(map(mul, run, weights))) & _MASK
    return value - (1 << 32) if value >> 31 else value
