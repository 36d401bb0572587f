"""The hash of a tag that stands in consume queues, by which a broker filters without a decode."""

from functools import lru_cache
from typing import Final

# Distinct tags are few; the bound only keeps a client with a tag a message from filling memory.
_REMEMBERED_TAGS: Final = 4096


@lru_cache(maxsize=_REMEMBERED_TAGS)
def tags_code(tags: str) -> int:
    """The hash of the TAGS property: Java's `String.hashCode`, a signed 32-bit number.

    No tag (an empty text) is 0. Source: the Java language's definition, h = 31 h + unit over
    UTF-16 code units; RocketMQ stores it widened to 64 bits.
    """
    units = tags.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value
