"""The hash of a tag in consume queues, by which a broker filters without decoding messages."""

from functools import lru_cache
from typing import Final

from remoting.message.java_hash import java_hash
from remoting.message.properties import shown_value

# Distinct tags are few; the bound keeps a client with a new tag a message from filling memory.
_REMEMBERED_TAGS: Final = 4096
_REMEMBERED_CHARACTERS: Final = 128


def tags_code(tags: str) -> int:
    """Return the hash of the TAGS property: Java's `String.hashCode`, a signed 32-bit number.

    No tag (an empty text) is 0. RocketMQ stores it widened to 64 bits. Bytes that are not UTF-8
    count as U+FFFD, as Java reads them.
    """
    return _remembered(tags) if len(tags) <= _REMEMBERED_CHARACTERS else _hash(tags)


def _hash(tags: str) -> int:
    return java_hash(tags if tags.isascii() else shown_value(tags))


_remembered = lru_cache(maxsize=_REMEMBERED_TAGS)(_hash)
