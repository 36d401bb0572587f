"""What a receive asks for: tags, or a condition of SQL92."""

from functools import lru_cache
from typing import Final

from dledger_mq.consuming.subscription import SQL92, subscription
from proxy.statuses import Refused
from proxy.wire.messages_pb2 import Code, FilterExpression, FilterType
from remoting.bodies.heartbeat import SubscriptionData
from remoting.message.properties import TAGS, found_value
from remoting.message.record import MessageRecord

# Brokers keep a condition while a receive waits. Longer ones are refused there as well.
_MAX_CHARACTERS: Final = 8192

_TAGS: Final = TAGS.encode()

# Filters of receives that come again and again. Each has a kilobyte at most.
_MOST_REMEMBERED: Final = 1024
_MOST_REMEMBERED_CHARACTERS: Final = 128


def wanted_of(topic: str, expression: FilterExpression) -> SubscriptionData:
    """Read a filter. Raises Refused (40010)."""
    text: str = expression.expression
    if len(text) > _MAX_CHARACTERS:
        raise Refused(
            Code.ILLEGAL_FILTER_EXPRESSION,
            f"a filter of {len(text)} characters: at most {_MAX_CHARACTERS}",
        )
    if len(text) <= _MOST_REMEMBERED_CHARACTERS:
        return _remembered(topic, expression.type, text)
    return _read(topic, expression.type, text)


def _read(topic: str, kind: int, text: str) -> SubscriptionData:
    if kind == FilterType.SQL:
        if not text.strip():
            raise Refused(Code.ILLEGAL_FILTER_EXPRESSION, "the condition is empty")
        return SubscriptionData(topic, text, SQL92)
    if kind not in (FilterType.TAG, FilterType.FILTER_TYPE_UNSPECIFIED):
        raise Refused(Code.ILLEGAL_FILTER_EXPRESSION, f"filter type {kind}: send TAG or SQL")
    found = subscription(topic, text)
    if text.strip() and text.strip() != "*" and not found.tags and "*" not in text:
        raise Refused(Code.ILLEGAL_FILTER_EXPRESSION, f"{text!r:.80}: no tag is in it")
    return found


# A filter that is refused is not remembered.
_remembered: Final = lru_cache(_MOST_REMEMBERED)(_read)


def is_wanted(wanted: SubscriptionData, record: MessageRecord) -> bool:
    """Return whether a message has a wanted tag: brokers compare hashes of tags alone."""
    return not wanted.tags or (found_value(record.properties, _TAGS) or "") in wanted.tags
