"""Which messages a pull wants: those with certain tags, or those that meet a condition.

Tags are "*", or tags separated by "||". The broker compares hashes, and clients compare tags. The
hashes are computed here from the expression, because C++ clients send wrong ones.

Source: RocketMQ's FilterAPI and ExpressionMessageFilter.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from broker.errors import RequestRefused
from broker.filters.condition import Condition, condition
from remoting.message.tags import tags_code
from remoting.wire.codes import ResponseCode

ALL_TAGS: Final = "*"

# Each is hashed, and kept with every held pull.
MAX_TAGS: Final = 256

# Bounds the work before the tags are counted: 256 tags of 60 characters.
MAX_EXPRESSION_CHARACTERS: Final = 16 * 1024

# Consumers repeat their expression with every pull; expressions are few, and most are short. The
# hashes of 256 tags take 25 KB, so that the cache takes 25 MB at most. Longer expressions are read
# again each time.
_REMEMBERED_FILTERS: Final = 1024
_REMEMBERED_CHARACTERS: Final = 1024


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """The messages that a consumer wants.

    Attributes:
        codes: hashes of the wanted tags; None for all messages.
        condition: on the properties of messages, in addition.
    """

    codes: frozenset[int] | None = None
    condition: Condition | None = None

    def wants(self, tags_code: int) -> bool:
        return self.codes is None or tags_code in self.codes

    def wants_any(self, tags_codes: Collection[int]) -> bool:
        return self.codes is None or not self.codes.isdisjoint(tags_codes)


ALL_MESSAGES: Final = MessageFilter()


def tag_filter(expression: str) -> MessageFilter:
    """Return the filter of a tag expression.

    Raises RequestRefused (23): it is too long, has too many tags, or is not empty and has none.
    """
    if len(expression) <= _REMEMBERED_CHARACTERS:
        return _remembered(expression)
    if len(expression) > MAX_EXPRESSION_CHARACTERS:
        raise RequestRefused(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            f"a subscription of {len(expression)} characters: at most {MAX_EXPRESSION_CHARACTERS}",
        )
    return _read(expression)


def sql_filter(expression: str) -> MessageFilter:
    """Return the filter of an SQL92 condition. Raises RequestRefused (23): it cannot be read."""
    return MessageFilter(condition=condition(expression))


@lru_cache(maxsize=_REMEMBERED_FILTERS)
def _remembered(expression: str) -> MessageFilter:
    return _read(expression)


def _read(expression: str) -> MessageFilter:
    if expression in ("", ALL_TAGS):
        return ALL_MESSAGES
    tags = [tag for part in expression.split("||") if (tag := part.strip())]
    if not tags or len(tags) > MAX_TAGS:
        raise RequestRefused(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            f"{len(tags)} tags in the subscription: give 1 to {MAX_TAGS}, or '*'",
        )
    return MessageFilter(frozenset(map(tags_code, tags)))
